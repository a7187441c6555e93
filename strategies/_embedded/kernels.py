"""Kernels of the families that can be embedded, for pointers of the tensors' own types, as Inductor passes them.

Numbers that Inductor knows to be 1 arrive as constants of the language, which the families' kernels do not expect.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.lanes import lane_merge_rows
from autotopk.strategies._short_rows.masking import masked_argmax_rows


@triton.jit
def integers_at(pointer, BITS: tl.constexpr):
    """The same memory as integers of so many bits."""
    if BITS == 8:
        return pointer.to(tl.pointer_type(tl.int8), bitcast=True)
    elif BITS == 16:
        return pointer.to(tl.pointer_type(tl.int16), bitcast=True)
    elif BITS == 32:
        return pointer.to(tl.pointer_type(tl.int32), bitcast=True)
    else:
        return pointer.to(tl.pointer_type(tl.int64), bitcast=True)


@triton.jit
def lane_merge(
    x,
    values,
    indices,
    rows,
    cols,
    k,
    row_stride,
    col_stride,
    inner,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    VECTORS: tl.constexpr,
    VECTOR: tl.constexpr,
    INSIDE: tl.constexpr,
    SPAN: tl.constexpr,
    DEPTH: tl.constexpr,
    TREE: tl.constexpr,
    ROUNDS: tl.constexpr,
    SLOTS: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    RAGGED: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
):
    """See `lanes.lane_merge_rows`."""
    BITS: tl.constexpr = 32 if DTYPE == "float32" else 16
    lane_merge_rows(
        integers_at(x, 32 if PAIRS else BITS), integers_at(values, BITS), indices, tl.cast(rows, tl.int32),
        tl.cast(cols, tl.int32), tl.cast(k, tl.int32), tl.cast(row_stride, tl.int64), tl.cast(col_stride, tl.int64),
        tl.cast(inner, tl.int32), 0, ROWS, LANES, VECTORS, VECTOR, INSIDE, SPAN, DEPTH, TREE, ROUNDS, SLOTS, DTYPE,
        LARGEST, PAIRS, RAGGED, SIDE_BY_SIDE,
    )  # fmt: skip


@triton.jit
def masked_argmax(
    x,
    values,
    indices,
    rows,
    cols,
    k,
    row_stride,
    smallest,
    has_sign,  # `signed` is a word of C++, into which Inductor writes this name
    infinity,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BITS: tl.constexpr,
    FLOAT: tl.constexpr,
):
    """See `masking.masked_argmax_rows`."""
    masked_argmax_rows(
        integers_at(x, BITS), integers_at(values, BITS), indices, tl.cast(rows, tl.int32), tl.cast(cols, tl.int32),
        tl.cast(k, tl.int32), tl.cast(row_stride, tl.int64), tl.cast(smallest, tl.int32), tl.cast(has_sign, tl.int32),
        tl.cast(infinity, tl.int32), 0, BLOCK_ROWS, BLOCK_COLS, BLOCK_K, BITS, FLOAT,
    )  # fmt: skip
