"""Top-k of rows in registers: k times the maximum, each time masking out what was found."""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.order import order_key


@triton.jit
def best_columns(key, present, column, k, BLOCK_K: tl.constexpr, LOWEST: tl.constexpr, FULL_RANGE: tl.constexpr):
    """The columns of the k best of every row, (R, BLOCK_K) int32, in order, lowest column first among equals.

    `key` are (R, C) keys, `present` (R, C) tells which are elements', `column` is (1, C). LOWEST: a key at or below
    every element's. FULL_RANGE: elements may have it, so that what is found or absent is told by its position instead.
    """
    # two reductions of 32 bits, key then column, cost less than one of 64
    key = tl.where(present, key, LOWEST)
    absent = 0x7FFFFFFF
    position = tl.where(present, column, absent)
    slot = tl.arange(0, BLOCK_K)[None, :]
    found = tl.zeros((key.shape[0], BLOCK_K), tl.int32)
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
    indices,  # pointer to int64, or to int32 if indices_only
    rows,
    cols,
    k,
    row_stride,  # in elements
    smallest,
    signed,  # integers have a sign
    infinity,  # bits of infinity of floats up to 32 bits
    indices_only,  # int32 indices alone are written, `values` is null
    BLOCK_ROWS: tl.constexpr,  # rows of a program, R
    BLOCK_COLS: tl.constexpr,  # a power of two, C: the longest row
    BLOCK_K: tl.constexpr,  # a power of two: the largest k
    BITS: tl.constexpr,  # of an element
    FLOAT: tl.constexpr,
):
    """(rows, cols) elements, the columns of a row adjacent, to sorted (rows, k)."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)  # (R,)
    column = tl.arange(0, BLOCK_COLS)[None, :]  # (1, C)
    slot = tl.arange(0, BLOCK_K)[None, :]  # (1, BLOCK_K)
    row_in = (row < rows)[:, None]
    start = x + row.to(tl.int64)[:, None] * row_stride  # (R, 1)
    present = row_in & (column < cols)

    bits = tl.load(start + column, mask=present, other=0)  # (R, C)
    if BITS == 64:
        key = order_key(bits, smallest, signed, 0x7FF0000000000000, BITS, FLOAT)
        found = best_columns(key, present, column, k, BLOCK_K, -(1 << 63), not FLOAT)
    else:
        key = order_key(bits.to(tl.int32), smallest, signed, infinity, BITS, FLOAT)
        found = best_columns(key, present, column, k, BLOCK_K, -(1 << 31), BITS == 32 and not FLOAT)

    wanted = row_in & (slot < k)
    out = row.to(tl.int64)[:, None] * k + slot  # (R, BLOCK_K)
    if indices_only:
        tl.store(indices.to(tl.pointer_type(tl.int32), bitcast=True) + out, found, mask=wanted)
    else:
        element = tl.load(start + found, mask=wanted, other=0)  # the bits of x, NaNs included
        tl.store(values + out, element, mask=wanted)
        tl.store(indices + out, found.to(tl.int64), mask=wanted)
