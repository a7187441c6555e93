"""Signed integers, called keys, that order as the elements they stand for."""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-(1 << 31))
"""The lowest key of 32 bits."""


@triton.jit
def order_key(bits, smallest, signed, infinity, BITS: tl.constexpr, FLOAT: tl.constexpr):
    """Keys of elements of any dtype in torch's order, NaN above everything; turned around if `smallest`.

    `bits` are the elements as sign-extended integers, of any shape. Of FLOATs `infinity` is its bit pattern; of
    integers `signed` tells whether they have a sign.
    """
    turned = 0 - smallest
    if FLOAT:
        magnitude = bits & ((1 << (BITS - 1)) - 1)
        line = bits ^ ((bits >> (BITS - 1)) & ((1 << (BITS - 1)) - 1))
        return tl.where(magnitude > infinity, infinity + 1, line) ^ turned
    elif BITS == 8:  # wider ones are all signed
        return (bits & (255 - 256 * signed)) ^ turned
    else:
        return bits ^ turned


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
