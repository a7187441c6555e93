"""Integers that order as the elements they stand for."""

import triton
import triton.language as tl


@triton.jit
def order_key(bits, FLOAT_INF: tl.constexpr, SIGN_SHIFT: tl.constexpr, LARGEST: tl.constexpr):
    """Bits of any dtype, sign-extended, to signed integers in torch's order, NaN above everything.

    FLOAT_INF is the bit pattern of infinity, 0 for integers.
    """
    key = bits
    if FLOAT_INF > 0:
        magnitude = bits & ((1 << SIGN_SHIFT) - 1)
        key = tl.where(magnitude > FLOAT_INF, FLOAT_INF + 1, bits ^ ((bits >> SIGN_SHIFT) & ((1 << SIGN_SHIFT) - 1)))
    if not LARGEST:
        key = -1 - key
    return key


@triton.jit
def float_key(bits):
    """Bits of float32 to signed integers that order as the numbers; its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
