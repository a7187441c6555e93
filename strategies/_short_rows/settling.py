"""What keys cannot tell: which rows may be wrong, and the order of neighbours that differ in their last bits alone.

`found`, `following` and `hidden` are what `merging` returns. `doubt` is (R, L) int32: a row in which it is not 0
everywhere may be wrong and must be done again.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.order import float_key
from autotopk.strategies._short_rows.packing import alike, floor_key, holds_all, infinity
from autotopk.strategies._short_rows.results import outside


@triton.jit
def doubts(
    found,
    columns,
    hidden,
    thread,
    k,
    cols,
    LANES: tl.constexpr,
    MAY_END: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
):
    """The `doubt` that keys tell. `columns`, flat, are those of `found`; MAY_END: lists may have ended too soon.

    A NaN or infinity on top, or one of the k at the floor, is not what it was in the row, and what is outside of the
    row is at the floor.
    """
    doubt = (found[0] >= infinity("float32")).to(tl.int32)
    for t in tl.static_range(0, len(found)):
        if holds_all(DTYPE) and LARGEST:  # at the floor is minus infinity alone
            low = outside(columns[t], cols)
        else:
            low = tl.reshape(found[t], thread.shape) <= floor_key(DTYPE)
        doubt |= tl.reshape((low & (thread % LANES + t * LANES < k)).to(tl.int32), doubt.shape)
    if MAY_END:
        doubt |= hidden.to(tl.int32)
    return doubt


@triton.jit
def neighbours_alike(top, following, doubt, k, SPAN: tl.constexpr):
    """`doubt` with whether two of the k keys, or the k-th and the `following`, are alike.

    `top` are (R, 1): the best keys in order, at least k, and the k-th once more.
    """
    for i in tl.static_range(1, len(top) - 1):
        doubt |= (alike(top[i - 1], top[i], SPAN) & (k > i)).to(tl.int32)
    return doubt | alike(top[len(top) - 1], following, SPAN).to(tl.int32)


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
    k,
    taken,
    SPAN: tl.constexpr,
    LARGEST: tl.constexpr,
    LANES: tl.constexpr,
):
    """Ranks of what was taken, SLOTS tensors (R * L,), and `doubt` with what neighbours add to it.

    `bits` are SLOTS tensors (R * L,): the float32 elements whose keys stand in `found`. Two neighbours whose keys are
    alike change ranks if their elements are out of order. In doubt are three alike with two of them out of order, and
    the last one taken if those before and after it are like it; the one after it alone where no more than k were taken.
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
        with_before = alike(before, keys[t], SPAN) & (slot > 0) & (slot < taken)
        with_after = alike(after, keys[t], SPAN) & (slot < taken - 1)
        with_following = alike(following, found[t], SPAN) & (slot == taken - 1)
        late = with_before & (keys[t] > before)
        early = with_after & (after > keys[t])
        doubt |= (with_before & with_after & (late | early)).to(tl.int32)
        doubt |= (with_following & (with_before | (taken == k))).to(tl.int32)
        rank = slot - late.to(tl.int32) + early.to(tl.int32)
        ranks = ranks + (tl.reshape(rank, bits[t].shape),)
    return ranks, doubt
