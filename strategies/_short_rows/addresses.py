"""Where rows and their results begin. All offsets are in elements."""

import triton
import triton.language as tl


@triton.jit
def row_start(row, row_stride, inner, SIDE_BY_SIDE: tl.constexpr):
    """Offsets of the rows' first elements, int64 of the shape of `row`."""
    if SIDE_BY_SIDE:
        return wide(row // inner) * row_stride + row % inner
    else:
        return wide(row) * row_stride


@triton.jit
def out_start(row, inner, k, SIDE_BY_SIDE: tl.constexpr):
    """Offsets of the rows' first results, int64 of the shape of `row`."""
    if SIDE_BY_SIDE:
        return wide(row // inner * inner) * wide(k) + row % inner
    else:
        return wide(row) * wide(k)


@triton.jit
def wide(x):
    """Numbers from 0 on as int64, without a sign to extend."""
    return x.to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def aligned(start, VECTOR: tl.constexpr, RAGGED: tl.constexpr):
    """Offsets of the vectors in which rows begin, and `skew`, how many elements of those precede the row, int32.

    Both have the shape of `start`. Rows that are not RAGGED begin where a vector does.
    """
    skew = tl.full(start.shape, 0, tl.int32)
    if RAGGED:
        skew = (start % VECTOR).to(tl.int32)
        start = start // VECTOR * VECTOR  # the compiler would not see that of `start & -VECTOR`
    return start, skew


@triton.jit
def narrow(x, PAIRS: tl.constexpr):
    """The pointer to single elements, of a pointer to pairs of them or to single ones."""
    if PAIRS:
        return x.to(tl.pointer_type(tl.int16), bitcast=True)
    else:
        return x


@triton.jit
def words_from(x, start, PAIRS: tl.constexpr):
    """Pointers of the shape of `start`: to single elements or, if `x` is one to PAIRS, to pairs."""
    if PAIRS:
        return x + (start >> 1)
    else:
        return x + start
