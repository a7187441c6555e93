"""One 32-bit word for an element and its place: a float32 whose last bits count the places down.

Floats compare with one instruction and no transformation of their bits. Two things need care: infinities with a
place in their last bits would be NaNs, and NaNs must not get lost. So where the largest are asked for, elements are
raised to a `floor` first, which keeps NaNs NaN: they come out on top, as does an infinity, and whoever meets either
on top looks closer. Where the smallest are asked for, the sign is flipped; NaNs and infinity sink to the floor with
the rest of what is near it, and whoever finds the k-th there looks closer.

Elements of 16 bits leave their last bits free: the word holds all of them. Of float32 the last bits are cut off, and
elements that differ only in those are alike: they form a class, whose order is told by the elements themselves.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.networks import larger, smaller
from autotopk.strategies._short_rows.order import float_key

MAX_SPAN = 8192
"""Most places: the 13 bits that a float16 leaves free."""


@triton.constexpr_function
def free_bits(DTYPE):
    """Last bits of a float32 that are zero when it holds an element of DTYPE."""
    return {"float32": 0, "bfloat16": 16, "float16": 13}[DTYPE]


@triton.constexpr_function
def floor(DTYPE):
    """What elements are raised to; a word of it is above `ABSENT`, and for 16 bits below every finite element's."""
    return {
        "float32": -3.3895313892515355e38,  # 0xff7f0000
        "bfloat16": -3.39617752923046e38,  # 0xff7f8000
        "float16": -131072.0,  # 0xc8000000
    }[DTYPE]


@triton.constexpr_function
def floor_key(DTYPE, SPAN):
    """The greatest key of a packed floor."""
    bits = {"float32": 0xFF7F0000, "bfloat16": 0xFF7F8000, "float16": 0xC8000000}[DTYPE]
    return (bits - (1 << 32)) ^ 0x7FFFFFFF


ABSENT = tl.constexpr(-3.4028234663852886e38)
"""The lowest float32: what is packed for a place that has no element."""


@triton.jit
def float32_bits(bits, DTYPE: tl.constexpr):
    """Bits of an element, int32 or int16, to those of the float32 of its value, int32."""
    if DTYPE == "float32":
        return bits
    elif DTYPE == "bfloat16":
        return bits.to(tl.int32) << 16
    else:
        return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32).to(tl.int32, bitcast=True)


@triton.jit
def packed(bits, cut, PLACE: tl.constexpr, DTYPE: tl.constexpr, LARGEST: tl.constexpr):
    """Bits of a float32 to a word, as a float32. `cut` masks the bits that the place takes."""
    number = bits.to(tl.float32, bitcast=True)
    if LARGEST:
        number = larger(number, tl.full((1, 1), floor(DTYPE), tl.float32))
        place = PLACE
    else:
        number = smaller(number, tl.full((1, 1), -floor(DTYPE), tl.float32))
        place = PLACE - 2147483648  # and the sign flipped
    word = number.to(tl.int32, bitcast=True)
    if DTYPE == "float32":
        word = word & cut
    return (word ^ place).to(tl.float32, bitcast=True)


@triton.jit
def unpacked(key, SPAN: tl.constexpr, DTYPE: tl.constexpr, LARGEST: tl.constexpr):
    """Keys of words to places and, of 16-bit elements, their bits; those of float32 are lost and come back as 0."""
    word = float_key(key)
    place = word & (SPAN - 1)
    if not LARGEST:
        word = word ^ -2147483648
    if DTYPE == "bfloat16":
        return place, ((word + 0x8000) >> 16).to(tl.int16)  # rounds the floor to minus infinity
    elif DTYPE == "float16":
        number = (word & -SPAN).to(tl.float32, bitcast=True)
        return place, number.to(tl.float16).to(tl.int16, bitcast=True)  # overflow makes the floor infinite
    else:
        return place, tl.zeros_like(word)
