"""Signed integers, called keys, that order as the elements they stand for."""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-(1 << 31))
"""The lowest key of 32 bits."""


@triton.jit
def order_key(bits, FLOAT_INF: tl.constexpr, SIGN_SHIFT: tl.constexpr, LARGEST: tl.constexpr):
    """Keys of elements of any dtype in torch's order, NaN above everything; turned around where not LARGEST.

    `bits` are the elements as sign-extended integers, of any shape. FLOAT_INF is the bit pattern of infinity, 0 for
    integers. SIGN_SHIFT is the position of the sign bit.
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
    """Keys of float32 given as int32 bits, of any shape, without regard to NaN. The function is its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def float_order(bits, LARGEST: tl.constexpr):
    """Keys of float32 given as int32 bits, of any shape, in torch's order: the NaNs of either sign above infinity.

    Turned around where not LARGEST. The line of `float_key` is rotated until minus infinity is the lowest key, which
    brings NaNs whose sign is set from its lower end to its upper.
    """
    key = float_key(bits)
    if LARGEST:
        return key - 0x7FFFFF
    else:
        return -1 - key + 0x7FFFFF
