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
    """(R, C) bits to the (R, BLOCK_K) columns of the k best, in order, lowest column first among equals.

    Two 32-bit reductions, key then column, cost less than one of 64 bits. WIDE: 64-bit keys. LOWEST: a key at or
    below every element's. FULL_RANGE: elements may equal LOWEST, so that a found or absent column is told by its
    position instead.
    """
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
    x,
    values,
    indices,
    rows,
    cols,
    k,
    row_stride,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WIDE: tl.constexpr,
    LOWEST: tl.constexpr,
    FULL_RANGE: tl.constexpr,
    FLOAT_INF: tl.constexpr,
    SIGN_SHIFT: tl.constexpr,
    LARGEST: tl.constexpr,
):
    """(rows, cols) to sorted (rows, k); x and values are seen as integers. BLOCK_ROWS rows a program."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)  # (R,)
    column = tl.arange(0, BLOCK_COLS)[None, :]  # (1, C)
    slot = tl.arange(0, BLOCK_K)[None, :]  # (1, K)
    row_in = (row < rows)[:, None]
    start = x + row.to(tl.int64)[:, None] * row_stride  # (R, 1)
    present = row_in & (column < cols)

    bits = tl.load(start + column, mask=present, other=0)  # (R, C)
    found = best_columns(bits, present, column, k, BLOCK_K, WIDE, LOWEST, FULL_RANGE, FLOAT_INF, SIGN_SHIFT, LARGEST)

    wanted = row_in & (slot < k)
    out = row.to(tl.int64)[:, None] * k + slot  # (R, K)
    tl.store(values + out, tl.load(start + found, mask=wanted, other=0), mask=wanted)  # the bits of x, NaNs included
    tl.store(indices + out, found.to(tl.int64), mask=wanted)
