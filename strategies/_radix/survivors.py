"""Collecting what can be among the best k: everything better than the bin of the k-th rank, and that bin."""

from types import SimpleNamespace

import tilelang.language as T


def survivor_macros(c, scan, cluster, rows):
    """Macros over a block's state `b`; see `kernel.py`.

    Slots are counted before they are written, so that the same input gives the same answer on every run.
    """
    blocks, warps, capacity = c.blocks, c.warps, c.capacity

    @T.macro
    def tally(rank, column, i, b):
        """mine[0]: better than the bin; mine[1]: in it."""
        if rank < b.edge[0]:
            b.mine[0] = b.mine[0] + 1
        elif rank - b.edge[0] <= b.span[0]:
            b.mine[1] = b.mine[1] + 1

    @T.macro
    def mark_all(rank, column, i, b):
        """One bit for each survivor held."""
        if rank <= b.edge[0] + b.span[0]:
            b.marks[0] = b.marks[0] | T.uint32(1 << i)

    @T.macro
    def mark(rank, column, i, b):
        """The same in two: better than the bin, and in it."""
        if rank < b.edge[0]:
            b.marks[0] = b.marks[0] | T.uint32(1 << i)
        elif rank - b.edge[0] <= b.span[0]:
            b.marks[1] = b.marks[1] | T.uint32(1 << i)

    @T.macro
    def exchange(turn, totals, b):
        """b.slot += what lower blocks have; b.sum: what all have. totals: (2,) of this block."""
        for i in T.unroll(2):
            if b.tid < blocks:
                cluster.store(b.shares, (turn * 2 + i) * 32 + b.block, b.tid, totals[i])
        T.cluster_sync()
        for i in T.unroll(2):
            lower = T.alloc_var("int32")
            every = T.alloc_var("int32")
            lower = 0
            every = 0
            if b.lane < blocks:
                every = b.shares[(turn * 2 + i) * 32 + b.lane]
            if b.lane < b.block:
                lower = every
            b.slot[i] = b.slot[i] + T.warp_reduce_sum(lower)
            b.sum[i] = T.warp_reduce_sum(every)

    @T.macro
    def number_slots(turn, b):
        """First slots of this thread's better and tied elements among all of the row, from b.mine."""
        inside = T.alloc_local((2,), "int32")
        one = T.alloc_local((1,), "int32")
        totals = T.alloc_local((2,), "int32")
        for i in T.unroll(2):
            scan.warp_scan(b.mine[i], b.lane, one)
            inside[i] = one[0]
            if b.lane == 31:
                b.sums[i, b.warp] = one[0]
        T.sync_threads()
        for i in T.unroll(2):
            across = T.alloc_local((1,), "int32")
            total = T.alloc_var("int32")
            total = 0
            if b.lane < warps:
                total = b.sums[i, b.lane]
            scan.warp_scan(total, b.lane, across)
            b.slot[i] = T.shfl_sync(across[0] - total, b.warp) + inside[i] - b.mine[i]
            totals[i] = T.shfl_sync(across[0], 31)
        if blocks > 1:
            exchange(turn, totals, b)
        # ties go behind; all of them where the survivors fit, else as many as are needed
        b.slot[1] = b.slot[1] + b.k - b.need[0]
        b.limit[0] = b.k
        if b.settled[0] != 0:
            b.limit[0] = b.k - b.need[0] + b.here[0]

    @T.macro
    def write(column, slot, b):
        """Straight to the answer."""
        b.indices[b.out + slot] = T.Cast(c.index, column)
        if not c.indices_only:
            b.values[b.out + slot] = b.x[b.start + column // c.vector, column % c.vector]

    @T.macro
    def put(column, slot, b):
        """A survivor to its slot: of the answer, or of the first block's list."""
        if capacity > 0:
            cluster.store(b.columns, slot, 0, column)
        else:
            write(column, slot, b)

    @T.macro
    def append(column, b):
        """A survivor to this block's list, in no order. All are counted, also those for which there is no room."""
        at = T.alloc_var("int32")
        at = T.atomic_add(b.cursor[0], 1, return_prev=True)
        if at < capacity:
            b.passed[at] = column

    @T.macro
    def take(which, accept, b):
        """Calls accept(column, slot, b) for the marked elements, in order; which: 0 better, 1 tied."""
        left = T.alloc_var("uint32")
        left = b.marks[which]
        while left != T.uint32(0):
            i = T.alloc_var("int32")
            i = 31 - T.Cast("int32", T.clz(left & (T.uint32(0) - left)))
            left = left & (left - T.uint32(1))
            column = T.alloc_var("int32")
            column = rows.column(rows.held_round(i // c.vector, b), b) + i % c.vector
            if b.slot[which] < b.limit[0]:
                accept(column, b.slot[which], b)
            b.slot[which] = b.slot[which] + 1

    @T.macro
    def listed(column, slot, b):
        append(column, b)

    @T.macro
    def from_held(b):
        """The survivors of what is held: to their slots, or where more follow, to the block's list."""
        b.marks[0] = T.uint32(0)
        b.marks[1] = T.uint32(0)
        if b.settled[0] != 0:
            rows.held(mark_all, b)
        else:
            rows.held(mark, b)
        b.mine[0] = T.Cast("int32", T.popcount(b.marks[0]))
        b.mine[1] = T.Cast("int32", T.popcount(b.marks[1]))
        number_slots(0, b)
        if c.streams:
            take(0, listed, b)
            take(1, listed, b)
        else:
            take(0, put, b)
            take(1, put, b)

    @T.macro
    def pass_rest(rank, column, i, b):
        """A survivor of the rest of the row. Ties are out where k elements at least as good are held."""
        if rank < b.edge[0]:
            append(column, b)
        elif b.settled[0] != 0 and rank - b.edge[0] <= b.span[0]:
            append(column, b)

    @T.macro
    def gather(b):
        """Brings the blocks' lists together in the first block's, b.limit: how many, whether they fit or not."""
        T.sync_threads()
        if blocks > 1:
            totals = T.alloc_local((2,), "int32")
            totals[0] = T.atomic_load(b.cursor[0])
            totals[1] = 0
            b.slot[0] = 0
            b.slot[1] = 0
            exchange(1, totals, b)
            b.limit[0] = b.sum[0]
            if b.limit[0] <= capacity:
                at = T.alloc_var("int32")
                at = b.tid
                while at < totals[0]:
                    cluster.store(b.columns, b.slot[0] + at, 0, b.passed[at])
                    at = at + c.threads
        else:
            b.limit[0] = T.atomic_load(b.cursor[0])

    @T.macro
    def emit(rank, column, i, b):
        if rank < b.edge[0]:
            put(column, b.slot[0], b)
            b.slot[0] = b.slot[0] + 1
        elif rank - b.edge[0] <= b.span[0]:
            if b.slot[1] < b.limit[0]:
                put(column, b.slot[1], b)
            b.slot[1] = b.slot[1] + 1

    @T.macro
    def from_whole(b):
        """The survivors of the row, read twice more: to count, and to put."""
        b.mine[0] = 0
        b.mine[1] = 0
        rows.whole(tally, b)
        number_slots(2, b)
        rows.whole(emit, b)

    return SimpleNamespace(from_held=from_held, pass_rest=pass_rest, gather=gather, from_whole=from_whole)
