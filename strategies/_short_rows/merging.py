"""Lists of keys, one a lane, merged to the best keys of a row.

A list is DEPTH tensors (R, L): the best keys of every lane in order, largest first. Keys of a row differ, but for
LOWEST, which marks the end of a list that is used up. `merged_by_rounds` and `merged_by_tree` both return

- `found`: SLOTS tensors (R, L), the best keys in order, key i in lane i % LANES of tensor i // LANES
- `following`: (R, 1), the best of the keys after those asked for
- `hidden`: (R, L), whether a lane's list may have been too short to hold all of its elements that were asked for, or
  the one that belongs after them
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.networks import best_in_order, merged_2, merged_4
from autotopk.strategies._short_rows.order import LOWEST, float_key


@triton.jit
def sorted_lists(words, lane, LANES: tl.constexpr, VECTOR: tl.constexpr, DEPTH: tl.constexpr):
    """Words, a tuple of tensors (R, L), to lists of keys, with the lane's part of the place added. `lane` is (1, L)."""
    best = best_in_order(words, len(words), DEPTH)
    lists = ()
    for d in tl.static_range(0, DEPTH):
        lists = lists + (float_key(best[d].to(tl.int32, bitcast=True) | (LANES - 1 - lane) * VECTOR),)
    return lists


@triton.jit
def greatest(x):
    """(R, L) to (R, 1)."""
    return tl.max(x, axis=1)[:, None]


@triton.jit
def empty(like, COUNT: tl.constexpr):
    """COUNT tensors of LOWEST, of the shape of `like`."""
    xs = ()
    for _ in tl.static_range(0, COUNT):
        xs = xs + (tl.full(like.shape, LOWEST, tl.int32),)
    return xs


@triton.jit
def marked(found, key, lane, SLOT: tl.constexpr, LANES: tl.constexpr):
    """`found` with `key` (R, 1) in slot SLOT."""
    slots = ()
    for t in tl.static_range(0, len(found)):
        if SLOT // LANES == t:
            slots = slots + (tl.where(lane == SLOT % LANES, key, found[t]),)
        else:
            slots = slots + (found[t],)
    return slots


@triton.jit
def at_slot(found, lane, slot):
    """(R, L) with the key in a slot, an integer or (R, 1), where that is; elsewhere LOWEST. `lane` is (1, L)."""
    key = tl.full(found[0].shape, LOWEST, tl.int32)
    for t in tl.static_range(0, len(found)):
        key = tl.where(lane + t * lane.shape[1] == slot, found[t], key)
    return key


@triton.jit
def popped(lists, key):
    """The lists without their heads where those are `key` (R, 1)."""
    taken = lists[0] == key
    rest = ()
    for d in tl.static_range(1, len(lists)):
        rest = rest + (tl.where(taken, lists[d], lists[d - 1]),)
    return rest + (tl.where(taken, LOWEST, lists[len(lists) - 1]),)


@triton.jit
def greatest_below(lists, key):
    """The best key of the lists that is less than `key`; both are (R, 1)."""
    best = tl.full(lists[0].shape, LOWEST, tl.int32)
    for d in tl.static_range(0, len(lists)):
        best = tl.maximum(best, tl.where(lists[d] < key, lists[d], LOWEST))
    return greatest(best)


@triton.jit
def merged_by_rounds(lists, lane, taken, ROUNDS: tl.constexpr, SLOTS: tl.constexpr, LANES: tl.constexpr):
    """The best keys, ROUNDS of them, or `taken` if that is 0, and the one after those.

    Each is the maximum of the heads, and the lane that had it takes it off its list. A known number of ROUNDS needs no
    loop, and the last ones need not keep lists that nobody takes from.
    """
    found = empty(lists[0], SLOTS)
    following = greatest(lists[0])
    if ROUNDS > 0:
        for i in tl.static_range(0, ROUNDS):
            found = marked(found, following, lane, i, LANES)
            lists = popped(lists, following)
            following = greatest(lists[0])
    else:
        found = ()
        for t in tl.static_range(0, SLOTS):
            slot = tl.full(lists[0].shape, LOWEST, tl.int32)
            for i in range(tl.minimum(taken - t * LANES, LANES)):
                slot = tl.where(lane == i, following, slot)
                lists = popped(lists, following)
                following = greatest(lists[0])
            found = found + (slot,)
    return found, following, lists[0] == LOWEST


@triton.jit
def merged_by_tree(lists, lane, k, TREE: tl.constexpr, SLOTS: tl.constexpr, LANES: tl.constexpr):
    """The TREE = 2 or 4 best keys, k asked for: the heads of lists are merged pairwise until one list is left.

    Before the others it returns them as tensors (R, 1), the k-th last.
    """
    found = empty(lists[0], SLOTS)
    heads = lists + empty(lists[0], 3)
    if TREE == 2:
        best = tl.reduce((heads[0], heads[1]), 1, merged_2)
    else:
        best = tl.reduce((heads[0], heads[1], heads[2], heads[3]), 1, merged_4)
    top = ()
    for i in tl.static_range(0, TREE):
        top = top + (best[i][:, None],)
        found = marked(found, top[i], lane, i, LANES)
    last = top[0]
    for i in tl.static_range(1, TREE):
        last = tl.where(k > i, top[i], last)
    following = greatest_below(lists, last)
    return top + (last,), found, following, lists[len(lists) - 1] >= last
