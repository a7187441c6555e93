"""What was taken, looked up in its row and written. One element a thread and slot: tensors are (R * L,)."""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.addresses import out_start, wide
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
def outside(column, cols):
    """Whether a column is no row's, of any shape."""
    return column.to(tl.uint32, bitcast=True) >= cols.to(tl.uint32, bitcast=True)


@triton.jit
def looked_up(row, columns, cols, apart, LARGEST: tl.constexpr):
    """Bits of the elements of columns, read again; of columns that are outside, of the worst float32.

    `row` points to where the thread's row begins; columns are `apart`.
    """
    worst: tl.constexpr = -0x800000 if LARGEST else 0x7FFFFFFF
    bits = ()
    for t in tl.static_range(0, len(columns)):
        bits = bits + (tl.load(row + columns[t] * apart, mask=outside(columns[t], cols) == 0, other=worst),)
    return bits


@triton.jit
def write(outputs, ranks, columns, bits, k, SIDE_BY_SIDE: tl.constexpr):
    """Writes columns, and bits but where indices alone are asked for, each at its rank if that is below k.

    `ranks`, `columns` and `bits` are tuples of SLOTS tensors. `outputs` are values, indices, whether they are asked for
    alone and thus int32, the thread's row, whether it is wanted, `inner`, and how far results are apart.
    """
    values, indices, indices_only, row, wanted, inner, slot_stride = outputs
    out = out_start(row, inner, k, SIDE_BY_SIDE)
    if indices_only:
        narrow_indices = indices.to(tl.pointer_type(tl.int32), bitcast=True)
        for t in tl.static_range(0, len(ranks)):
            at = out + wide(ranks[t] * slot_stride)
            tl.store(narrow_indices + at, columns[t], mask=wanted & (ranks[t] < k))
    else:
        for t in tl.static_range(0, len(ranks)):
            at = out + wide(ranks[t] * slot_stride)
            tl.store(values + at, bits[t], mask=wanted & (ranks[t] < k))
            tl.store(indices + at, columns[t].to(tl.int64), mask=wanted & (ranks[t] < k))
