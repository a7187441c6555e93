"""The best k of every row, by radix selection, in TileLang.

1. Registers take in the row, or an even sample of one that is longer.
2. Digits are counted from the top, in shared memory, until those at or before the bin of the k-th key (the survivors)
   fit a list, or all digits are spent; then ties are cut to the number needed.
3. The survivors are listed. Of a longer row, the rest is read once, and what the sample does not rule out is appended.
   If that does not fit after all, the digits are counted anew over the whole row: more reads, never a wrong answer.
4. The list is sorted, and its first k written.

Kin: radix selection with an early stop as in AIR top-k (Zhang et al., SC 2023), thresholds from a sample as in
vector-search libraries, a cluster's histograms summed through distributed shared memory.
"""

from types import SimpleNamespace

import tilelang.language as T

from autotopk.strategies._collectives.cluster import cluster_macros, launch_options
from autotopk.strategies._collectives.scan import scan_macros
from autotopk.strategies._radix.device.answer import answer_macros
from autotopk.strategies._radix.device.constants import Constants
from autotopk.strategies._radix.device.counting import counting_macros
from autotopk.strategies._radix.device.keys import key_macros
from autotopk.strategies._radix.device.ordering import ordering_macros
from autotopk.strategies._radix.device.rows import row_macros, row_positions
from autotopk.strategies._radix.device.selection import selection_macros
from autotopk.strategies._radix.device.slots import slot_macros
from autotopk.strategies._radix.device.state import Block, state_macros
from autotopk.strategies._radix.device.survivors import list_macros, survivor_macros


def step_macros(c, at, rows, selection, survivors, lists, counting):
    """The steps up to the list of survivors: macros over a block's state `b`, see `state.py`."""

    @T.macro
    def select_unheld(b):
        """Narrow and list, reading the row once for every digit and twice for the list."""
        selection.narrow(rows.whole, c.capacity, b)
        survivors.from_whole(b)

    @T.macro
    def select_held(b):
        """Load, narrow and list, from registers: of the row, or of its sample."""
        rows.load(b)
        T.sync_threads()
        rows.make_keys(b)
        allowed = T.alloc_var("int32")
        allowed = c.capacity
        if c.samples and at.longer(b):  # what a sample lets through comes again with the rest
            allowed = T.max(b.k, T.Cast("int32", T.Cast("int64", c.capacity // 2 * c.groups) // b.rounds))
        selection.narrow(rows.held, allowed, b)
        survivors.from_held(b)

    @T.macro
    def select_rest(b):
        """Rest and, where more passed than there is room for, recount."""
        rows.rest(survivors.pass_rest, b)
        lists.gather(b)
        if b.survivors[0] > c.capacity:
            T.sync_threads()
            counting.clear(0, b)
            counting.clear(1, b)
            T.sync_threads()
            select_unheld(b)

    return SimpleNamespace(select_unheld=select_unheld, select_held=select_held, select_rest=select_rest)


def kernel_macros(c):
    """Macros `start(b)` and `select(b)`, and how many elements one load of all threads of a row takes in."""
    convert, scan, cluster = key_macros(c), scan_macros(c.threads, c.blocks), cluster_macros(c.blocks)
    counting, answer, slots, at = counting_macros(c), answer_macros(c, convert), slot_macros(c, scan), row_positions(c)
    rows, lists = row_macros(c, convert, at), list_macros(c, cluster, slots, answer)
    selection, ordering = selection_macros(c, scan, cluster, counting), ordering_macros(c, convert, scan, answer)
    survivors = survivor_macros(c, slots, lists, rows, at)
    steps, state = step_macros(c, at, rows, selection, survivors, lists, counting), state_macros(c)

    @T.macro
    def start(b):
        """Allocates and clears. A barrier of the block must follow before anything is counted."""
        state.allocate(b)
        convert.set_mask(b)
        at.set_distances(b)
        counting.clear(0, b)
        if c.capacity > 0:
            ordering.clear(b)
        if b.tid == 0:
            b.appended[0] = 0

    @T.macro
    def select(b):
        """Writes the best k of a row."""
        if c.capacity == 0:
            if at.longer(b):
                cluster.sync()
                steps.select_unheld(b)
            else:
                steps.select_held(b)
        else:
            steps.select_held(b)
            if at.longer(b):
                steps.select_rest(b)
            cluster.sync()
            if b.block == 0:
                ordering.order(b)

    return SimpleNamespace(start=start, select=select, per_round=at.per_round)


def radix_topk(**constants):
    """The kernel for (rows, cols) to (rows, k); the constants are those of `Constants`.

    `indices` and `indices_32` are one address: indices of pairs are int64, and int32 where they are written alone.
    """
    c = Constants(**constants)
    macros = kernel_macros(c)
    vectors, outputs = T.dynamic("vectors"), T.dynamic("outputs")

    @T.prim_func
    def radix_topk_rows(
        x: T.Tensor((vectors, c.vector), c.element),
        values: T.Tensor((outputs,), c.element),
        indices: T.Tensor((outputs,), "int64"),
        indices_32: T.Tensor((outputs,), "int32"),
        rows: T.int32,
        cols: T.int32,
        k: T.int32,
        row_stride: T.int64,
        smallest: T.int32,
        signed_1: T.int32,  # "signed" is a word of C++
        infinity: T.int32,
        indices_only: T.int32,
    ):
        with T.Kernel(rows * c.blocks, threads=c.threads, **launch_options(c.blocks)) as program:
            T.annotate_min_blocks_per_sm(max(1, 1024 // c.threads))  # at most 64 registers
            tid = T.get_thread_binding(0)
            rounds = T.alloc_var("int32")
            rounds = T.ceildiv(cols, macros.per_round)
            b = Block(
                x=x,
                values=values,
                indices=indices,
                indices_32=indices_32,
                cols=cols,
                k=k,
                smallest=smallest,
                signed=signed_1,
                infinity=infinity,
                indices_only=indices_only,
                tid=tid,
                lane=tid % 32,
                warp=tid // 32,
                block=program % c.blocks,
                row_start=T.Cast("int64", program // c.blocks) * (row_stride // c.vector),
                answer_start=T.Cast("int64", program // c.blocks) * T.Cast("int64", k),
                rounds=rounds,
            )
            macros.start(b)
            macros.select(b)

    return radix_topk_rows
