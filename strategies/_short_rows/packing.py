"""Words: an element and its place in the row packed into 32 bits.

A word is a float32 whose last bits are the place, counted down, so that of equal elements the first is the largest
word. Floats compare with one instruction and need no transformation of their bits. Two things need care. An infinity
with a place in its last bits would be a NaN. NaNs must not get lost.

- Where the largest are asked for, elements are raised to a `floor` first. This keeps NaNs NaN: they come out on top, as
  does an infinity. Who meets either on top must look closer.
- Where the smallest are asked for, the sign is flipped. NaNs and infinity sink to the floor with the rest of what is
  near it. Who finds the k-th there must look closer.

Elements of 16 bits leave the last bits of a float32 free: the word holds all of them. Of float32 the last bits are cut
off: words of elements that differ only in those are alike, and only the elements themselves tell their order.

The key of a word is `float_key` of its bits. Keys for a closer look are in `again`.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.networks import larger, smaller
from autotopk.strategies._short_rows.order import float_key


@triton.constexpr_function
def holds_all(DTYPE):
    """Whether a word holds all bits of an element."""
    return DTYPE != "float32"


@triton.constexpr_function
def free_bits(DTYPE):
    """How many last bits of a float32 say nothing of an element."""
    return {"float32": 0, "bfloat16": 16, "float16": 13}[DTYPE]


@triton.constexpr_function
def infinity(DTYPE):
    """Bits of infinity."""
    return {"float32": 0x7F800000, "bfloat16": 0x7F80, "float16": 0x7C00}[DTYPE]


@triton.constexpr_function
def worst(DTYPE, LARGEST, PAIRS):
    """Bits, a signed integer, of what no element is worse than: minus infinity or a NaN, twice if PAIRS."""
    sign = 1 << (31 if DTYPE == "float32" else 15)
    bits = infinity(DTYPE) + (0 if LARGEST else 1) - sign
    return bits * (sign * 2) + bits + sign * 2 if PAIRS else bits


@triton.constexpr_function
def floor(DTYPE):
    """What elements are raised to; for 16 bits a word of it is below every finite element's."""
    return {
        "float32": -3.3895313892515355e38,  # 0xff7f0000
        "bfloat16": -3.39617752923046e38,  # 0xff7f8000
        "float16": -131072.0,  # 0xc8000000
    }[DTYPE]


@triton.constexpr_function
def floor_key(DTYPE):
    """The greatest key that a word of the floor has."""
    bits = {"float32": 0xFF7F0000, "bfloat16": 0xFF7F8000, "float16": 0xC8000000}[DTYPE]
    return (bits - (1 << 32)) ^ 0x7FFFFFFF


@triton.jit
def float32_bits(bits, DTYPE: tl.constexpr):
    """Bits of elements, int32 or int16, to the bits of float32 of the same values, int32; of any shape."""
    if DTYPE == "float32":
        return bits
    elif DTYPE == "bfloat16":
        return bits.to(tl.int32) << 16
    else:
        return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32).to(tl.int32, bitcast=True)


@triton.jit
def packed(bits, cut, PLACE: tl.constexpr, DTYPE: tl.constexpr, LARGEST: tl.constexpr):
    """(R, L) bits of float32 to words (R, L), float32. `cut` (R, 1) keeps all bits but those of the place."""
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
    """Keys of words, of any shape, to places and bits of the elements, which are 0 where a word does not hold all."""
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


@triton.jit
def alike(a, b, SPAN: tl.constexpr):
    """Whether keys differ in no bit but those of the place."""
    return (a ^ b).to(tl.uint32, bitcast=True) < SPAN
