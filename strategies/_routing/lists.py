"""Routing by scores with a bias, and by groups, with the lists of `_short_rows.lanes`.

What lanes pack into words is not what they read but what is chosen by: scores with the bias, minus infinity for
experts of groups left out. What words cannot tell is looked up as there, logit and bias; rows in doubt are done again
by rounds (`choice`). Groups are GROUP adjacent experts, a power of two that divides what all lanes load at once.

In shapes R is ROWS, the rows of a program, L is LANES, S is LANES * VECTOR, the columns of a part.
"""

import triton
import triton.language as tl

from autotopk.strategies._routing.choice import best_two, choice_key, route_by_rounds
from autotopk.strategies._routing.weights import greatest_number, scores_of, weights_of, write_weights
from autotopk.strategies._short_rows.addresses import out_start, row_start
from autotopk.strategies._short_rows.again import power_of_two
from autotopk.strategies._short_rows.lanes import may_end, wanted
from autotopk.strategies._short_rows.merging import greatest, merged_by_rounds, sorted_lists
from autotopk.strategies._short_rows.order import LOWEST
from autotopk.strategies._short_rows.packing import float32_bits
from autotopk.strategies._short_rows.reading import read, words_of
from autotopk.strategies._short_rows.results import held, looked_up, outside
from autotopk.strategies._short_rows.settling import doubts, neighbours_ordered

MINUS_INFINITY = tl.constexpr(float("-inf"))


@triton.jit
def numbers_of(elements, DTYPE: tl.constexpr):
    """Bits of elements, a tuple of tensors of any shape, to float32."""
    numbers = ()
    for j in tl.static_range(0, len(elements)):
        numbers = numbers + (float32_bits(elements[j], DTYPE).to(tl.float32, bitcast=True),)
    return numbers


@triton.jit
def bits_of(numbers):
    """The bits of float32, a tuple of tensors of any shape."""
    bits = ()
    for j in tl.static_range(0, len(numbers)):
        bits = bits + (numbers[j].to(tl.int32, bitcast=True),)
    return bits


@triton.jit
def rest_of_softmax(parts, needed):
    """The greatest logit of every row and the sum of exp(x - greatest), (R, 1), where they are needed; else 0 and 1."""
    base = tl.zeros((parts[0].shape[0], 1), tl.float32)
    total = base + 1.0
    if needed:
        base = greatest_number(parts[0], parts[0] == parts[0])
        for j in tl.static_range(1, len(parts)):
            base = tl.maximum(base, greatest_number(parts[j], parts[j] == parts[j]))
        total = tl.sum(tl.exp(parts[0] - base), axis=1)[:, None]
        for j in tl.static_range(1, len(parts)):
            total += tl.sum(tl.exp(parts[j] - base), axis=1)[:, None]
    return base, total


@triton.jit
def with_bias(numbers, base, total, scoring, bias, cols):
    """Logits, a tuple of (R, S), to their scores with the bias; minus infinity outside of the row."""
    STEP: tl.constexpr = numbers[0].shape[1]
    parts = ()
    for j in tl.static_range(0, len(numbers)):
        column = tl.arange(0, STEP)[None, :] + j * STEP
        addend = tl.load(bias + column, mask=column < cols, other=-0x800000).to(tl.float32, bitcast=True)
        parts = parts + (scores_of(numbers[j], base, scoring) / total + addend,)
    return parts


