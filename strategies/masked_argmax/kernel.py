"""Top-k of short rows: k times the maximum, each time masking out what was found."""

import triton
import triton.language as tl


@triton.jit
def order_key(bits, FLOAT_INF: tl.constexpr, SIGN_SHIFT: tl.constexpr, LARGEST: tl.constexpr):
    """Bits of any dtype, sign-extended, to signed integers in torch's order, NaN above everything.

    FLOAT_INF is the bit pattern of infinity, 0 for integers.
    """
    key = bits
    if FLOAT_INF > 0:
        magnitude = bits & ((1 << SIGN_SHIFT) - 1)
        key = tl.where(magnitude > FLOAT_INF, FLOAT_INF + 1, bits ^ ((bits >> SIGN_SHIFT) & ((1 << SIGN_SHIFT) - 1)))
    if not LARGEST:
        key = -1 - key
    return key


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
    """(rows, cols) to sorted (rows, k), lowest index first among equals; x and values are seen as integers.

    BLOCK_ROWS rows a program, each whole in registers. Two 32-bit reductions, key then column, cost less than one of
    64 bits. WIDE: 64-bit keys. LOWEST: a key at or below every element's. FULL_RANGE: elements may equal LOWEST, so
    that a found or absent column is told by its position instead.
    """
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)  # (R,)
    column = tl.arange(0, BLOCK_COLS)[None, :]  # (1, C)
    slot = tl.arange(0, BLOCK_K)[None, :]  # (1, K)
    row_in = (row < rows)[:, None]
    start = x + row.to(tl.int64)[:, None] * row_stride  # (R, 1)
    present = row_in & (column < cols)

    bits = tl.load(start + column, mask=present, other=0)  # (R, C)
    key = order_key(bits.to(tl.int64) if WIDE else bits.to(tl.int32), FLOAT_INF, SIGN_SHIFT, LARGEST)
    key = tl.where(present, key, LOWEST)
    absent = 0x7FFFFFFF
    position = tl.where(present, column, absent)

    found = tl.zeros((BLOCK_ROWS, BLOCK_K), tl.int32)
    for i in range(k):
        best = tl.max(key, axis=1)[:, None]
        at = tl.min(tl.where(key == best, position, absent), axis=1)[:, None]
        found = tl.where(slot == i, at, found)
        key = tl.where(position == at, LOWEST, key)
        if FULL_RANGE:
            position = tl.where(position == at, absent, position)

    wanted = row_in & (slot < k)
    out = row.to(tl.int64)[:, None] * k + slot  # (R, K)
    tl.store(values + out, tl.load(start + found, mask=wanted, other=0), mask=wanted)  # the bits of x, NaNs included
    tl.store(indices + out, found.to(tl.int64), mask=wanted)
