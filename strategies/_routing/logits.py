"""Routing by the logits themselves: `_short_rows.lanes` finds the best k, and what it would write becomes weights.

Every scoring grows with the logit, so that the best logits have the best scores. Weights that are renormalized need
nothing of the row but the k; only those of softmax that are not need the sum over the row, which is read once more.

In shapes R is ROWS, the rows of a program, L is LANES, and a program has R * L threads.
"""

import triton
import triton.language as tl

from autotopk.strategies._routing.weights import greatest_number, weights_of, write_weights
from autotopk.strategies._short_rows.addresses import aligned, narrow, out_start, row_start, words_from
from autotopk.strategies._short_rows.again import (
    best_keys,
    depth,
    elements_of_part,
    kth_key,
    low_of_word,
    part_size,
    ranked,
)
from autotopk.strategies._short_rows.lanes import may_end, most, wanted
from autotopk.strategies._short_rows.merging import greatest, merged_by_rounds, merged_by_tree, sorted_lists
from autotopk.strategies._short_rows.packing import float32_bits, holds_all
from autotopk.strategies._short_rows.reading import read, words_of
from autotopk.strategies._short_rows.results import held, looked_up, slots_of
from autotopk.strategies._short_rows.settling import doubts, neighbours_alike, neighbours_ordered


