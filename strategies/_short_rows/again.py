"""Rows done again where words left doubt: keys that tell all, whichever the elements, and lists that never end.

Of 16-bit elements a key holds the element, in torch's order, and its place. Of float32 it holds the place and how far
the element is above the low end of a window, in steps between neighbouring floats; what is beyond either end of the
window counts as at that end. A window that begins just below the k-th element, and ends above all whose words are like
the k-th's, makes the keys of the best k greater than all others'. Those beyond its upper end are fewer than k; all that
is left to do is to put them in order. Where a list has ended too soon the k-th word may be less than the k-th element's
and k or more beyond the window that it gave: then the row is looked through once in coarse steps, for a better window.

Lists are made anew, from what is left, before one of them can end.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.addresses import narrow
from autotopk.strategies._short_rows.merging import empty, greatest, popped
from autotopk.strategies._short_rows.networks import best_in_order, merged
from autotopk.strategies._short_rows.order import LOWEST, float_order
from autotopk.strategies._short_rows.packing import float32_bits, floor_key, free_bits, holds_all, infinity
from autotopk.strategies._short_rows.reading import bits_of_pairs, columns
from autotopk.strategies._short_rows.results import looked_up, slots_of, write

GREATEST = tl.constexpr(0x7FFFFFFF)
LONGEST = tl.constexpr(16)
"""Longest list of a lane that may have more elements."""
PARTS = tl.constexpr(16)
"""Most elements of a lane that are read together, in 8 loads at most."""


@triton.constexpr_function
def depth(SHARE, K):
    """Length of the lists of lanes that have up to SHARE elements: a power of two."""
    return min(LONGEST, 1 << (max(K, 4) - 1).bit_length(), 1 << (SHARE - 1).bit_length())


@triton.constexpr_function
def rounds(SHARE, K):
    """How many are taken off before lists are made anew, so that none can end."""
    longest = K if depth(SHARE, K) >= SHARE else depth(SHARE, K)
    parts = -(-K // longest)
    return -(-K // parts)


@triton.constexpr_function
def steps(SPAN):
    """How many steps above its low end a window ends: with a place they fill 31 bits."""
    return (1 << 31) // SPAN - 1


@triton.constexpr_function
def coarse_bits(SPAN):
    """Last bits that a coarse step lacks: with a place the others fill 31 bits."""
    return SPAN.bit_length()


@triton.constexpr_function
def highest_low(SPAN, LARGEST):
    """The highest low end of a window: nothing is beyond its upper end but, of the largest, NaNs."""
    return min(0x7F000000 if LARGEST else 0x7FFFFFFF, 0x7FFFFFFF - steps(SPAN))


@triton.constexpr_function
def lowest_top(LARGEST):
    """The least `float_order` of what comes out on top as a NaN: of infinity, if LARGEST, or of minus infinity."""
    return 0x7F000001 if LARGEST else 0x7FFFFFFF


@triton.constexpr_function
def lowest_low(LARGEST):
    """The low end of a window for a k-th word at the floor: nothing is below it but, of the smallest, NaNs."""
    return -0x80000000 if LARGEST else -0x7F000003


@triton.jit
def low_of_word(key, SPAN: tl.constexpr, DTYPE: tl.constexpr, LARGEST: tl.constexpr):
    """The low end of a window for the k-th word, by its key; both (R, 1)."""
    low = (key & -SPAN) + (-0x800000 if LARGEST else 0x7FFFFE)  # as `float_order` has it, less 1
    low = tl.where(key <= floor_key(DTYPE), lowest_low(LARGEST), tl.minimum(low, highest_low(SPAN, LARGEST)))
    return tl.where(key >= infinity("float32"), highest_low(SPAN, LARGEST), low)


@triton.jit
def low_of_coarse(key, SPAN: tl.constexpr, LARGEST: tl.constexpr):
    """The low end of a window for the k-th key of coarse steps; both (R, 1)."""
    step = key // SPAN
    low = ((step << coarse_bits(SPAN)) ^ LOWEST) - (step > 0).to(tl.int32)
    return tl.minimum(low, highest_low(SPAN, LARGEST))


@triton.jit
def exact_keys(
    bits,
    column,
    low,
    coarse,
    SPAN: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    MISSES: tl.constexpr,
):
    """Float32 bits of elements and their columns to keys. `low` and `coarse`, which no row is unless MISSES: (R, 1)."""
    step = float_order(bits, LARGEST)
    if holds_all(DTYPE):
        step = step >> free_bits(DTYPE)
    else:
        high = low + steps(SPAN)
        if MISSES:
            low = tl.where(coarse, LOWEST, low)
            high = tl.where(coarse, GREATEST, high)
        step = tl.minimum(tl.maximum(step, low), high) - low
        if MISSES:
            step = step.to(tl.uint32, bitcast=True) >> tl.where(coarse, coarse_bits(SPAN), 0).to(tl.uint32)
            step = step.to(tl.int32, bitcast=True)
    return step * SPAN + (SPAN - 1 - column)


@triton.jit
def best_keys(
    memory,
    found,
    lane,
    low,
    coarse,
    K: tl.constexpr,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    SPAN: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    MISSES: tl.constexpr,
):
    """`found` filled with the K best keys of every row in order, as in `merging`, and the last of them, (R, 1).

    A lane's SHARE is read in vectors of VECTOR elements, adjacent ones by adjacent lanes.
    """
    x, start, cols, apart = memory
    STEP: tl.constexpr = LANES * VECTOR
    DEPTH: tl.constexpr = depth(SHARE, K)
    ROUNDS: tl.constexpr = rounds(SHARE, K)
    PART: tl.constexpr = max(VECTOR, min(PARTS, 8 * VECTOR, 1 << (SHARE - 1).bit_length()))
    last = low
    left = tl.full(low.shape, GREATEST, tl.int32)  # keys above it have been taken
    for first in range(0, K, ROUNDS):
        tl.debug_barrier()  # or what is read would be kept in registers, from before the loop on
        lists = empty(found[0], DEPTH)
        for part in range((SHARE + PART - 1) // PART):
            keys = ()
            for j in tl.static_range(0, PART // VECTOR):
                if PAIRS:
                    pair = tl.arange(0, STEP // 2)[None, :]
                    column = part * (LANES * PART) + j * STEP + pair * 2
                    pairs = tl.load(x + (start // 2 + column // 2), mask=column < cols, other=0)
                    parts = bits_of_pairs(pairs, DTYPE)
                else:
                    column = part * (LANES * PART) + j * STEP + tl.arange(0, STEP)[None, :]
                    loaded = tl.load(x + (start + column * apart), mask=column < cols, other=0)
                    parts = (float32_bits(loaded, DTYPE),)
                for i in tl.static_range(0, len(parts)):
                    key = exact_keys(parts[i], column + i, low, coarse, SPAN, DTYPE, LARGEST, MISSES)
                    key = tl.where((column < cols) & (key <= left), key, LOWEST)
                    keys = keys + columns(key, VECTOR // len(parts))
            lists = merged(lists, best_in_order(keys, PART, min(PART, DEPTH)), DEPTH, min(PART, DEPTH))
        for i in range(ROUNDS):
            key = greatest(lists[0])
            lists = popped(lists, key)
            slots = ()
            for t in tl.static_range(0, len(found)):
                slots = slots + (tl.where(lane + t * LANES == first + i, key, found[t]),)
            found = slots
            last = tl.where(first + i == K - 1, key, last)
            left = key - 1
    return found, last


@triton.jit
def ranked(bits, lane, K: tl.constexpr, LARGEST: tl.constexpr, LANES: tl.constexpr):
    """Ranks of the float32 elements of slots, tensors (R * L,) both, K of slots from K on.

    Of equal elements that in the lower slot is first. `lane` is (1, L).
    """
    orders = ()
    ranks = ()
    for t in tl.static_range(0, len(bits)):
        order = tl.reshape(float_order(bits[t], LARGEST), (bits[t].shape[0] // LANES, LANES))
        orders = orders + (order,)
        ranks = ranks + (tl.where(lane + t * LANES < K, tl.zeros_like(order), K),)
    for at in tl.range(0, K, loop_unroll_factor=4):
        other = orders[0]
        for t in tl.static_range(1, len(orders)):
            other = tl.where(at // LANES == t, orders[t], other)
        if LANES > 1:
            other = tl.gather(other, tl.zeros_like(other) + at % LANES, 1)
        counted = ()
        for t in tl.static_range(0, len(orders)):
            better = (other > orders[t]) | ((other == orders[t]) & (at < lane + t * LANES))
            counted = counted + (ranks[t] + better.to(tl.int32),)
        ranks = counted
    flat = ()
    for t in tl.static_range(0, len(bits)):
        flat = flat + (tl.reshape(ranks[t], bits[t].shape),)
    return flat


@triton.jit
def kth_key(
    memory,
    taken,
    lane,
    K: tl.constexpr,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    LARGEST: tl.constexpr,
):
    """The key (R, 1) of a word that K words of a row reach: the k-th one's, unless a list has ended too soon.

    `taken` is `found` of `merging`. NaNs and infinities on top are all one word, and rounds have taken those of several
    lanes as one: so they are counted.
    """
    x, start, cols, apart = memory
    top: tl.constexpr = infinity("float32")
    lost = tl.zeros(taken[0].shape, tl.int32)
    for t in tl.static_range(0, len(taken)):
        lost += (taken[t] >= top).to(tl.int32)
    lost = tl.sum(lost, axis=1)[:, None]
    slot = tl.zeros_like(lost) + K - 1
    if tl.max(tl.max(lost, axis=1), axis=0) > 0:
        count = tl.zeros_like(taken[0])
        for j in range((SHARE + VECTOR - 1) // VECTOR):
            column = j * (LANES * VECTOR) + tl.arange(0, LANES * VECTOR)[None, :]
            bits = columns(tl.load(x + (start + column * apart), mask=column < cols, other=0), VECTOR)
            for u in tl.static_range(0, VECTOR):
                count += (float_order(bits[u], LARGEST) >= lowest_top(LARGEST)).to(tl.int32)
        slot += lost - tl.sum(count, axis=1)[:, None]
    key = tl.full(taken[0].shape, LOWEST, tl.int32)
    for t in tl.static_range(0, len(taken)):
        key = tl.where(lane + t * LANES == slot, taken[t], key)
    return tl.where(slot < lost, top, greatest(key))


@triton.jit
def best_columns(
    memory,
    taken,
    lane,
    K: tl.constexpr,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    SPAN: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    MISSES: tl.constexpr,
):
    """The columns of the K best elements of every row, tensors (R, L) filled as `found` of `merging` is, in any order.

    `taken` is `found` of `merging`; MISSES: a list may have ended too soon. `memory` is the pointer to elements, or to
    PAIRS of them, where rows begin, (R, 1), their columns, and how far apart these are.
    """
    low = tl.zeros((taken[0].shape[0], 1), tl.int32)
    if not holds_all(DTYPE):
        low = low_of_word(kth_key(memory, taken, lane, K, LANES, SHARE, VECTOR, LARGEST), SPAN, DTYPE, LARGEST)
    coarse = low < low
    found = empty(taken[0], (K + LANES - 1) // LANES)
    if MISSES:
        missed = 1
        while missed > 0:
            found, last = best_keys(
                memory, found, lane, low, coarse, K, LANES, SHARE, VECTOR, SPAN, DTYPE, LARGEST, PAIRS, MISSES
            )
            beyond = (last // SPAN == steps(SPAN)) & (low < highest_low(SPAN, LARGEST)) & (coarse == 0)
            missed = tl.max(tl.max((beyond | coarse).to(tl.int32), axis=1), axis=0)
            low = tl.where(coarse, low_of_coarse(last, SPAN, LARGEST), low)
            coarse = beyond
    else:
        found, last = best_keys(
            memory, found, lane, low, coarse, K, LANES, SHARE, VECTOR, SPAN, DTYPE, LARGEST, PAIRS, MISSES
        )
    columns = ()
    for t in tl.static_range(0, len(found)):
        columns = columns + (SPAN - 1 - (found[t] & (SPAN - 1)),)
    return columns


@triton.jit
def do_again(
    memory,
    outputs,
    taken,
    lane,
    thread,
    K: tl.constexpr,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    SPAN: tl.constexpr,
    DEPTH: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    BY_ONE: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
    SMALL: tl.constexpr,
    INDICES_ONLY: tl.constexpr,
):
    """Reads a program's rows once more, and writes the results of those that are wanted.

    `memory` is as `best_columns` has it, but for the pointer, which is to PAIRS also where elements are read BY_ONE.
    `outputs` are what `write` takes, `taken` is what was found with lists of DEPTH.
    """
    x, start, cols, apart = memory
    single = narrow(x, PAIRS)
    best = best_columns(
        (single if BY_ONE else x, start, cols, apart), taken, lane, K, LANES, SHARE, 1 if BY_ONE else VECTOR, SPAN,
        DTYPE, LARGEST, PAIRS and not BY_ONE, not holds_all(DTYPE) and DEPTH < min(K, SHARE),
    )  # fmt: skip
    slots = slots_of(thread, len(best), LANES)
    columns = ()
    starts = tl.reshape(tl.broadcast_to(start, taken[0].shape), thread.shape)
    for t in tl.static_range(0, len(best)):
        columns = columns + (tl.reshape(best[t], thread.shape),)
    bits = looked_up(single, slots, columns, starts, apart, K, False)
    ranks = slots if holds_all(DTYPE) else ranked(bits, lane, K, LARGEST, LANES)
    write(outputs, ranks, columns, bits, K, SIDE_BY_SIDE, SMALL, INDICES_ONLY)
