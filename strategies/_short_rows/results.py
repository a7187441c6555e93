"""What was taken, looked up in its row and written. One element a thread and slot: tensors are (R * L,)."""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.addresses import narrow, out_start
from autotopk.strategies._short_rows.packing import unpacked


@triton.jit
def slots_of(thread, SLOTS: tl.constexpr, LANES: tl.constexpr):
    """The slots of a thread: SLOTS tensors."""
    slots = ()
    for t in tl.static_range(0, SLOTS):
        slots = slots + (thread % LANES + t * LANES,)
    return slots


@triton.jit
def held(found, thread, skew, SPAN: tl.constexpr, DTYPE: tl.constexpr, LARGEST: tl.constexpr):
    """Columns and bits of the elements whose keys are `found`, tensors (R, L); bits are 0 where words do not hold them.

    `skew` is of the thread's row.
    """
    columns = ()
    bits = ()
    for t in tl.static_range(0, len(found)):
        place, value = unpacked(tl.reshape(found[t], thread.shape), SPAN, DTYPE, LARGEST)
        columns = columns + (SPAN - 1 - place - skew,)
        bits = bits + (value,)
    return columns, bits


@triton.jit
def looked_up(x, slots, columns, start, apart, COUNT: tl.constexpr, PAIRS: tl.constexpr):
    """Bits of the elements of columns, read again for slots below COUNT.

    `start` is where the thread's row begins; columns are `apart`.
    """
    bits = ()
    for t in tl.static_range(0, len(columns)):
        bits = bits + (tl.load(narrow(x, PAIRS) + (start + columns[t] * apart), mask=slots[t] < COUNT, other=0),)
    return bits


@triton.jit
def write(
    outputs,
    ranks,
    columns,
    bits,
    K: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
    SMALL: tl.constexpr,
    INDICES_ONLY: tl.constexpr,
):
    """Writes columns, and bits but where INDICES_ONLY, each at its rank if that is below K: tuples of SLOTS tensors.

    `outputs` are values, indices, the thread's row, whether it is wanted, `inner`, and how far results are apart.
    """
    values, indices, row, wanted, inner, slot_stride = outputs
    out = out_start(row, inner, K, SIDE_BY_SIDE, SMALL)
    for t in tl.static_range(0, len(ranks)):
        at = out + ranks[t] * slot_stride
        if not INDICES_ONLY:
            tl.store(values + at, bits[t], mask=wanted & (ranks[t] < K))
        tl.store(indices + at, columns[t].to(indices.dtype.element_ty), mask=wanted & (ranks[t] < K))
