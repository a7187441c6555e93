"""Rows done again where words left doubt: keys that tell all, whichever the elements, and lists that never end.

Of 16-bit elements a key holds the element, in torch's order, and its place. Of float32 it holds the place and how far
the element is above the low end of a window, in steps between neighbouring floats; what is beyond either end of the
window counts as at that end. A window that begins just below the k-th element, and ends above all whose words are like
the k-th's, makes the keys of the best k greater than all others'. Those beyond its upper end are fewer than k; all that
is left to do is to put them in order. Where a list has ended too soon the k-th word may be less than the k-th element's
and k or more beyond the window that it gave: then the row is looked through once in coarse steps, for a better window.

A list may be shorter than its lane's share. Where one ends, the found keys down to its last are right, and lists are
made anew from what is left.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.merging import at_slot, empty, greatest, popped
from autotopk.strategies._short_rows.networks import arranged, merged, sorting
from autotopk.strategies._short_rows.order import LOWEST, float_order
from autotopk.strategies._short_rows.packing import floor_key, free_bits, holds_all, infinity, worst
from autotopk.strategies._short_rows.reading import elements, elements_of_pairs
from autotopk.strategies._short_rows.results import looked_up, slots_of, write

GREATEST = tl.constexpr(0x7FFFFFFF)
LONGEST = tl.constexpr(16)
"""Longest list of a lane that may have more elements."""
PARTS = tl.constexpr(16)
"""Most elements of a lane that are read together, in 8 loads at most."""


@triton.constexpr_function
def power_of_two(n):
    """The least power of two that is at least n."""
    return 1 << (n - 1).bit_length()


@triton.constexpr_function
def depth(DEPTH):
    """Length of lists, a power of two: as in the first pass, where it was DEPTH, up to LONGEST."""
    return min(LONGEST, power_of_two(max(DEPTH, 4)))


@triton.constexpr_function
def part_size(SHARE, VECTOR):
    """How many elements of a lane are read together, a power of two."""
    return max(VECTOR, min(PARTS, 8 * VECTOR, power_of_two(SHARE)))


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
def elements_of_part(
    memory,
    part,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """The float32 bits of a part of every lane's SHARE, tensors (R, L); outside of a row they are the worst there are.

    Vectors are of VECTOR elements; adjacent lanes read adjacent ones.
    """
    row, cols, apart = memory
    WORD: tl.constexpr = 2 if PAIRS else 1
    STEP: tl.constexpr = LANES * VECTOR
    PART: tl.constexpr = part_size(SHARE, VECTOR)
    first = part * (LANES * PART)
    word = tl.arange(0, STEP // WORD)[None, :]
    bits = ()
    for j in tl.static_range(0, PART // VECTOR):
        if (
            LANES == 32
        ):  # fewer instructions; but where rows share a warp, the compiler then delays the first pass's loads
            at = (row + (first // WORD + word) * apart) + j * (STEP // WORD) * apart
            inside = word * WORD < cols - first - j * STEP
        else:
            column = (first + j * STEP) // WORD + word
            at = row + column * apart
            inside = column * WORD < cols
        loaded = tl.load(at, mask=inside, other=worst(DTYPE, LARGEST, PAIRS))
        if PAIRS:
            bits = bits + elements_of_pairs(loaded, VECTOR, DTYPE)
        else:
            bits = bits + elements(loaded, VECTOR, DTYPE)
    return bits


@triton.jit
def exact_key(bits, low, shift, place, SPAN: tl.constexpr, DTYPE: tl.constexpr, LARGEST: tl.constexpr):
    """Float32 bits of elements to keys: of float32, in steps of 2^shift from `low` on; both (R, 1)."""
    step = float_order(bits, LARGEST)
    if holds_all(DTYPE):
        step = step >> free_bits(DTYPE)
    else:
        above = (tl.maximum(step, low) - low).to(tl.uint32, bitcast=True) >> shift
        step = tl.minimum(above, tl.full((1, 1), steps(SPAN), tl.uint32)).to(tl.int32, bitcast=True)
    return step * SPAN + place


@triton.jit
def exact_keys(
    bits,
    low,
    shift,
    LANES: tl.constexpr,
    VECTOR: tl.constexpr,
    SPAN: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
):
    """`exact_key` of a part's elements, a tuple, but for what of the place is the lane's and the part's."""
    keys = ()
    for i in tl.static_range(0, len(bits)):
        place = LANES * len(bits) - LANES * VECTOR * (i // VECTOR + 1) + VECTOR - 1 - i % VECTOR
        keys = keys + (exact_key(bits[i], low, shift, place, SPAN, DTYPE, LARGEST),)
    return keys


@triton.jit
def no_greater(keys, left):
    """Keys up to `left`, of their shape; LOWEST for others."""
    kept = ()
    for i in tl.static_range(0, len(keys)):
        kept = kept + (tl.where(keys[i] <= left, keys[i], LOWEST),)
    return kept


@triton.jit
def best_lists(
    memory,
    lane,
    low,
    coarse,
    left,
    passes,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    SPAN: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    ONE_MORE: tl.constexpr,
):
    """Lists, DEPTH tensors (R, L), and ONE_MORE, of the keys up to `left`.

    `coarse` and `left`, (R, 1), count from the second pass.
    """
    PART: tl.constexpr = part_size(SHARE, VECTOR)
    LONG: tl.constexpr = min(PART, DEPTH)
    lists = empty(tl.broadcast_to(lane, (low.shape[0], LANES)), DEPTH)
    following = lists[0]
    for part in range((SHARE + PART - 1) // PART):
        bits = elements_of_part(memory, part, LANES, SHARE, VECTOR, DTYPE, LARGEST, PAIRS)
        behind = SPAN - LANES * PART * (part + 1) + (LANES - 1 - lane) * VECTOR
        if passes > 0:
            shift = tl.where(coarse, coarse_bits(SPAN), 0).to(tl.uint32)
            keys = exact_keys(bits, tl.where(coarse, LOWEST, low), shift, LANES, VECTOR, SPAN, DTYPE, LARGEST)
            keys = no_greater(keys, left - behind)
        else:
            keys = exact_keys(bits, low, 0, LANES, VECTOR, SPAN, DTYPE, LARGEST)
        for g in tl.static_range(0, PART // LONG):
            group = ()
            for d in tl.static_range(0, LONG):
                group = group + (keys[g * LONG + d] + behind,)  # LOWEST stays below all keys
            group = arranged(group, sorting(LONG))
            if ONE_MORE:
                for d in tl.static_range(0, LONG):
                    following = tl.maximum(following, tl.minimum(lists[DEPTH - 1 - d], group[d]))
            lists = merged(lists, group, DEPTH, LONG)
    return lists + (following,) if ONE_MORE else lists


@triton.jit
def best_keys(
    memory,
    lane,
    low,
    k,
    rounds,
    MOST: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    SPAN: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    MISSES: tl.constexpr,
):
    """The k best keys of every row in order, as `found` of `merging`, by windows from `low` on and lists of DEPTH.

    MOST is the largest k, and `rounds` that as a constant or k: so many are taken. MISSES: `low`, (R, 1), may be too
    low.
    """
    ENDING: tl.constexpr = DEPTH < min(MOST, SHARE)
    ONE_MORE: tl.constexpr = ENDING and MOST >= 4 * DEPTH  # even strides give each of four lanes so many
    found = empty(tl.broadcast_to(lane, (low.shape[0], LANES)), (MOST + LANES - 1) // LANES)
    left = tl.full(low.shape, GREATEST, tl.int32)  # keys above it have been taken,
    taken = tl.zeros_like(low)  # so many of them
    coarse = low < low
    passes = 0
    unfinished = 1
    while unfinished > 0:
        tl.debug_barrier()  # or what is read would be kept in registers, from before the loop on
        lists = best_lists(
            memory, lane, low, coarse, left, passes, DEPTH, LANES, SHARE, VECTOR, SPAN, DTYPE, LARGEST, PAIRS, ONE_MORE
        )
        end = lists[len(lists) - 1]
        for i in range(rounds):
            key = greatest(lists[0])
            lists = popped(lists, key)
            slots = ()
            for t in tl.static_range(0, len(found)):
                slots = slots + (tl.where(lane + t * LANES == taken + i, key, found[t]),)
            found = slots
        passes = 1
        unfinished = 0
        more = coarse
        if ENDING:  # what a list hides is less than its end
            end = greatest(tl.where(lists[0] == LOWEST, end, LOWEST))
            count = tl.zeros_like(found[0])
            for t in tl.static_range(0, len(found)):
                count += ((found[t] >= end) & (lane + t * LANES < k)).to(tl.int32)
            taken = tl.sum(count, axis=1)[:, None]
            left = end - 1
            more = taken < k
        if MISSES:
            last = greatest(at_slot(found, lane, k - 1))
            beyond = (last // SPAN == steps(SPAN)) & (low < highest_low(SPAN, LARGEST)) & (coarse == 0)
            anew = beyond | coarse
            if ENDING:
                anew = anew & (more == 0)
            low = tl.where(anew & coarse, low_of_coarse(last, SPAN, LARGEST), low)
            coarse = tl.where(anew, beyond, coarse)
            left = tl.where(anew, GREATEST, left)
            taken = tl.where(anew, 0, taken)
            more = more | anew if ENDING else anew
        if ENDING or MISSES:
            unfinished = tl.max(tl.max(more.to(tl.int32), axis=1), axis=0)
    return found


@triton.jit
def ranked(bits, lane, k, rounds, LARGEST: tl.constexpr, LANES: tl.constexpr):
    """Ranks of the float32 elements of slots, tensors (R * L,) both, at least k of slots from k on.

    Of equal elements that in the lower slot is first. `rounds` are as in `best_keys`. `lane` is (1, L).
    """
    orders = ()
    ranks = ()
    for t in tl.static_range(0, len(bits)):
        order = tl.reshape(float_order(bits[t], LARGEST), (bits[t].shape[0] // LANES, LANES))
        asked = lane + t * LANES < k
        orders = orders + (tl.where(asked, order, LOWEST),)
        ranks = ranks + (tl.where(asked, tl.zeros_like(order), k),)
    for at in tl.range(0, rounds, loop_unroll_factor=4):
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
    k,
    LANES: tl.constexpr,
    SHARE: tl.constexpr,
    VECTOR: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
):
    """The key (R, 1) of a word that k words of a row reach: the k-th one's, unless a list has ended too soon.

    `taken` is `found` of `merging`. NaNs and infinities on top are all one word, and rounds have taken those of several
    lanes as one: so they are counted.
    """
    top: tl.constexpr = infinity("float32")
    lost = tl.zeros(taken[0].shape, tl.int32)
    for t in tl.static_range(0, len(taken)):
        lost += (taken[t] >= top).to(tl.int32)
    lost = tl.sum(lost, axis=1)[:, None]
    slot = tl.zeros_like(lost) + k - 1
    if tl.max(tl.max(lost, axis=1), axis=0) > 0:
        count = tl.zeros_like(taken[0])
        PART: tl.constexpr = part_size(SHARE, VECTOR)
        for part in range((SHARE + PART - 1) // PART):
            bits = elements_of_part(memory, part, LANES, SHARE, VECTOR, DTYPE, LARGEST, False)
            for i in tl.static_range(0, PART):
                number = bits[i].to(tl.float32, bitcast=True)
                if LARGEST:
                    count += tl.where(number < float("inf"), 0, 1)
                else:
                    count += tl.where(number == float("-inf"), 1, 0)
        slot += lost - tl.sum(count, axis=1)[:, None]
    return tl.where(slot < lost, top, greatest(at_slot(taken, lane, slot)))


@triton.jit
def do_again(
    memory,
    flat_from,
    outputs,
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
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
):
    """Reads a program's rows once more, and writes the results of those that are wanted.

    `memory` is where rows begin, pointers (R, 1) to elements or to PAIRS of them, their columns, and how far apart
    these are; `flat_from` is where the thread's row begins. `outputs` are what `write` takes, `taken` is `found` of
    `merging`, with lists of DEPTH; `rounds` are as in `best_keys`.
    """
    _, cols, apart = memory
    WHOLE: tl.constexpr = holds_all(DTYPE)
    low = tl.zeros((taken[0].shape[0], 1), tl.int32)
    if not WHOLE:
        low = low_of_word(kth_key(memory, taken, lane, k, LANES, SHARE, VECTOR, DTYPE, LARGEST), SPAN, DTYPE, LARGEST)
    found = best_keys(
        memory, lane, low, k, rounds, MOST, depth(DEPTH), LANES, SHARE, VECTOR, SPAN, DTYPE, LARGEST, PAIRS,
        not WHOLE and DEPTH < min(MOST, SHARE),
    )  # fmt: skip
    slots = slots_of(thread, len(found), LANES)
    columns = ()
    for t in tl.static_range(0, len(found)):
        columns = columns + (tl.reshape(SPAN - 1 - (found[t] & (SPAN - 1)), thread.shape),)
    bits = looked_up(flat_from, columns, cols, apart, LARGEST)
    ranks = slots if WHOLE else ranked(bits, lane, k, rounds, LARGEST, LANES)
    write(outputs, ranks, columns, bits, k, SIDE_BY_SIDE)
