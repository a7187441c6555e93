"""Numbering the survivors of a row, so that each knows its slot before any is written.

The same input gives the same answer on every run. Two kinds are numbered at once: 0, better than the bin of the k-th
key, and 1, tied, which lie in that bin and come behind the better ones.
"""

from types import SimpleNamespace

import tilelang.language as T

HELD, LISTS, WHOLE = range(3)
"""Exchanges of a cluster, each with rows of b.block_totals of its own, so that none waits until another was read."""

EXCHANGES = 3


def slot_macros(c, scan):
    """Macros over a block's state `b`, see `state.py`."""

    @T.macro
    def exchange(turn, totals, b):
        """b.slots += what the blocks before have, b.row_totals: what all have; of both kinds. One cluster barrier."""
        for kind in T.unroll(2):
            scan.send(kind, turn * 2 + kind, b.tid, b.block, b.block_totals, totals)
        T.cluster_sync()
        for kind in T.unroll(2):
            scan.receive(kind, turn * 2 + kind, b.tid, b.block, b.block_totals, b.slots, b.row_totals)

    @T.macro
    def number_slots(turn, b):
        """b.slots: the first of this thread's better and tied elements in the row, from b.own_counts.

        b.survivors: how many slots are given out; behind them only ties are left that are not needed.
        """
        inside = T.alloc_local((2,), "int32")
        totals = T.alloc_local((2,), "int32")
        for kind in T.unroll(2):
            scan.begin(b.own_counts[kind], kind, b.tid, b.warp_totals, inside)
        T.sync_threads()
        for kind in T.unroll(2):
            scan.end(b.own_counts[kind], kind, b.tid, b.warp_totals, inside, b.slots, totals)
        if c.blocks > 1:
            exchange(turn, totals, b)
        b.slots[1] = b.slots[1] + b.k - b.remaining[0]
        b.survivors[0] = b.k
        if b.settled[0] != 0:
            b.survivors[0] = b.k - b.remaining[0] + b.bin_count[0]

    return SimpleNamespace(exchange=exchange, number_slots=number_slots)
