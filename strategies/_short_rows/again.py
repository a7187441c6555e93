"""Rows done again by masking, which needs nothing but the order of elements.

`pointers` are of elements, values and indices; `strides` are `row_stride` and `inner` of the kernel, and the distances
of a row's adjacent columns and adjacent results.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.addresses import out_start, row_start
from autotopk.strategies._short_rows.masking import best_columns
from autotopk.strategies._short_rows.merging import greatest
from autotopk.strategies._short_rows.order import LOWEST
from autotopk.strategies._short_rows.packing import infinity, sign_bit


@triton.jit
def pointers_of(row, pointers, strides, K: tl.constexpr, SIDE_BY_SIDE: tl.constexpr):
    """Pointers (R, 1) to where rows, their values and their indices begin; `row` is (R, 1)."""
    x, values, indices = pointers
    row_stride, inner, _, _ = strides
    start = row_start(row, row_stride, inner, SIDE_BY_SIDE, False)
    out = out_start(row, inner, K, SIDE_BY_SIDE, False)
    return x + start, values + out, indices + out


@triton.jit
def do_again(
    row_pointers,
    strides,
    wanted,
    cols,
    K: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Reads rows and writes their results where `wanted` (R, 1); `row_pointers` are what `pointers_of` returns."""
    x, values, indices = row_pointers
    _, _, apart, slot_stride = strides
    column = tl.arange(0, BLOCK_COLS)[None, :]
    slot = tl.arange(0, BLOCK_K)[None, :]
    present = wanted & (column < cols)
    bits = tl.load(x + column * apart, mask=present, other=0)
    last_bit: tl.constexpr = sign_bit(DTYPE)
    at = best_columns(bits, present, column, K, BLOCK_K, False, LOWEST, False, infinity(DTYPE), last_bit, LARGEST)
    filled = wanted & (slot < K)
    tl.store(values + slot * slot_stride, tl.load(x + at * apart, mask=filled, other=0), mask=filled)
    tl.store(indices + slot * slot_stride, at.to(tl.int64), mask=filled)


@triton.jit
def do_doubtful_again(
    pointers,
    strides,
    doubt,
    first_row,
    rows,
    cols,
    K: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Does a program's rows again where `doubt` (R, L) is not 0: all at once if TOGETHER, else one after the other."""
    ROWS: tl.constexpr = doubt.shape[0]
    if tl.max(tl.max(doubt, axis=1), axis=0) > 0:
        tl.debug_barrier()  # other threads have written to the same addresses
        if TOGETHER:
            row = first_row + tl.arange(0, ROWS)[:, None]
            row_pointers = pointers_of(tl.minimum(row, rows - 1), pointers, strides, K, SIDE_BY_SIDE)
            wanted = (row < rows) & (greatest(doubt) > 0)
            do_again(row_pointers, strides, wanted, cols, K, DTYPE, LARGEST, BLOCK_COLS, BLOCK_K)
        else:
            doubtful = tl.max(doubt, axis=1)
            for r in range(tl.minimum(ROWS, rows - first_row)):
                if tl.max(tl.where(tl.arange(0, ROWS) == r, doubtful, 0), axis=0) > 0:
                    row = first_row + r + tl.zeros((1, 1), tl.int32)
                    row_pointers = pointers_of(row, pointers, strides, K, SIDE_BY_SIDE)
                    do_again(row_pointers, strides, row < rows, cols, K, DTYPE, LARGEST, BLOCK_COLS, BLOCK_K)
