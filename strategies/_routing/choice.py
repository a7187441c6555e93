"""Routing by scores with a bias, and by groups: a row in the registers of a warp, k rounds of maximum and mask.

Experts are at places: of GROUPS groups of SIZE places each, both powers of two, the first `n_group` and of each the
first `group_size` are experts'. In shapes R is ROWS, G is GROUPS, C is GROUPS * SIZE.
"""

import triton
import triton.language as tl

from autotopk.strategies._routing.weights import greatest_number, scores_of, weights_of, write_weights
from autotopk.strategies._short_rows.addresses import wide
from autotopk.strategies._short_rows.masking import best_columns
from autotopk.strategies._short_rows.networks import merged_2
from autotopk.strategies._short_rows.order import LOWEST, float_key, order_key
from autotopk.strategies._short_rows.packing import float32_bits, worst


@triton.jit
def choice_key(number):
    """Keys of float32 of any shape in torch's order, all above LOWEST."""
    return order_key(number.to(tl.int32, bitcast=True), 0, 0, 0x7F800000, 32, True)


@triton.jit
def column_of(place, group_size, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    """The expert at a place, of any shape."""
    if GROUPS == 1:
        return place
    else:
        return place // SIZE * group_size + place % SIZE


@triton.jit
def best_two(key, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    """Keys (R, C) to the keys (R, G) of the sum of the best two of every group, or of its only one; LOWEST of none."""
    grouped = tl.reshape(key, (key.shape[0], GROUPS, SIZE))
    first, second = tl.reduce((grouped, tl.full(grouped.shape, LOWEST, tl.int32)), 2, merged_2)
    alone = second == LOWEST
    second = float_key(second).to(tl.float32, bitcast=True)
    total = choice_key(float_key(first).to(tl.float32, bitcast=True) + tl.where(alone, 0.0, second))
    return tl.where(first == LOWEST, LOWEST, total)


@triton.jit
def in_best_groups(key, topk_group, BIASED: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    """Whether keys (R, C) are of one of the best groups, the lower ones of equals."""
    if BIASED:
        best = best_two(key, GROUPS, SIZE)
    else:
        best = tl.max(tl.reshape(key, (key.shape[0], GROUPS, SIZE)), axis=2)
    group = tl.arange(0, GROUPS)[None, :]
    kept = tl.zeros_like(best)
    for _ in range(topk_group):
        top = tl.max(best, axis=1)[:, None]
        at = tl.min(tl.where(best == top, group, GROUPS), axis=1)[:, None]
        kept = tl.where(group == at, 1, kept)
        best = tl.where(group == at, LOWEST, best)
    shape: tl.constexpr = (key.shape[0], GROUPS, SIZE)
    return tl.reshape(tl.broadcast_to(kept[:, :, None], shape), key.shape) > 0


@triton.jit
def softmax_base(number, present):
    """(R, C) logits to the greatest of every row and the sum of exp(x - greatest), (R, 1) both."""
    base = greatest_number(number, present)
    return base, tl.sum(tl.where(present, tl.exp(number - base), 0.0), axis=1)[:, None]


@triton.jit
def route_by_rounds(
    pointers,
    sizes,
    rule,
    grouping,
    row,
    wanted,
    GROUPS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BIASED: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Routes the rows (R, 1) that are `wanted`, and writes their results; for the arguments see the kernel."""
    x, values, indices, bias, narrow_indices = pointers
    cols, k, row_stride = sizes
    scoring, renormalize, _ = rule
    group_size, n_group, topk_group = grouping
    place = tl.arange(0, GROUPS * SIZE)[None, :]  # (1, C)
    column = column_of(place, group_size, GROUPS, SIZE)
    is_expert = column < cols
    if GROUPS > 1:
        is_expert = (place // SIZE < n_group) & (place % SIZE < group_size)
    start = x + row.to(tl.int64) * row_stride
    present = wanted & is_expert
    bits = tl.load(start + column, mask=present, other=worst(DTYPE, True, False))
    number = float32_bits(bits, DTYPE).to(tl.float32, bitcast=True)  # (R, C)

    base = tl.zeros(row.shape, tl.float32)
    total = base + 1.0
    if scoring == 0:
        if BIASED or renormalize == 0:
            base, total = softmax_base(number, present)
    choice = number
    if BIASED:
        choice = scores_of(number, base, scoring) / total
        choice += tl.load(bias + column, mask=is_expert, other=0).to(tl.float32, bitcast=True)
    key = tl.where(present, choice_key(choice), LOWEST)
    if GROUPS > 1:
        present = present & in_best_groups(key, topk_group, BIASED, GROUPS, SIZE)
    found = best_columns(key, present, place, k, BLOCK_K, LOWEST, False)  # (R, BLOCK_K)

    slot = tl.arange(0, BLOCK_K)[None, :]
    asked = wanted & (slot < k)
    columns = column_of(found, group_size, GROUPS, SIZE)
    bits = tl.load(start + columns, mask=asked, other=worst(DTYPE, True, False))
    chosen = float32_bits(bits, DTYPE).to(tl.float32, bitcast=True)
    weights = weights_of((chosen,), (asked,), rule, base, total)
    ranks = tl.broadcast_to(slot, chosen.shape)
    write_weights((values, indices, narrow_indices, wide(row) * wide(k), wanted), (ranks,), (columns,), weights, k)


@triton.jit
def masked_route_rows(
    x,  # pointer to integers as wide as an element
    values,  # pointer to the bits of weights, float32
    indices,  # pointer to int64, or to int32 if narrow
    bias,  # pointer to the bits of float32; null unless BIASED
    scale,  # bits of a float32
    rows,
    cols,
    k,
    row_stride,  # in elements
    scoring,
    renormalize,
    group_size,
    n_group,
    topk_group,
    narrow_indices,  # indices are int32
    ROWS: tl.constexpr,  # rows of a program
    GROUPS: tl.constexpr,  # a power of two: the most groups; 1 where none is left out
    SIZE: tl.constexpr,  # a power of two: the most experts of a group
    BLOCK_K: tl.constexpr,  # a power of two: the largest k
    BIASED: tl.constexpr,
    DTYPE: tl.constexpr,  # "float32", "bfloat16" or "float16"
):
    """(rows, cols) logits, the columns of a row adjacent, to the weights and indices (rows, k) of the chosen."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]  # (R, 1)
    rule = (scoring, renormalize, scale.to(tl.float32, bitcast=True))
    route_by_rounds(
        (x, values, indices, bias, narrow_indices), (cols, k, row_stride), rule, (group_size, n_group, topk_group),
        row, row < rows, GROUPS, SIZE, BLOCK_K, BIASED, DTYPE,
    )  # fmt: skip
