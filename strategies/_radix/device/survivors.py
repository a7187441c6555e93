"""Collecting what can be among the best k: everything better than the bin of the k-th key, and that bin."""

from types import SimpleNamespace

import tilelang.language as T

from autotopk.strategies._radix.device.slots import HELD, LISTS, WHOLE


def marking_macros():
    """Visitors that note an element as better than the bin, or as in it."""

    @T.macro
    def tally(key, column, i, b):
        """b.own_counts[0]: better than the bin; [1]: in it."""
        if key < b.bin_first[0]:
            b.own_counts[0] = b.own_counts[0] + 1
        elif key - b.bin_first[0] <= b.bin_span[0]:
            b.own_counts[1] = b.own_counts[1] + 1

    @T.macro
    def mark_all(key, column, i, b):
        """b.marks[0]: one bit for each survivor held."""
        if key <= b.bin_first[0] + b.bin_span[0]:
            b.marks[0] = b.marks[0] | T.uint32(1 << i)

    @T.macro
    def mark(key, column, i, b):
        """The same in two: better than the bin, and in it."""
        if key < b.bin_first[0]:
            b.marks[0] = b.marks[0] | T.uint32(1 << i)
        elif key - b.bin_first[0] <= b.bin_span[0]:
            b.marks[1] = b.marks[1] | T.uint32(1 << i)

    return SimpleNamespace(tally=tally, mark_all=mark_all, mark=mark)


def list_macros(c, cluster, slots, answer):
    """Where survivors go: to a slot of the row's list or of the answer, or to the end of the block's own list."""
    own = c.word if c.blocks > 1 else "int32"

    @T.macro
    def put(column, slot, b):
        """To a slot of the first block's list; where nothing is sorted, straight to the answer."""
        if c.capacity > 0:
            if c.blocks > 1:
                cluster.store(T.address_of(b.columns[slot]), 0, column)
            else:
                b.columns[slot] = column
        else:
            answer.write(column, slot, b)

    @T.macro
    def append(column, slot, b):
        """To this block's list, in no order. All are counted, also those for which there is no room."""
        at = T.alloc_var("int32")
        at = T.atomic_add(b.appended[0], 1, return_prev=True)
        if at < c.capacity:
            b.own_columns[at] = T.Cast(own, column)

    @T.macro
    def gather(b):
        """Brings the blocks' lists together in the first block's. b.survivors: how many, whether they fit or not."""
        T.sync_threads()
        if c.blocks > 1:
            totals = T.alloc_local((2,), "int32")
            totals[0] = T.atomic_load(b.appended[0])
            totals[1] = 0
            b.slots[0] = 0
            b.slots[1] = 0
            slots.exchange(LISTS, totals, b)
            b.survivors[0] = b.row_totals[0]
            if b.survivors[0] <= c.capacity:
                at = T.alloc_var("int32")
                at = b.tid
                while at < totals[0]:
                    cluster.store(T.address_of(b.columns[b.slots[0] + at]), 0, T.Cast("int32", b.own_columns[at]))
                    at = at + c.threads
        else:
            b.survivors[0] = T.atomic_load(b.appended[0])

    return SimpleNamespace(put=put, append=append, gather=gather)


def survivor_macros(c, slots, lists, rows, at):
    """Macros over a block's state `b`, see `state.py`."""
    marking = marking_macros()

    @T.macro
    def take(kind, accept, b):
        """Calls accept(column, slot, b) for the marked elements of a kind, in order."""
        left = T.alloc_var("uint32")
        left = b.marks[kind]
        while left != T.uint32(0):
            i = T.alloc_var("int32")
            i = 31 - T.Cast("int32", T.clz(left & (T.uint32(0) - left)))
            left = left & (left - T.uint32(1))
            column = T.alloc_var("int32")
            column = at.column(at.held_round(i // c.vector, b), b) + i % c.vector
            if b.slots[kind] < b.survivors[0]:
                accept(column, b.slots[kind], b)
            b.slots[kind] = b.slots[kind] + 1

    @T.macro
    def from_held(b):
        """The survivors of what is held: to their slots, or where more follow, to the block's list."""
        b.marks[0] = T.uint32(0)
        b.marks[1] = T.uint32(0)
        if b.settled[0] != 0:
            rows.held(marking.mark_all, b)
        else:
            rows.held(marking.mark, b)
        b.own_counts[0] = T.Cast("int32", T.popcount(b.marks[0]))
        b.own_counts[1] = T.Cast("int32", T.popcount(b.marks[1]))
        slots.number_slots(HELD, b)
        if c.samples and at.longer(b):
            take(0, lists.append, b)
            take(1, lists.append, b)
        else:
            take(0, lists.put, b)
            take(1, lists.put, b)

    @T.macro
    def pass_rest(key, column, i, b):
        """A survivor of the rest of the row. Ties are out where k elements at least as good are held."""
        if key < b.bin_first[0]:
            lists.append(column, 0, b)
        elif b.settled[0] != 0 and key - b.bin_first[0] <= b.bin_span[0]:
            lists.append(column, 0, b)

    @T.macro
    def emit(key, column, i, b):
        """An element of the row to its slot."""
        if key < b.bin_first[0]:
            lists.put(column, b.slots[0], b)
            b.slots[0] = b.slots[0] + 1
        elif key - b.bin_first[0] <= b.bin_span[0]:
            if b.slots[1] < b.survivors[0]:
                lists.put(column, b.slots[1], b)
            b.slots[1] = b.slots[1] + 1

    @T.macro
    def from_whole(b):
        """The survivors of the row, read twice more: to count, and to put."""
        b.own_counts[0] = 0
        b.own_counts[1] = 0
        rows.whole(marking.tally, b)
        slots.number_slots(WHOLE, b)
        rows.whole(emit, b)

    return SimpleNamespace(from_held=from_held, pass_rest=pass_rest, from_whole=from_whole)
