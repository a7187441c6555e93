"""The best k of every row, by radix selection, in TileLang.

1. Registers take in the row, or an even sample of one that is longer.
2. Digits are counted from the top, in shared memory, until those at or before the bin of the k-th rank (the survivors)
   fit a list, or all digits are spent; then ties are cut to the number needed.
3. The survivors are listed. Of a longer row, the rest is read once, and what the sample does not rule out is appended.
   If that does not fit after all, the digits are counted anew over the whole row: more reads, never a wrong answer.
4. The list is sorted, and its first k written.

Kin: radix selection with an early stop as in AIR top-k (Zhang et al., SC 2023), thresholds from a sample as in
vector-search libraries, a cluster's histograms summed through distributed shared memory.
"""

from types import SimpleNamespace

import tilelang.language as T

from autotopk.strategies._radix.cluster import PRELUDE, cluster_macros
from autotopk.strategies._radix.constants import Constants
from autotopk.strategies._radix.ordering import ordering_macros, sort_bins
from autotopk.strategies._radix.ranks import rank_macros
from autotopk.strategies._radix.rows import row_macros
from autotopk.strategies._radix.scan import scan_macros
from autotopk.strategies._radix.selection import selection_macros
from autotopk.strategies._radix.survivors import survivor_macros


class Block(SimpleNamespace):
    """The buffers and positions of one block, by name, while its kernel is traced."""


def radix_topk(**constants):
    """The kernel for (rows, cols) to (rows, k); the constants are those of `Constants`."""
    c = Constants(**constants)
    number = c.number
    ranks = rank_macros(c)
    scan = scan_macros(c)
    cluster = cluster_macros(c)
    rows_ = row_macros(c, ranks)
    selection = selection_macros(c, scan, cluster)
    survivors = survivor_macros(c, scan, cluster, rows_)
    ordering = ordering_macros(c, ranks, scan)
    vectors, outputs = T.dynamic("vectors"), T.dynamic("outputs")
    launch = {"cluster_dims": c.blocks, "prelude": PRELUDE} if c.blocks > 1 else {}
    capacity, chunk = max(1, c.capacity), max(1, c.bins // c.warps)
    bins = sort_bins(c) if c.capacity else 1
    turns = [(turn % 2, shift, width) for turn, (shift, width) in enumerate(c.digits)]

    def own_list(columns):
        """Where a block appends what it finds: in a cluster not the list of the row, which others write to."""
        return T.alloc_shared((capacity,), "int32") if c.streams and c.blocks > 1 else columns

    @T.macro
    def narrow(visit, room, b):
        """Counts digits until at most `room` survive."""
        b.room[0] = room
        b.prefix[0] = number(0)
        b.need[0] = b.k
        b.settled[0] = 0
        for turn, shift, width in turns:
            if b.settled[0] == 0:
                visit(selection.counting(turn, shift, width), b)
                selection.select(turn, shift, width, b)

    @T.macro
    def clear(b):
        selection.clear(0, b)
        if c.capacity > 0:
            ordering.clear(b)
        if b.tid == 0:
            b.cursor[0] = 0

    @T.prim_func
    def radix_topk_rows(
        x: T.Tensor((vectors, c.vector), c.element),
        values: T.Tensor((outputs,), c.element),
        indices: T.Tensor((outputs,), c.index),
        rows: T.int32,
        cols: T.int32,
        k: T.int32,
        row_stride: T.int64,
    ):
        with T.Kernel(rows * c.blocks, threads=c.threads, **launch) as program:
            T.annotate_min_blocks_per_sm(max(1, 1024 // c.threads))  # at most 64 registers
            tid = T.get_thread_binding(0)
            rounds = T.alloc_var("int32")
            rounds = T.ceildiv(cols, rows_.round)
            columns = T.alloc_shared((capacity,), "int32")
            sorted_ranks = T.alloc_shared((bins,), c.word)
            intervals = T.alloc_shared((bins,), c.word)
            b = Block(
                x=x,
                values=values,
                indices=indices,
                tid=tid,
                lane=tid % 32,
                warp=tid // 32,
                block=program % c.blocks,
                start=T.Cast("int64", program // c.blocks) * (row_stride // c.vector),
                out=T.Cast("int64", program // c.blocks) * T.Cast("int64", k),
                cols=cols,
                k=k,
                rounds=rounds,
                # shared by the block
                histogram=T.alloc_shared((2, c.bins), "int32"),
                totals=T.alloc_shared((2, 32), "int32"),
                parts=T.alloc_shared((c.blocks, max(c.warps, chunk)) if c.blocks > 1 else (1, 1), "int32"),
                sums=T.alloc_shared((2, 32), "int32"),
                shares=T.alloc_shared((3 * 2 * 32,), "int32"),
                cursor=T.alloc_shared((1,), "int32"),
                columns=columns,
                passed=own_list(columns),
                sorted_ranks=sorted_ranks,
                intervals=intervals,
                lows=sorted_ranks,  # no longer needed when these are written
                highs=intervals,
                counts=T.alloc_shared((bins,), "int32"),
                finer=T.alloc_shared((bins,), "int32"),
                sort_totals=T.alloc_shared((32,), "int32"),
                ends=T.alloc_shared((2, 32), c.word),
                # of a thread
                raw=T.alloc_local((c.items,), c.element),
                ranks=T.alloc_local((c.items,), c.word),
                marks=T.alloc_local((2,), "uint32"),
                prefix=T.alloc_local((1,), c.word),
                edge=T.alloc_local((1,), c.word),
                span=T.alloc_local((1,), c.word),
                room=T.alloc_local((1,), "int32"),
                need=T.alloc_local((1,), "int32"),
                here=T.alloc_local((1,), "int32"),
                settled=T.alloc_local((1,), "int32"),
                limit=T.alloc_local((1,), "int32"),
                mine=T.alloc_local((2,), "int32"),
                slot=T.alloc_local((2,), "int32"),
                sum=T.alloc_local((2,), "int32"),
            )
            clear(b)
            if c.streams and c.capacity == 0:
                cluster.sync_row()
                narrow(rows_.whole, c.capacity, b)
                survivors.from_whole(b)
            else:
                rows_.load(b)
                T.sync_threads()
                rows_.rank_held(b)
                room = T.alloc_var("int32")
                room = c.capacity
                if c.streams:  # what a sample lets through comes again with the rest
                    room = T.max(k, T.Cast("int32", T.Cast("int64", c.capacity // 2 * c.groups) // rounds))
                narrow(rows_.held, room, b)
                survivors.from_held(b)
                if c.streams:
                    rows_.rest(survivors.pass_rest, b)
                    survivors.gather(b)
                    if b.limit[0] > c.capacity:
                        T.sync_threads()
                        selection.clear(0, b)
                        selection.clear(1, b)
                        T.sync_threads()
                        narrow(rows_.whole, c.capacity, b)
                        survivors.from_whole(b)
            if c.capacity > 0:
                cluster.sync_row()
                if b.block == 0:
                    ordering.order(b)

    return radix_topk_rows
