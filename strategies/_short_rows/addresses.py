"""Where rows and their results begin. All offsets are in elements."""

import triton
import triton.language as tl


@triton.jit
def row_start(row, row_stride, inner, SIDE_BY_SIDE: tl.constexpr, SMALL: tl.constexpr):
    """Offsets of the rows' first elements, of the shape of `row`; int32 if SMALL, else int64."""
    if SIDE_BY_SIDE:
        group = row // inner
        within = row % inner
    else:
        group = row
        within = 0
    if SMALL:
        return group * row_stride.to(tl.int32) + within
    else:
        return group.to(tl.int64) * row_stride + within


@triton.jit
def out_start(row, inner, K: tl.constexpr, SIDE_BY_SIDE: tl.constexpr, SMALL: tl.constexpr):
    """Offsets of the rows' first results, of the shape of `row`; int32 if SMALL, else int64."""
    if not SMALL:
        row = row.to(tl.int64)
    if SIDE_BY_SIDE:
        return row // inner * inner * K + row % inner
    else:
        return row * K


@triton.jit
def aligned(start, VECTOR: tl.constexpr, RAGGED: tl.constexpr):
    """Offsets of the vectors in which rows begin, and `skew`, how many elements of those precede the row, int32.

    Both have the shape of `start`. Rows that are not RAGGED begin where a vector does.
    """
    skew = tl.full(start.shape, 0, tl.int32)
    if RAGGED:
        skew = (start % VECTOR).to(tl.int32)
        start = start // VECTOR * VECTOR
    return start, skew


@triton.jit
def narrow(x, PAIRS: tl.constexpr):
    """The pointer to single elements, of a pointer to pairs of them or to single ones."""
    if PAIRS:
        return x.to(tl.pointer_type(tl.int16), bitcast=True)
    else:
        return x