@triton.jit
def row_total(
    memory,
    base,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    DTYPE: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """The sum of exp(x - base) over every row, (R, 1); `memory` is as in `again`."""
    PART: tl.constexpr = part_size(SHARE, VECTOR)
    total = tl.zeros((base.shape[0], LANES), tl.float32)
    for part in range((SHARE + PART - 1) // PART):
        bits = elements_of_part(memory, part, LANES, SHARE, VECTOR, DTYPE, True, PAIRS)
        for i in tl.static_range(0, PART):
            total += tl.exp(bits[i].to(tl.float32, bitcast=True) - base)  # 0 outside of the row
    return tl.sum(total, axis=1)[:, None]


@triton.jit
def logit_weights(
    bits,
    ranks,
    rule,
    memory,
    k,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    DTYPE: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Weights of the best elements, given by bits and ranks, tuples of tensors (R * L,) as the result."""
    scoring, renormalize, _ = rule
    chosen = ()
    asked = ()
    for t in tl.static_range(0, len(bits)):
        number = float32_bits(bits[t], DTYPE).to(tl.float32, bitcast=True)
        chosen = chosen + (tl.reshape(number, (bits[t].shape[0] // LANES, LANES)),)
        asked = asked + (tl.reshape(ranks[t] < k, (bits[t].shape[0] // LANES, LANES)),)
    base = tl.zeros((bits[0].shape[0] // LANES, 1), tl.float32)
    total = base + 1.0
    if scoring == 0:
        if renormalize == 0:
            base = greatest_number(chosen[0], asked[0])  # the best of all is in one of the first LANES slots
            total = row_total(memory, base, LANES, SHARE, VECTOR, DTYPE, PAIRS)
    weights = weights_of(chosen, asked, rule, base, total)
    flat = ()
    for t in tl.static_range(0, len(bits)):
        flat = flat + (tl.reshape(weights[t], bits[t].shape),)
    return flat


@triton.jit
def route_again(
    memory,
    flat_from,
    outputs,
    rule,
    taken,
    lane,
    thread,
    k,
    rounds,
    MOST: tl.constexpr,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    SPAN: tl.constexpr,
    DEPTH: tl.constexpr,
    DTYPE: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """`again.do_again` of the largest elements, with weights written in place of the elements."""
    _, cols, apart = memory
    WHOLE: tl.constexpr = holds_all(DTYPE)
    low = tl.zeros((taken[0].shape[0], 1), tl.int32)
    if not WHOLE:
        low = low_of_word(kth_key(memory, taken, lane, k, LANES, SHARE, VECTOR, DTYPE, True), SPAN, DTYPE, True)
    found = best_keys(
        memory, lane, low, k, rounds, MOST, depth(DEPTH), LANES, SHARE, VECTOR, SPAN, DTYPE, True, PAIRS,
        not WHOLE and DEPTH < min(MOST, SHARE),
    )  # fmt: skip
    slots = slots_of(thread, len(found), LANES)
    columns = ()
    for t in tl.static_range(0, len(found)):
        columns = columns + (tl.reshape(SPAN - 1 - (found[t] & (SPAN - 1)), thread.shape),)
    bits = looked_up(flat_from, columns, cols, apart, True)
    ranks = slots if WHOLE else ranked(bits, lane, k, rounds, True, LANES)
    weights = logit_weights(bits, ranks, rule, memory, k, LANES, SHARE, VECTOR, DTYPE, PAIRS)
    write_weights(outputs, ranks, columns, weights, k)


@triton.jit
def lane_route_rows(
    x,  # pointer to integers as wide as an element; if PAIRS, to int32
    values,  # pointer to the bits of weights, float32
    indices,  # pointer to int64, or to int32 if narrow
    scale,  # bits of a float32
    rows,
    cols,
    k,
    row_stride,
    scoring,
    renormalize,
    narrow_indices,  # indices are int32
    ROWS: tl.constexpr,  # these are as in `lanes.lane_merge_rows`
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
    PAIRS: tl.constexpr,
):
    """(rows, cols) logits, the columns of a row adjacent, to the weights and indices (rows, k) of the best."""
    first_row = tl.program_id(0) * ROWS
    row = first_row + tl.arange(0, ROWS)[:, None]  # (R, 1)
    lane = tl.arange(0, LANES)[None, :]  # (1, L)
    begin = row_start(tl.minimum(row, rows - 1), row_stride, 1, False)
    start, skew = aligned(begin, VECTOR, False)
    loaded = read(x, start, skew, cols, 1, LANES, VECTORS, VECTOR, INSIDE, DTYPE, True, PAIRS, False, False)
    words = words_of(loaded, rows, LANES, VECTOR, INSIDE, SPAN, DTYPE, True, PAIRS, False)
    lists = sorted_lists(words, lane, LANES, VECTOR, DEPTH)
    taken = wanted(k, cols, ROUNDS, SLOTS, LANES, DTYPE)
    if TREE:
        top, found, following, hidden = merged_by_tree(lists, lane, k, TREE, SLOTS, LANES)
    else:
        found, following, hidden = merged_by_rounds(lists, lane, taken, ROUNDS, SLOTS, LANES)

    thread = tl.arange(0, ROWS * LANES)  # what follows has, flat, one element a thread: (R * L,)
    flat_row = first_row + thread // LANES
    flat_start = row_start(tl.minimum(flat_row, rows - 1), row_stride, 1, False)
    flat_from = narrow(x, PAIRS) + flat_start
    ranks = slots_of(thread, SLOTS, LANES)
    columns, bits = held(found, thread, 0, SPAN, DTYPE, True)
    MOST: tl.constexpr = most(TREE, ROUNDS, SLOTS, LANES, DTYPE)
    MAY_END: tl.constexpr = may_end(DEPTH, VECTORS * VECTOR, TREE, ROUNDS, SLOTS, LANES, DTYPE)
    doubt = doubts(found, columns, hidden, thread, k, cols, LANES, MAY_END, DTYPE, True)
    if not holds_all(DTYPE):
        bits = looked_up(flat_from, columns, cols, 1, True)
        if TREE:
            doubt = neighbours_alike(top, following, doubt, k, SPAN)
        else:
            ranks, doubt = neighbours_ordered(bits, found, following, doubt, lane, k, taken, SPAN, True, LANES)

    # all rows are written before it is known that some must be done again: the others do not wait
    memory = (words_from(x, begin, PAIRS), cols, 1)
    rule = (scoring, renormalize, scale.to(tl.float32, bitcast=True))
    weights = logit_weights(bits, ranks, rule, memory, k, LANES, VECTORS * VECTOR, VECTOR, DTYPE, PAIRS)
    out = out_start(flat_row, 1, k, False)
    write_weights((values, indices, narrow_indices, out, flat_row < rows), ranks, columns, weights, k)
    if tl.max(tl.max(doubt, axis=1), axis=0) > 0:
        doubtful = tl.reshape(tl.broadcast_to(greatest(doubt) > 0, doubt.shape), thread.shape)
        outputs = (values, indices, narrow_indices, out, doubtful & (flat_row < rows))
        route_again(
            memory, flat_from, outputs, rule, found, lane, thread, k, MOST if TREE + ROUNDS > 0 else k, MOST, LANES,
            VECTORS * VECTOR, VECTOR, SPAN, DEPTH, DTYPE, PAIRS,
        )  # fmt: skip
