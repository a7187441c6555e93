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

from autotopk.strategies._short_rows.addresses import aligned, narrow, row_start, words_from
from autotopk.strategies._short_rows.again import do_again
from autotopk.strategies._short_rows.merging import greatest, merged_by_rounds, merged_by_tree, sorted_lists
from autotopk.strategies._short_rows.packing import holds_all
from autotopk.strategies._short_rows.reading import read, words_of
from autotopk.strategies._short_rows.results import held, looked_up, slots_of, write
from autotopk.strategies._short_rows.settling import doubts, neighbours_alike, neighbours_ordered


@triton.constexpr_function
def most(TREE, ROUNDS, SLOTS, LANES, DTYPE):
    """The largest k."""
    return TREE or (ROUNDS - (not holds_all(DTYPE)) if ROUNDS else SLOTS * LANES)


@triton.constexpr_function
def may_end(DEPTH, SHARE, TREE, ROUNDS, SLOTS, LANES, DTYPE):
    """Whether a list may end before its lane's share does: it may have all that are taken, and of float32 the next."""
    taken = TREE or ROUNDS or SLOTS * LANES
    return DEPTH < SHARE and (DEPTH < taken if holds_all(DTYPE) else DEPTH <= taken)


@triton.jit
def wanted(k, cols, ROUNDS: tl.constexpr, SLOTS: tl.constexpr, LANES: tl.constexpr, DTYPE: tl.constexpr):
    """How many of a row are taken: of float32 one more than k, if there is one, and a place for it."""
    if ROUNDS > 0:
        return tl.minimum(ROUNDS, cols)
    else:
        return tl.minimum(k if holds_all(DTYPE) else k + 1, tl.minimum(SLOTS * LANES, cols))


@triton.jit
def lane_merge_rows(
    x,  # pointer to integers as wide as an element; if PAIRS, to int32
    values,  # pointer to integers as wide as an element
    indices,  # pointer to int64, or to int32 if indices_only
    rows,
    cols,
    k,
    row_stride,
    col_stride,
    inner,
    indices_only,  # int32 indices alone are written, `values` is null
    ROWS: tl.constexpr,  # rows of a program
    LANES: tl.constexpr,  # lanes of a row, a power of two up to 32
    VECTORS: tl.constexpr,  # vectors that a lane reads
    VECTOR: tl.constexpr,  # elements of a vector, which is one load: a power of two up to 8
    INSIDE: tl.constexpr,  # so many of a lane's vectors lie inside of every row
    SPAN: tl.constexpr,  # places that words tell apart: a power of two, at least LANES * VECTORS * VECTOR
    DEPTH: tl.constexpr,  # length of a lane's list: VECTORS * VECTOR, or a power of two below it
    TREE: tl.constexpr,  # 2 or 4: lists are merged by a tree, k is at most that; 0: by rounds
    ROUNDS: tl.constexpr,  # so many, k is at most that; 0: one for each of k, and one more for float32
    SLOTS: tl.constexpr,  # tensors (R, L) that hold what is taken: SLOTS * LANES is at least TREE, ROUNDS or k
    DTYPE: tl.constexpr,  # "float32", "bfloat16" or "float16"
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,  # two elements of 16 bits are read as one int32
    RAGGED: tl.constexpr,  # rows begin anywhere and are read from the vector on in which they begin
    SIDE_BY_SIDE: tl.constexpr,  # rows, not columns, are adjacent
):
    """(rows, cols) floats to sorted (rows, k).

    Element (row, column) is at row * row_stride + column, its result at row * k + rank; if SIDE_BY_SIDE at row // inner
    * row_stride + row % inner + column * col_stride, and at row // inner * inner * k + row % inner + rank * inner.
    """
    apart = col_stride.to(tl.int32) if SIDE_BY_SIDE else 1
    slot_stride = inner if SIDE_BY_SIDE else 1
    first_row = tl.program_id(0) * ROWS
    row = first_row + tl.arange(0, ROWS)[:, None]  # (R, 1)
    lane = tl.arange(0, LANES)[None, :]  # (1, L)
    begin = row_start(tl.minimum(row, rows - 1), row_stride, inner, SIDE_BY_SIDE)
    start, skew = aligned(begin, VECTOR, RAGGED)
    loaded = read(
        x, start, skew, cols, apart, LANES, VECTORS, VECTOR, INSIDE, DTYPE, LARGEST, PAIRS, RAGGED, SIDE_BY_SIDE
    )
    words = words_of(loaded, rows, LANES, VECTOR, INSIDE, SPAN, DTYPE, LARGEST, PAIRS, RAGGED)
    lists = sorted_lists(words, lane, LANES, VECTOR, DEPTH)
    taken = wanted(k, cols, ROUNDS, SLOTS, LANES, DTYPE)
    if TREE:
        top, found, following, hidden = merged_by_tree(lists, lane, k, TREE, SLOTS, LANES)
    else:
        found, following, hidden = merged_by_rounds(lists, lane, taken, ROUNDS, SLOTS, LANES)

    thread = tl.arange(0, ROWS * LANES)  # what follows has, flat, one element a thread: (R * L,)
    flat_row = first_row + thread // LANES
    flat_start = row_start(tl.minimum(flat_row, rows - 1), row_stride, inner, SIDE_BY_SIDE)
    _, flat_skew = aligned(flat_start, VECTOR, RAGGED)
    flat_from = narrow(x, PAIRS) + flat_start
    ranks = slots_of(thread, SLOTS, LANES)
    columns, bits = held(found, thread, flat_skew, SPAN, DTYPE, LARGEST)
    MOST: tl.constexpr = most(TREE, ROUNDS, SLOTS, LANES, DTYPE)
    MAY_END: tl.constexpr = may_end(DEPTH, VECTORS * VECTOR, TREE, ROUNDS, SLOTS, LANES, DTYPE)
    doubt = doubts(found, columns, hidden, thread, k, cols, LANES, MAY_END, DTYPE, LARGEST)
    if not holds_all(DTYPE):
        bits = looked_up(flat_from, columns, cols, apart, LARGEST)
        if TREE:
            doubt = neighbours_alike(top, following, doubt, k, SPAN)
        else:
            ranks, doubt = neighbours_ordered(bits, found, following, doubt, lane, k, taken, SPAN, LARGEST, LANES)

    # all rows are written before it is known that some must be done again: the others do not wait
    outputs = (values, indices, indices_only, flat_row, flat_row < rows, inner, slot_stride)
    write(outputs, ranks, columns, bits, k, SIDE_BY_SIDE)
    if tl.max(tl.max(doubt, axis=1), axis=0) > 0:
        BY_ONE: tl.constexpr = RAGGED or SIDE_BY_SIDE
        row_from = narrow(x, PAIRS) + begin if BY_ONE else words_from(x, begin, PAIRS)
        doubtful = tl.reshape(tl.broadcast_to(greatest(doubt) > 0, doubt.shape), thread.shape)
        outputs_again = (values, indices, indices_only, flat_row, doubtful & (flat_row < rows), inner, slot_stride)
        do_again(
            (row_from, cols, apart), flat_from, outputs_again, found, lane, thread, k, MOST if TREE + ROUNDS > 0 else k,
            MOST, LANES, VECTORS * VECTOR, 1 if BY_ONE else VECTOR, SPAN, DEPTH, DTYPE, LARGEST, PAIRS and not BY_ONE,
            SIDE_BY_SIDE,
        )  # fmt: skip
