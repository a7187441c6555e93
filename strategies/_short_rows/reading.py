"""Rows from memory to words in registers.

A lane reads VECTORS vectors of VECTOR adjacent elements; the lanes of a row read adjacent vectors. Vector j of lane l
holds the VECTOR columns from (j * LANES + l) * VECTOR - skew on: RAGGED rows are read from the vector on in which they
begin, `skew` elements before their first; of others `skew` is 0.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.addresses import narrow, words_from
from autotopk.strategies._short_rows.packing import float32_bits, packed, worst


@triton.constexpr_function
def at_an_end(j, INSIDE, RAGGED):
    """Whether vector j of a ragged row may lie partly outside of it."""
    return RAGGED and (j == 0 or j >= INSIDE)


@triton.jit
def read(
    x,
    start,
    skew,
    cols,
    col_stride,
    LANES: tl.constexpr,
    VECTORS: tl.constexpr,
    VECTOR: tl.constexpr,
    INSIDE: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    RAGGED: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
):
    """VECTORS tensors (R, L * VECTOR) of elements, or (R, L * VECTOR / 2) of pairs; the `worst` outside of a row.

    `start` and `skew`, (R, 1), are what `aligned` returns. Vectors inside of every row are read whole, and in PAIRS if
    so asked; those at a ragged row's ends are read one element a load. All loads are in flight at once.
    """
    STEP: tl.constexpr = LANES * VECTOR
    WORD: tl.constexpr = 2 if PAIRS else 1
    loaded = ()
    for j in tl.static_range(0, VECTORS):
        if SIDE_BY_SIDE:
            column = tl.arange(0, STEP)[None, :] + j * STEP
            at = x + start + column * col_stride
        elif at_an_end(j, INSIDE, RAGGED):
            column = tl.arange(0, STEP)[None, :] + j * STEP - skew
            at = narrow(x, PAIRS) + (start + skew) + column
        else:
            word = tl.arange(0, STEP // WORD)[None, :] + j * (STEP // WORD)
            column = word * WORD
            at = words_from(x, start, PAIRS) + word
        if j < INSIDE and not at_an_end(j, INSIDE, RAGGED):
            loaded = loaded + (tl.load(at),)
        else:
            if RAGGED:
                inside = (column >= 0) & (column < cols)
            elif PAIRS:  # the compiler would not see that `column < cols` is alike in all of a vector
                inside = word < cols // WORD
            else:
                inside = column < cols
            other = worst(DTYPE, LARGEST, PAIRS and not at_an_end(j, INSIDE, RAGGED))
            loaded = loaded + (tl.load(at, mask=inside, other=other),)
    return loaded


@triton.jit
def halves(x):
    """(R, 2m) to its even and its odd columns, (R, m) each, within the thread."""
    return tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))


@triton.jit
def columns(x, WIDTH: tl.constexpr):
    """(R, L * WIDTH), WIDTH <= 8 adjacent columns a lane, to WIDTH tensors (R, L) in the order of columns."""
    xs = (x,)
    for s in tl.static_range(0, 3):
        if (1 << s) < WIDTH:
            evens = ()
            odds = ()
            for i in tl.static_range(0, 1 << s):
                even, odd = halves(xs[i])
                evens = evens + (even,)
                odds = odds + (odd,)
            xs = evens + odds
    return xs


@triton.jit
def bits_of_pairs(pairs, DTYPE: tl.constexpr):
    """Two elements of 16 bits in each int32, of any shape, to the float32 bits of the first and of the second ones."""
    if DTYPE == "bfloat16":
        return pairs << 16, pairs & -65536
    else:
        return float32_bits(pairs & 0xFFFF, DTYPE), float32_bits(pairs >> 16, DTYPE)


@triton.jit
def elements_of_pairs(x, VECTOR: tl.constexpr, DTYPE: tl.constexpr):
    """(R, L * VECTOR / 2) int32, two elements of 16 bits each, to VECTOR tensors (R, L) of float32 bits."""
    parts = columns(x, VECTOR // 2)
    bits = ()
    for i in tl.static_range(0, VECTOR // 2):
        bits = bits + bits_of_pairs(parts[i], DTYPE)
    return bits


@triton.jit
def elements(x, VECTOR: tl.constexpr, DTYPE: tl.constexpr):
    """(R, L * VECTOR) elements to VECTOR tensors (R, L) of float32 bits."""
    parts = columns(x, VECTOR)
    bits = ()
    for i in tl.static_range(0, VECTOR):
        bits = bits + (float32_bits(parts[i], DTYPE),)
    return bits


@triton.jit
def words_of(
    loaded,
    rows,
    LANES: tl.constexpr,
    VECTOR: tl.constexpr,
    INSIDE: tl.constexpr,
    SPAN: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """What `read` gave as VECTORS * VECTOR tensors (R, L) of words.

    The place of column c is SPAN - 1 - (c + skew). All lanes pack that of the last lane, which is a constant;
    (LANES - 1 - lane) * VECTOR is to be added to what survives sorting.
    """
    STEP: tl.constexpr = LANES * VECTOR
    cut = tl.where(rows > 0, -SPAN, 0)  # no constant to the compiler, which would make two instructions of and, or
    words = ()
    for j in tl.static_range(0, len(loaded)):
        if PAIRS and not at_an_end(j, INSIDE, RAGGED):
            bits = elements_of_pairs(loaded[j], VECTOR, DTYPE)
        else:
            bits = elements(loaded[j], VECTOR, DTYPE)
        for u in tl.static_range(0, VECTOR):
            word = packed(bits[u], cut, SPAN - STEP * (j + 1) + VECTOR - 1 - u, DTYPE, LARGEST)
            words = words + (word,)
    return words
