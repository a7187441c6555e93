"""Top-k of rows spread over lanes: every lane sorts its share, then the lanes' lists are merged.

A row belongs to LANES lanes of one warp. The steps, and the modules that take them:

1. `reading`: a lane loads its share, up to 16 bytes at a time, and packs every element and its place in the row into
   one word (`packing`), so that minima and maxima move both at once.
2. `merging`: each lane sorts its words by a network (`networks`) and keeps the best DEPTH as its list. The lists are
   merged by rounds, each of which takes off the best head of all lists, or by a tree of pairwise merges. A round costs
   a reduction over one register, a level of the tree as many shuffles as the list is long.
3. `settling`, `results`: words of float32 lack the last bits of the element. So one element more than asked for is
   taken, the elements are read again by their places, and neighbours whose words are alike are put in order.
4. `again`: what neighbours cannot tell (three or more alike and out of order, NaNs, a lane whose list ran out) is rare
   on any but adversarial data. Those rows are read again, from the L1, and told apart by keys that leave no doubt.

In shapes R is ROWS, the rows of a program, L is LANES, and a program has R * L threads.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.addresses import aligned, row_start
from autotopk.strategies._short_rows.again import do_again
from autotopk.strategies._short_rows.merging import greatest, merged_by_rounds, merged_by_tree, sorted_lists
from autotopk.strategies._short_rows.packing import holds_all
from autotopk.strategies._short_rows.reading import read, words_of
from autotopk.strategies._short_rows.results import held, looked_up, slots_of, write
from autotopk.strategies._short_rows.settling import doubts, neighbours_ordered


@triton.jit
def lane_merge_rows(
    x,  # pointer to integers as wide as an element; if PAIRS, to int32
    values,  # pointer to integers as wide as an element
    indices,  # pointer to int64, or to int32 if INDICES_ONLY
    rows,
    cols,
    row_stride,
    col_stride,
    inner,
    ROWS: tl.constexpr,  # rows of a program
    LANES: tl.constexpr,  # lanes of a row, a power of two up to 32
    VECTORS: tl.constexpr,  # vectors that a lane reads
    VECTOR: tl.constexpr,  # elements of a vector, which is one load: a power of two up to 8
    INSIDE: tl.constexpr,  # so many of a lane's vectors lie inside of every row
    SPAN: tl.constexpr,  # places that words tell apart: a power of two, at least LANES * VECTORS * VECTOR
    DEPTH: tl.constexpr,  # length of a lane's list: VECTORS * VECTOR, or a power of two below it
    TREE: tl.constexpr,  # lists are merged by a tree, which needs K <= 4, not by rounds
    K: tl.constexpr,
    SPARE: tl.constexpr,  # 1 where one more than K is taken, else 0
    SLOTS: tl.constexpr,  # tensors (R, L) that hold what is taken: (K + SPARE) / LANES, rounded up
    DTYPE: tl.constexpr,  # "float32", "bfloat16" or "float16"
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,  # two elements of 16 bits are read as one int32
    RAGGED: tl.constexpr,  # rows begin anywhere and are read from the vector on in which they begin
    SIDE_BY_SIDE: tl.constexpr,  # rows, not columns, are adjacent
    SMALL: tl.constexpr,  # all offsets fit 32 bits
    INDICES_ONLY: tl.constexpr,  # int32 indices alone are written, `values` is null
):
    """(rows, cols) floats to sorted (rows, K).

    Element (row, column) is at row * row_stride + column, its result at row * K + rank. If SIDE_BY_SIDE, they are at
    row // inner * row_stride + row % inner + column * col_stride and row // inner * inner * K + row % inner +
    rank * inner.
    """
    if SMALL:
        col_stride = col_stride.to(tl.int32)
    first_row = tl.program_id(0) * ROWS
    row = first_row + tl.arange(0, ROWS)[:, None]  # (R, 1)
    lane = tl.arange(0, LANES)[None, :]  # (1, L)
    start = row_start(tl.minimum(row, rows - 1), row_stride, inner, SIDE_BY_SIDE, SMALL)
    start, skew = aligned(start, VECTOR, RAGGED)
    loaded = read(
        x, start, skew, row < rows, cols, col_stride, LANES, VECTORS, VECTOR, INSIDE, PAIRS, RAGGED, SIDE_BY_SIDE
    )
    words = words_of(loaded, skew, lane, rows, cols, LANES, VECTOR, INSIDE, SPAN, DTYPE, LARGEST, PAIRS, RAGGED)
    lists = sorted_lists(words, lane, LANES, VECTOR, DEPTH)
    if TREE:
        top, found, following, hidden = merged_by_tree(lists, lane, K, SLOTS, LANES)
    else:
        top, found, following, hidden = merged_by_rounds(lists, lane, K + SPARE, SLOTS, LANES)
    doubt = doubts(top, following, hidden, VECTORS * VECTOR, DEPTH, TREE, K, SPARE, SPAN, DTYPE, LARGEST)

    # from here on tensors are flat, one element a thread: (R * L,)
    thread = tl.arange(0, ROWS * LANES)
    flat_row = first_row + thread // LANES
    flat_start = row_start(tl.minimum(flat_row, rows - 1), row_stride, inner, SIDE_BY_SIDE, SMALL)
    _, flat_skew = aligned(flat_start, VECTOR, RAGGED)
    apart = col_stride if SIDE_BY_SIDE else 1
    slot_stride = inner if SIDE_BY_SIDE else 1
    ranks = slots_of(thread, SLOTS, LANES)
    columns, bits = held(found, thread, flat_skew, SPAN, DTYPE, LARGEST)
    if not holds_all(DTYPE):
        bits = looked_up(x, ranks, columns, flat_start, apart, K + SPARE, PAIRS)
        if not TREE:
            ranks, doubt = neighbours_ordered(bits, found, following, doubt, lane, K + SPARE, SPAN, LARGEST, LANES)

    # all rows are written before it is known that some must be done again: the others do not wait
    outputs = (values, indices, flat_row, flat_row < rows, inner, slot_stride)
    write(outputs, ranks, columns, bits, K, SIDE_BY_SIDE, SMALL, INDICES_ONLY)
    if tl.max(tl.max(doubt, axis=1), axis=0) > 0:
        memory = (x, start + skew, cols, apart)
        doubtful = tl.reshape(tl.broadcast_to(greatest(doubt) > 0, doubt.shape), thread.shape)
        outputs_again = (values, indices, flat_row, doubtful & (flat_row < rows), inner, slot_stride)
        do_again(
            memory, outputs_again, found, lane, thread, K, LANES, VECTORS * VECTOR, VECTOR, SPAN, DEPTH, DTYPE, LARGEST,
            PAIRS, RAGGED or SIDE_BY_SIDE, SIDE_BY_SIDE, SMALL, INDICES_ONLY,
        )  # fmt: skip
