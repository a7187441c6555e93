"""Top-k of rows spread over lanes: every lane sorts its share, then the lanes' lists are merged.

A row belongs to LANES lanes of one warp; loads are 16 bytes wide, VECTORS of them a lane. An element and its place
are one word (see `packing`), so that sorting networks, minima and maxima move both at once. The lists are merged
either by rounds, in each of which the best head of all lists is taken off, or by a tree, in which lists are merged
pairwise. A round costs a reduction over one register, a level of the tree as many shuffles as the list is long.

Words of float32 lack the last bits of the element. One element more than asked for is taken, the elements are read
again by their places, and neighbours whose words are alike are put in order by what was read. What this cannot tell
(three or more alike and out of order, NaNs, a lane whose list ran out) is rare on any but adversarial data: those
rows are done again by `masking`, which needs nothing but order.
"""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.masking import best_columns
from autotopk.strategies._short_rows.networks import best_in_order, merged_2, merged_4
from autotopk.strategies._short_rows.order import float_key
from autotopk.strategies._short_rows.packing import ABSENT, float32_bits, floor_key, free_bits, packed, unpacked

INFINITY = tl.constexpr(0x7F800000)
LOWEST = tl.constexpr(-(1 << 31))
"""The key of a list's end, below that of every word."""


@triton.jit
def halves(x):
    """(R, 2m) to its even and its odd columns, (R, m) each, within the thread."""
    return tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))


@triton.jit
def columns(x, WIDTH: tl.constexpr):
    """(R, L * WIDTH), WIDTH adjacent columns a lane, to WIDTH tensors (R, L) in the order of columns."""
    xs = (x,)
    for s in tl.static_range(0, 3):
        if (1 << s) < WIDTH:
            evens = ()
            odds = ()
            for i in tl.static_range(0, 1 << s):
                even, odd = halves(xs[i])
                evens = evens + (even,)
                odds = odds + (odd,)
            xs = evens + odds
    return xs


