"""What keys cannot tell: which rows may be wrong, and the order of neighbours that differ in their last bits alone.

`top`, `found`, `following` and `hidden` are what `merging` returns. `doubt` is (R, L) int32: a row in which it is
not 0 everywhere may be wrong and must be done again.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.order import float_key
from autotopk.strategies._short_rows.packing import alike, floor_key, holds_all, infinity


@triton.jit
def doubts(
    top,
    following,
    hidden,
    COUNT: tl.constexpr,
    DEPTH: tl.constexpr,
    TREE: tl.constexpr,
    K: tl.constexpr,
    SPARE: tl.constexpr,
    SPAN: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
):
    """The `doubt` that keys tell, COUNT being the elements of a lane.

    A NaN or infinity on top, or a k-th at the floor, is not what it was in the row. A k-th like the one after it may
    be the lesser of the two. Where lists are shorter than a lane's share, one may have ended too soon.
    """
    WHOLE: tl.constexpr = holds_all(DTYPE)
    doubt = tl.zeros(hidden.shape, tl.int32)
    if TREE and not WHOLE:  # a tree takes no spare one, and its neighbours are not put in order
        for i in tl.static_range(1, K):
            doubt |= alike(top[i - 1], top[i], SPAN).to(tl.int32)
    doubt |= (top[0] >= infinity("float32")).to(tl.int32)
    if not (WHOLE and LARGEST):
        doubt |= (top[K - 1] <= floor_key(DTYPE)).to(tl.int32)
    if not WHOLE and SPARE == 0:
        doubt |= alike(top[K - 1], following, SPAN).to(tl.int32)
    if DEPTH < COUNT and DEPTH < (K if WHOLE else K + SPARE + 1):
        doubt |= hidden.to(tl.int32)
    return doubt


@triton.jit
def shifted(slots, t: tl.constexpr, lane, STEP: tl.constexpr, LANES: tl.constexpr):
    """What stands one slot further (STEP 1) or nearer (-1) than tensor t (R, L) of `slots`; past either end, anything.

    Slot i is lane i % LANES of tensor i // LANES.
    """
    edge = lane == (LANES - 1 if STEP > 0 else 0)
    x = slots[t]
    if LANES > 1:
        x = tl.gather(x, tl.broadcast_to(tl.where(edge, lane, lane + STEP), x.shape), 1)
    if 0 <= t + STEP and t + STEP < len(slots):
        other = slots[t + STEP]
        if LANES > 1:
            other = tl.gather(other, tl.broadcast_to(LANES - 1 - lane, x.shape), 1)  # the edges change places
        x = tl.where(edge, other, x)
    return x


@triton.jit
def neighbours_ordered(
    bits,
    found,
    following,
    doubt,
    lane,
    TAKEN: tl.constexpr,
    SPAN: tl.constexpr,
    LARGEST: tl.constexpr,
    LANES: tl.constexpr,
):
    """Ranks of what was taken, SLOTS tensors (R * L,), and `doubt` with what neighbours add to it.

    `bits` are SLOTS tensors (R * L,): the float32 elements whose keys stand in `found`. Two neighbours whose keys are
    alike change ranks if their elements are out of order. In doubt are three alike with two of them out of order, and
    the last one taken if those before and after it are like it.
    """
    keys = ()
    for t in tl.static_range(0, len(found)):
        key = float_key(bits[t])
        if not LARGEST:
            key = -1 - key
        keys = keys + (tl.reshape(key, doubt.shape),)
    ranks = ()
    for t in tl.static_range(0, len(found)):
        slot = lane + t * LANES
        before = shifted(keys, t, lane, -1, LANES)
        after = shifted(keys, t, lane, 1, LANES)
        with_before = alike(before, keys[t], SPAN) & (slot > 0) & (slot < TAKEN)
        with_after = alike(after, keys[t], SPAN) & (slot < TAKEN - 1)
        with_following = alike(following, found[t], SPAN) & (slot == TAKEN - 1)
        late = with_before & (keys[t] > before)
        early = with_after & (after > keys[t])
        doubt |= (with_before & ((with_after & (late | early)) | with_following)).to(tl.int32)
        rank = slot - late.to(tl.int32) + early.to(tl.int32)
        ranks = ranks + (tl.reshape(rank, bits[t].shape),)
    return ranks, doubt
