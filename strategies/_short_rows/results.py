"""What was taken, looked up in its row and written. One element a thread and slot: tensors are (R * L,)."""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.addresses import narrow, out_start
from autotopk.strategies._short_rows.packing import holds_all, unpacked


@triton.jit
def looked_up(
    x,
    found,
    thread,
    start,
    skew,
    apart,
    LANES: tl.constexpr,
    SPAN: tl.constexpr,
    TAKEN: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Slots, columns and bits of the elements whose keys are `found`, SLOTS tensors (R, L): three tuples of SLOTS.

    `start` and `skew` are of the thread's row; columns are `apart`. Elements that words do not hold are read again.
    """
    slots = ()
    columns = ()
    bits = ()
    for t in tl.static_range(0, len(found)):
        slots = slots + (thread % LANES + t * LANES,)
        place, value = unpacked(tl.reshape(found[t], thread.shape), SPAN, DTYPE, LARGEST)
        at = SPAN - 1 - place - skew
        if not holds_all(DTYPE):
            value = tl.load(narrow(x, PAIRS) + (start + at * apart), mask=slots[t] < TAKEN, other=0)
        columns = columns + (at,)
        bits = bits + (value,)
    return slots, columns, bits


@triton.jit
def write(
    values,
    indices,
    ranks,
    columns,
    bits,
    row,
    rows,
    inner,
    slot_stride,
    K: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
    SMALL: tl.constexpr,
):
    """Writes bits and columns whose rank is below K, each at its rank; these three are tuples of SLOTS tensors."""
    out = out_start(row, inner, K, SIDE_BY_SIDE, SMALL)
    for t in tl.static_range(0, len(ranks)):
        wanted = (row < rows) & (ranks[t] < K)
        tl.store(values + (out + ranks[t] * slot_stride), bits[t], mask=wanted)
        tl.store(indices + (out + ranks[t] * slot_stride), columns[t].to(tl.int64), mask=wanted)