@triton.jit
def chosen_by(
    elements,
    columns,
    cols,
    base,
    total,
    scoring,
    bias,
    LANES: tl.constexpr,
    BIASED: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Elements looked up, tuples of (R * L,), as logits (R, L), and the bits of what they were chosen by, (R * L,)."""
    chosen = ()
    bits = ()
    numbers = numbers_of(elements, DTYPE)
    for t in tl.static_range(0, len(elements)):
        decisive = numbers[t]
        chosen = chosen + (tl.reshape(decisive, (decisive.shape[0] // LANES, LANES)),)
        if BIASED:
            inside = outside(columns[t], cols) == 0
            addend = tl.load(bias + columns[t], mask=inside, other=-0x800000).to(tl.float32, bitcast=True)
            score = tl.reshape(scores_of(chosen[t], base, scoring) / total, decisive.shape)
            decisive = tl.where(inside, score + addend, MINUS_INFINITY)
        bits = bits + (decisive.to(tl.int32, bitcast=True),)
    return chosen, bits


@triton.jit
def of_best_groups(parts, topk_group, BIASED: tl.constexpr, GROUP: tl.constexpr):
    """Parts, a tuple of (R, S), with minus infinity for experts of all but the best groups, the lower of equals."""
    GROUPS: tl.constexpr = parts[0].shape[1] // GROUP
    best = ()
    kept = ()
    for j in tl.static_range(0, len(parts)):
        key = choice_key(parts[j])
        if BIASED:
            best = best + (best_two(key, GROUPS, GROUP),)
        else:
            best = best + (tl.max(tl.reshape(key, (key.shape[0], GROUPS, GROUP)), axis=2),)
        kept = kept + (tl.zeros_like(best[j]),)
    group = tl.arange(0, GROUPS)[None, :]
    for _ in range(topk_group):
        top = best[0]
        for j in tl.static_range(1, len(parts)):
            top = tl.maximum(top, best[j])
        top = greatest(top)
        at = tl.where(best[0] == top, group, GROUPS * len(parts))
        for j in tl.static_range(1, len(parts)):
            at = tl.minimum(at, tl.where(best[j] == top, group + j * GROUPS, GROUPS * len(parts)))
        at = tl.min(at, axis=1)[:, None]
        now_kept = ()
        rest = ()
        for j in tl.static_range(0, len(parts)):
            now_kept = now_kept + (tl.where(group + j * GROUPS == at, 1, kept[j]),)
            rest = rest + (tl.where(group + j * GROUPS == at, LOWEST, best[j]),)
        kept = now_kept
        best = rest
    left = ()
    for j in tl.static_range(0, len(parts)):
        of_expert = tl.broadcast_to(kept[j][:, :, None], (kept[j].shape[0], GROUPS, GROUP))
        left = left + (tl.where(tl.reshape(of_expert, parts[j].shape) > 0, parts[j], MINUS_INFINITY),)
    return left


@triton.jit
def lane_choice_rows(
    x,  # pointer to integers as wide as an element
    values,  # pointer to the bits of weights, float32
    indices,  # pointer to int64, or to int32 if narrow_indices
    bias,  # pointer to the bits of float32; null unless BIASED
    scale,  # bits of a float32
    rows,
    cols,
    k,
    row_stride,
    scoring,
    renormalize,
    group_size,
    n_group,
    topk_group,
    narrow_indices,
    ROWS: tl.constexpr,  # these are as in `_short_rows.lanes.lane_merge_rows`
    LANES: tl.constexpr,
    VECTORS: tl.constexpr,
    VECTOR: tl.constexpr,
    INSIDE: tl.constexpr,
    SPAN: tl.constexpr,
    DEPTH: tl.constexpr,
    ROUNDS: tl.constexpr,
    SLOTS: tl.constexpr,
    GROUP: tl.constexpr,  # experts of a group; 0 where none is left out
    BIASED: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """(rows, cols) logits, the columns of a row adjacent, to the weights and indices (rows, k) of the chosen."""
    first_row = tl.program_id(0) * ROWS
    row = first_row + tl.arange(0, ROWS)[:, None]  # (R, 1)
    lane = tl.arange(0, LANES)[None, :]  # (1, L)
    begin = row_start(tl.minimum(row, rows - 1), row_stride, 1, False)
    loaded = read(
        x, begin, tl.zeros_like(row), cols, 1, LANES, VECTORS, VECTOR, INSIDE, DTYPE, True, False, False, False
    )
    numbers = numbers_of(loaded, DTYPE)
    base, total = rest_of_softmax(numbers, (scoring == 0) & (BIASED | (renormalize == 0)))
    parts = numbers
    if BIASED:
        parts = with_bias(numbers, base, total, scoring, bias, cols)
    if GROUP > 0:
        parts = of_best_groups(parts, topk_group, BIASED, GROUP)
    words = words_of(bits_of(parts), rows, LANES, VECTOR, INSIDE, SPAN, "float32", True, False, False)
    lists = sorted_lists(words, lane, LANES, VECTOR, DEPTH)
    taken = wanted(k, cols, ROUNDS, SLOTS, LANES, "float32")
    found, following, hidden = merged_by_rounds(lists, lane, taken, ROUNDS, SLOTS, LANES)

    thread = tl.arange(0, ROWS * LANES)  # what follows has one element a thread, flat (R * L,) or (R, L)
    flat_row = first_row + thread // LANES
    flat_start = row_start(tl.minimum(flat_row, rows - 1), row_stride, 1, False)
    columns, _ = held(found, thread, 0, SPAN, "float32", True)
    MAY_END: tl.constexpr = may_end(DEPTH, VECTORS * VECTOR, 0, ROUNDS, SLOTS, LANES, "float32")
    doubt = doubts(found, columns, hidden, thread, k, cols, LANES, MAY_END, "float32", True)
    elements = looked_up(x + flat_start, columns, cols, 1, True)
    chosen, bits = chosen_by(elements, columns, cols, base, total, scoring, bias, LANES, BIASED, DTYPE)
    ranks, doubt = neighbours_ordered(bits, found, following, doubt, lane, k, taken, SPAN, True, LANES)

    # all rows are written before it is known that some must be done again: the others do not wait
    asked = ()
    for t in tl.static_range(0, SLOTS):
        asked = asked + (tl.reshape(ranks[t] < k, doubt.shape),)
    rule = (scoring, renormalize, scale.to(tl.float32, bitcast=True))
    weights = weights_of(chosen, asked, rule, base, total)
    flat = ()
    for t in tl.static_range(0, SLOTS):
        flat = flat + (tl.reshape(weights[t], thread.shape),)
    out = out_start(flat_row, 1, k, False)
    write_weights((values, indices, narrow_indices, out, flat_row < rows), ranks, columns, flat, k)
    in_doubt = greatest(doubt)
    if tl.max(in_doubt) > 0:
        tl.debug_barrier()
        PLACES: tl.constexpr = power_of_two(LANES * VECTORS * VECTOR)
        route_by_rounds(
            (x, values, indices, bias, narrow_indices), (cols, k, row_stride), rule,
            (group_size, n_group, topk_group), row, (in_doubt > 0) & (row < rows), PLACES // GROUP if GROUP else 1,
            GROUP or PLACES, power_of_two(SLOTS * LANES), BIASED, DTYPE,
        )  # fmt: skip
