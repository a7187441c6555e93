"""Top-k of rows in registers: k times the maximum, each time masking out what was found."""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.order import order_key


@triton.jit
def best_columns(
    bits,
    present,
    column,
    k,
    BLOCK_K: tl.constexpr,
    WIDE: tl.constexpr,
    LOWEST: tl.constexpr,
    FULL_RANGE: tl.constexpr,
    FLOAT_INF: tl.constexpr,
    SIGN_SHIFT: tl.constexpr,
    LARGEST: tl.constexpr,
):
    """The columns of the k best of every row, (R, BLOCK_K) int32, in order, lowest column first among equals.

    `bits` are (R, C) integers, `present` (R, C) tells which are elements, `column` is (1, C). WIDE: keys have 64 bits.
    LOWEST: a key at or below every element's. FULL_RANGE: elements may equal LOWEST, so that what is found or absent
    is told by its position instead. FLOAT_INF, SIGN_SHIFT: see `order_key`.
    """
    # two reductions of 32 bits, key then column, cost less than one of 64
    key = order_key(bits.to(tl.int64) if WIDE else bits.to(tl.int32), FLOAT_INF, SIGN_SHIFT, LARGEST)
    key = tl.where(present, key, LOWEST)
    absent = 0x7FFFFFFF
    position = tl.where(present, column, absent)
    slot = tl.arange(0, BLOCK_K)[None, :]
    found = tl.zeros((bits.shape[0], BLOCK_K), tl.int32)
    for i in range(k):
        best = tl.max(key, axis=1)[:, None]
        at = tl.min(tl.where(key == best, position, absent), axis=1)[:, None]
        found = tl.where(slot == i, at, found)
        key = tl.where(position == at, LOWEST, key)
        if FULL_RANGE:
            position = tl.where(position == at, absent, position)
    return found


@triton.jit
def masked_argmax_rows(
    x,  # pointer to integers as wide as an element
    values,  # pointer to integers as wide as an element
    indices,  # pointer to int64, or to int32 if INDICES_ONLY
    rows,
    cols,
    k,
    row_stride,  # in elements
    BLOCK_ROWS: tl.constexpr,  # rows of a program, R
    BLOCK_COLS: tl.constexpr,  # cols rounded up to a power of two, C
    BLOCK_K: tl.constexpr,  # k rounded up to a power of two
    WIDE: tl.constexpr,  # keys have 64 bits
    LOWEST: tl.constexpr,  # the lowest key: of 64 bits if WIDE, else of 32
    FULL_RANGE: tl.constexpr,  # elements may have the lowest key
    FLOAT_INF: tl.constexpr,  # bits of infinity, 0 for integers
    SIGN_SHIFT: tl.constexpr,  # position of an element's sign bit
    LARGEST: tl.constexpr,
    INDICES_ONLY: tl.constexpr,  # int32 indices alone are written, `values` is null
):
    """(rows, cols) elements, the columns of a row adjacent, to sorted (rows, k)."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)  # (R,)
    column = tl.arange(0, BLOCK_COLS)[None, :]  # (1, C)
    slot = tl.arange(0, BLOCK_K)[None, :]  # (1, BLOCK_K)
    row_in = (row < rows)[:, None]
    start = x + row.to(tl.int64)[:, None] * row_stride  # (R, 1)
    present = row_in & (column < cols)

    bits = tl.load(start + column, mask=present, other=0)  # (R, C)
    found = best_columns(bits, present, column, k, BLOCK_K, WIDE, LOWEST, FULL_RANGE, FLOAT_INF, SIGN_SHIFT, LARGEST)

    wanted = row_in & (slot < k)
    out = row.to(tl.int64)[:, None] * k + slot  # (R, BLOCK_K)
    if not INDICES_ONLY:
        tl.store(
            values + out, tl.load(start + found, mask=wanted, other=0), mask=wanted
        )  # the bits of x, NaNs included
    tl.store(indices + out, found.to(indices.dtype.element_ty), mask=wanted)