@triton.jit
def elements_of_words(words, VECTOR: tl.constexpr, DTYPE: tl.constexpr):
    """(R, L * VECTOR / 2) int32, two 16-bit elements each, to VECTOR tensors (R, L) of float32 bits."""
    parts = columns(words, VECTOR // 2)
    bits = ()
    for i in tl.static_range(0, VECTOR // 2):
        if DTYPE == "bfloat16":
            bits = bits + (parts[i] << 16, parts[i] & -65536)
        else:
            bits = bits + (float32_bits(parts[i] & 0xFFFF, DTYPE), float32_bits(parts[i] >> 16, DTYPE))
    return bits


@triton.jit
def elements(x, VECTOR: tl.constexpr, DTYPE: tl.constexpr):
    """(R, L * VECTOR) elements to VECTOR tensors (R, L) of float32 bits."""
    parts = columns(x, VECTOR)
    bits = ()
    for i in tl.static_range(0, VECTOR):
        bits = bits + (float32_bits(parts[i], DTYPE),)
    return bits


@triton.jit
def marked(found, best, lane, SLOT: tl.constexpr, LANES: tl.constexpr):
    """Slots, L in each of the tensors (R, L), with (R, 1) `best` in one of them."""
    slots = ()
    for t in tl.static_range(0, len(found)):
        if SLOT // LANES == t:
            slots = slots + (tl.where(lane == SLOT % LANES, best, found[t]),)
        else:
            slots = slots + (found[t],)
    return slots


@triton.jit
def popped(lists, best):
    """The lanes' lists without their heads where those are (R, 1) `best`."""
    taken = lists[0] == best
    rest = ()
    for d in tl.static_range(1, len(lists)):
        rest = rest + (tl.where(taken, lists[d], lists[d - 1]),)
    return rest + (tl.where(taken, LOWEST, lists[len(lists) - 1]),)


@triton.jit
def greatest(x):
    """(R, L) to (R, 1)."""
    return tl.max(x, axis=1)[:, None]


@triton.jit
def alike(a, b, SPAN: tl.constexpr):
    """Whether keys differ in no bit but those that the place takes."""
    return (a ^ b).to(tl.uint32, bitcast=True) < SPAN


@triton.jit
def shifted(slots, t: tl.constexpr, lane, STEP: tl.constexpr, LANES: tl.constexpr):
    """Slots one further (STEP 1) or nearer (-1), as seen from tensor t of them; at either end, anything."""
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
def row_start(row, row_stride, inner, SIDE_BY_SIDE: tl.constexpr, SMALL: tl.constexpr):
    """Offset of a row's first element. SMALL: offsets fit 32 bits."""
    if SIDE_BY_SIDE:
        group = row // inner
        within = row % inner
    else:
        group = row
        within = 0
    if SMALL:
        return group * row_stride.to(tl.int32) + within
    else:
        return group.to(tl.int64) * row_stride + within


@triton.jit
def out_start(row, inner, K: tl.constexpr, SIDE_BY_SIDE: tl.constexpr, SMALL: tl.constexpr):
    """Offset of a row's first result; slots are `inner` apart where rows are side by side, else adjacent."""
    if not SMALL:
        row = row.to(tl.int64)
    if SIDE_BY_SIDE:
        return row // inner * inner * K + row % inner
    else:
        return row * K


@triton.constexpr_function
def infinity(DTYPE):
    """Its bits."""
    return {"float32": 0x7F800000, "bfloat16": 0x7F80, "float16": 0x7C00}[DTYPE]


@triton.jit
def do_again(
    x,
    values,
    indices,
    wanted,
    cols,
    col_stride,
    slot_stride,
    K: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The `wanted` of some rows by masking; pointers are (R, 1), to where the rows and their results begin."""
    column = tl.arange(0, BLOCK_COLS)[None, :]
    slot = tl.arange(0, BLOCK_K)[None, :]
    present = wanted & (column < cols)
    bits = tl.load(x + column * col_stride, mask=present, other=0)
    last_bit: tl.constexpr = 15 if free_bits(DTYPE) > 0 else 31
    at = best_columns(bits, present, column, K, BLOCK_K, False, LOWEST, False, infinity(DTYPE), last_bit, LARGEST)
    filled = wanted & (slot < K)
    tl.store(values + slot * slot_stride, tl.load(x + at * col_stride, mask=filled, other=0), mask=filled)
    tl.store(indices + slot * slot_stride, at.to(tl.int64), mask=filled)


@triton.jit
def read(
    x,
    start,
    skew,
    present,
    cols,
    col_stride,
    LANES: tl.constexpr,
    VECTORS: tl.constexpr,
    VECTOR: tl.constexpr,
    INSIDE: tl.constexpr,
    PAIRS: tl.constexpr,
    RAGGED: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
):
    """Rows as VECTORS tensors (R, LANES * VECTOR); elements outside of a row are anything. All loads are in flight.

    `start` and `present` are (R, 1): where rows begin, and whether they exist. Vectors that lie in every row are read
    whole, those at a ragged row's ends one element a load.
    """
    STEP: tl.constexpr = LANES * VECTOR
    WORD: tl.constexpr = 2 if PAIRS else 1
    loaded = ()
    for j in tl.static_range(0, VECTORS):
        if SIDE_BY_SIDE:
            column = tl.arange(0, STEP)[None, :] + j * STEP
            at = x + (start + column * col_stride)
        elif at_an_end(j, INSIDE, RAGGED):
            column = tl.arange(0, STEP)[None, :] + j * STEP - skew
            at = narrow(x, PAIRS) + (start + (column + skew))
        else:
            word = tl.arange(0, STEP // WORD)[None, :] + j * (STEP // WORD)
            column = word * WORD
            at = x + (start // WORD + word)
        if j < INSIDE and not at_an_end(j, INSIDE, RAGGED):
            loaded = loaded + (tl.load(at),)
        else:
            loaded = loaded + (tl.load(at, mask=present & (column >= 0) & (column < cols), other=0),)
    return loaded


@triton.constexpr_function
def at_an_end(j, INSIDE, RAGGED):
    """Whether vector j of a ragged row may lie partly outside of it."""
    return RAGGED and (j == 0 or j >= INSIDE)


@triton.jit
def narrow(x, PAIRS: tl.constexpr):
    """The pointer to single elements."""
    if PAIRS:
        return x.to(tl.pointer_type(tl.int16), bitcast=True)
    else:
        return x


@triton.jit
def words_of(
    loaded,
    skew,
    lane,
    rows,
    cols,
    LANES: tl.constexpr,
    VECTOR: tl.constexpr,
    INSIDE: tl.constexpr,
    SPAN: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """What was read as words, (R, L) each, the lane's part of their places still zero.

    The place of column c is SPAN - 1 - c, so that of equals the first is the larger.
    """
    STEP: tl.constexpr = LANES * VECTOR
    cut = tl.where(rows > 0, -SPAN, 0)  # no constant to the compiler, which would make two instructions of and, or
    words = ()
    for j in tl.static_range(0, len(loaded)):
        if PAIRS and not at_an_end(j, INSIDE, RAGGED):
            bits = elements_of_words(loaded[j], VECTOR, DTYPE)
        else:
            bits = elements(loaded[j], VECTOR, DTYPE)
        for u in tl.static_range(0, VECTOR):
            word = packed(bits[u], cut, SPAN - STEP * (j + 1) + VECTOR - 1 - u, DTYPE, LARGEST)
            if at_an_end(j, INSIDE, RAGGED):
                column = lane * VECTOR + (j * STEP + u) - skew
                word = tl.where((column >= 0) & (column < cols), word, ABSENT)
            elif j >= INSIDE:
                word = tl.where(lane * VECTOR + j * STEP < cols, word, ABSENT)
            words = words + (word,)
    return words


@triton.jit
def empty(ROWS: tl.constexpr, LANES: tl.constexpr):
    """(R, L) of LOWEST."""
    return tl.full((ROWS, LANES), LOWEST, tl.int32)


@triton.jit
def merged_by_tree(lists, K: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):
    """The K <= 4 best keys of the lanes' lists, (R, 1) each."""
    heads = lists + (empty(ROWS, LANES), empty(ROWS, LANES), empty(ROWS, LANES))
    if K <= 2:
        top = tl.reduce((heads[0], heads[1]), 1, merged_2)
    else:
        top = tl.reduce((heads[0], heads[1], heads[2], heads[3]), 1, merged_4)
    best = ()
    for i in tl.static_range(0, K):
        best = best + (top[i][:, None],)
    return best


@triton.jit
def greatest_below(lists, key, ROWS: tl.constexpr, LANES: tl.constexpr):
    """The best key of the lists that is less than (R, 1) `key`, (R, 1)."""
    best = empty(ROWS, LANES)
    for d in tl.static_range(0, len(lists)):
        best = tl.maximum(best, tl.where(lists[d] < key, lists[d], LOWEST))
    return greatest(best)


@triton.jit
def lane_merge_rows(
    x,
    values,
    indices,
    rows,
    cols,
    row_stride,
    col_stride,
    inner,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    VECTORS: tl.constexpr,
    VECTOR: tl.constexpr,
    INSIDE: tl.constexpr,
    SPAN: tl.constexpr,
    DEPTH: tl.constexpr,
    TREE: tl.constexpr,
    K: tl.constexpr,
    SPARE: tl.constexpr,
    SLOTS: tl.constexpr,
    DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
    RAGGED: tl.constexpr,
    SIDE_BY_SIDE: tl.constexpr,
    SMALL: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """(rows, cols) floats to sorted (rows, K); x and values are seen as integers. ROWS rows a program.

    PAIRS: x is seen as int32, two elements each. INSIDE: so many vectors of a lane lie in every row. SPAN: places, a
    power of two. SPARE: 1 where one more than K is taken. SLOTS: tensors (R, L) that hold what is taken. RAGGED: rows
    are read from the 16 bytes on in which they begin. SIDE_BY_SIDE: element (row, column) is at
    row // inner * row_stride + row % inner + column * col_stride, and its result likewise. SMALL: offsets fit 32 bits.
    TOGETHER: what is done again fits in registers for all rows at once.
    """
    COUNT: tl.constexpr = VECTORS * VECTOR
    TAKEN: tl.constexpr = K + SPARE
    WHOLE: tl.constexpr = free_bits(DTYPE) > 0  # words hold all of an element
    if SMALL:
        col_stride = col_stride.to(tl.int32)
    first_row = tl.program_id(0) * ROWS
    row = first_row + tl.arange(0, ROWS)[:, None]  # (R, 1)
    lane = tl.arange(0, LANES)[None, :]  # (1, L)
    start = row_start(tl.minimum(row, rows - 1), row_stride, inner, SIDE_BY_SIDE, SMALL)
    skew = tl.zeros_like(row)
    if RAGGED:
        skew = (start % VECTOR).to(tl.int32)
        start = start // VECTOR * VECTOR

    # every lane sorts its share
    loaded = read(
        x, start, skew, row < rows, cols, col_stride, LANES, VECTORS, VECTOR, INSIDE, PAIRS, RAGGED, SIDE_BY_SIDE
    )
    words = words_of(loaded, skew, lane, rows, cols, LANES, VECTOR, INSIDE, SPAN, DTYPE, LARGEST, PAIRS, RAGGED)
    best = best_in_order(words, COUNT, DEPTH)
    lists = ()
    for d in tl.static_range(0, DEPTH):
        lists = lists + (float_key(best[d].to(tl.int32, bitcast=True) | (LANES - 1 - lane) * VECTOR),)

    # the lists are merged: `following` is the key after the last one taken
    found = ()
    for _ in tl.static_range(0, SLOTS):
        found = found + (empty(ROWS, LANES),)
    doubt = tl.zeros((ROWS, LANES), tl.int32)
    if TREE:
        top = merged_by_tree(lists, K, ROWS, LANES)
        for i in tl.static_range(0, K):
            found = marked(found, top[i], lane, i, LANES)
        first = top[0]
        last = top[K - 1]
        following = greatest_below(lists, last, ROWS, LANES)
        hidden = lists[DEPTH - 1] >= last
        if not WHOLE:
            for i in tl.static_range(1, K):
                doubt |= alike(top[i - 1], top[i], SPAN).to(tl.int32)
    else:
        first = greatest(lists[0])
        last = first
        following = first
        for i in tl.static_range(0, TAKEN):
            found = marked(found, following, lane, i, LANES)
            if i < K:
                last = following
            lists = popped(lists, following)
            following = greatest(lists[0])
        hidden = lists[0] == LOWEST

    # which rows need a closer look
    doubt |= (first >= INFINITY).to(tl.int32)
    if not (WHOLE and LARGEST):
        doubt |= (last <= floor_key(DTYPE, SPAN)).to(tl.int32)
    if not WHOLE and SPARE == 0:
        doubt |= alike(last, following, SPAN).to(tl.int32)
    if DEPTH < COUNT and DEPTH < (K if WHOLE else TAKEN + 1):  # a list that ran out hides what follows
        doubt |= hidden.to(tl.int32)

    # from here on threads are a line, (R * L,): slot, column and element
    thread = tl.arange(0, ROWS * LANES)
    flat_row = first_row + thread // LANES
    flat_start = row_start(tl.minimum(flat_row, rows - 1), row_stride, inner, SIDE_BY_SIDE, SMALL)
    flat_skew = tl.zeros_like(thread)
    if RAGGED:
        flat_skew = (flat_start % VECTOR).to(tl.int32)
    apart = 1
    slot_stride = 1
    if SIDE_BY_SIDE:
        apart = col_stride
        slot_stride = inner
    ranks = ()
    chosen = ()
    bits = ()
    for t in tl.static_range(0, SLOTS):
        ranks = ranks + (thread % LANES + t * LANES,)
        place, value = unpacked(tl.reshape(found[t], (ROWS * LANES,)), SPAN, DTYPE, LARGEST)
        at = SPAN - 1 - place - flat_skew
        if not WHOLE:
            value = tl.load(narrow(x, PAIRS) + (flat_start + at * apart), mask=ranks[t] < TAKEN, other=0)
        chosen = chosen + (at,)
        bits = bits + (value,)

    if not WHOLE and not TREE:  # neighbours alike are put in order
        keys = ()
        for t in tl.static_range(0, SLOTS):
            key = float_key(bits[t])
            if not LARGEST:
                key = -1 - key
            keys = keys + (tl.reshape(key, (ROWS, LANES)),)
        ordered = ()
        for t in tl.static_range(0, SLOTS):
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
            ordered = ordered + (tl.reshape(rank, (ROWS * LANES,)),)
        ranks = ordered

    # all rows are written before it is known that some must be done again: the others do not wait
    out = out_start(flat_row, inner, K, SIDE_BY_SIDE, SMALL)
    for t in tl.static_range(0, SLOTS):
        wanted = (flat_row < rows) & (ranks[t] < K)
        tl.store(values + (out + ranks[t] * slot_stride), bits[t], mask=wanted)
        tl.store(indices + (out + ranks[t] * slot_stride), chosen[t].to(tl.int64), mask=wanted)
    if tl.max(tl.max(doubt, axis=1), axis=0) > 0:
        tl.debug_barrier()  # other threads write the same addresses
        if TOGETHER:
            one = tl.minimum(row, rows - 1)
            place_in = row_start(one, row_stride, inner, SIDE_BY_SIDE, False)
            place_out = out_start(one, inner, K, SIDE_BY_SIDE, False)
            do_again(
                narrow(x, PAIRS) + place_in,
                values + place_out,
                indices + place_out,
                (row < rows) & (greatest(doubt) > 0),
                cols,
                apart,
                slot_stride,
                K,
                DTYPE,
                LARGEST,
                BLOCK_COLS,
                BLOCK_K,
            )
        else:
            doubtful = tl.max(doubt, axis=1)
            for r in range(tl.minimum(ROWS, rows - first_row)):
                if tl.max(tl.where(tl.arange(0, ROWS) == r, doubtful, 0), axis=0) > 0:
                    one = first_row + r + tl.zeros((1, 1), tl.int32)
                    place_in = row_start(one, row_stride, inner, SIDE_BY_SIDE, False)
                    place_out = out_start(one, inner, K, SIDE_BY_SIDE, False)
                    do_again(
                        narrow(x, PAIRS) + place_in,
                        values + place_out,
                        indices + place_out,
                        one < rows,
                        cols,
                        apart,
                        slot_stride,
                        K,
                        DTYPE,
                        LARGEST,
                        BLOCK_COLS,
                        BLOCK_K,
                    )
