"""Counting digits, and finding the bin that holds the k-th rank."""

from types import SimpleNamespace

import tilelang.language as T


def selection_macros(c, scan, cluster):
    """Macros over a block's state `b`; see `kernel.py`."""
    number, blocks, warps, bins = c.number, c.blocks, c.warps, c.bins
    chunk = max(1, bins // warps)  # bins of a warp
    per_lane = max(1, chunk // 32)

    def counting(turn, shift, width):
        """A visitor that counts one digit of the ranks that share the prefix found so far."""
        above = shift + width

        @T.macro
        def count(rank, column, i, b):
            if above == c.element_bits:
                T.atomic_add(b.histogram[turn, T.Cast("int32", rank >> number(shift))], 1)
            else:
                if (rank >> number(above)) == b.prefix[0]:
                    T.atomic_add(
                        b.histogram[turn, T.Cast("int32", (rank >> number(shift)) & number((1 << width) - 1))], 1
                    )

        return count

    @T.macro
    def clear(turn, b):
        for j in T.unroll(T.ceildiv(bins, c.threads)):
            if j * c.threads + b.tid < bins:
                b.histogram[turn, j * c.threads + b.tid] = 0

    @T.macro
    def chunk_total(turn, b):
        """This block's count in this warp's chunk of bins, to b.totals."""
        total = T.alloc_var("int32")
        total = 0
        for j in T.unroll(per_lane):
            if j * 32 + b.lane < chunk and b.warp * chunk + j * 32 + b.lane < bins:
                total = total + b.histogram[turn, b.warp * chunk + j * 32 + b.lane]
        total = T.warp_reduce_sum(total)
        if b.lane == 0:
            b.totals[turn, b.warp] = total

    @T.macro
    def fetch(source, first, count, b):
        """b.parts[p, :count] = source[first:first + count] of every block p. source: a flat view's address maker."""
        for p in T.unroll(T.ceildiv(blocks, warps)):
            peer = p * warps + b.warp
            if peer < blocks:
                for j in T.unroll(T.ceildiv(count, 32)):
                    if j * 32 + b.lane < count:
                        b.parts[peer, j * 32 + b.lane] = cluster.load(source(first + j * 32 + b.lane), peer)

    @T.macro
    def settle(b):
        """Whether no more digits are needed: the survivors fit, or all of the bin belongs to the best k."""
        b.settled[0] = 0
        if c.capacity > 0:
            if b.k - b.need[0] + b.here[0] <= b.room[0]:
                b.settled[0] = 1
        if b.need[0] == b.here[0]:
            b.settled[0] = 1

    @T.macro
    def select(turn, shift, width, b):
        """After counting: narrows the prefix to the bin of the k-th rank. Two barriers, in a cluster three and its own.

        Every warp finds the chunk, then the bin, by itself, so that all threads know without another barrier.
        """
        if blocks > 1:
            T.sync_threads()
            chunk_total(turn, b)
            T.cluster_sync()
            clear(1 - turn, b)  # not before all blocks are done with the digit before
            fetch(lambda at: T.address_of(b.totals[turn, at]), 0, warps, b)
            T.sync_threads()
        else:
            T.sync_threads()
            chunk_total(turn, b)
            clear(1 - turn, b)
            T.sync_threads()
        mine = T.alloc_var("int32")
        mine = 0
        if b.lane < warps:
            if blocks > 1:
                for p in T.unroll(blocks):
                    mine = mine + b.parts[p, b.lane]
            else:
                mine = b.totals[turn, b.lane]
        upto = T.alloc_local((1,), "int32")
        scan.warp_scan(mine, b.lane, upto)
        found = T.alloc_var("int32")
        found = T.popcount(T.ballot(upto[0] < b.need[0]))
        left = T.alloc_var("int32")
        left = b.need[0] - T.shfl_sync(upto[0] - mine, found)

        if blocks > 1:
            T.sync_threads()  # all have read the parts of before
            fetch(lambda at: T.address_of(b.histogram[turn, at]), found * chunk, chunk, b)
            T.sync_threads()
        counts = T.alloc_local((per_lane,), "int32")
        total = T.alloc_var("int32")
        total = 0
        for j in T.unroll(per_lane):
            counts[j] = 0
            if b.lane * per_lane + j < chunk:
                if blocks > 1:
                    for p in T.unroll(blocks):
                        counts[j] = counts[j] + b.parts[p, b.lane * per_lane + j]
                else:
                    counts[j] = b.histogram[turn, found * chunk + b.lane * per_lane + j]
            total = total + counts[j]
        scan.warp_scan(total, b.lane, upto)
        owner = T.alloc_var("int32")
        owner = T.popcount(T.ballot(upto[0] < left))
        # the owner lane looks through its bins
        under = T.alloc_var("int32")
        at = T.alloc_var("int32")
        here = T.alloc_var("int32")
        before = T.alloc_var("int32")
        under = upto[0] - total
        at = 0
        here = counts[0]
        before = under
        for j in T.unroll(per_lane):
            if under < left:
                at = j
                here = counts[j]
                before = under
            under = under + counts[j]
        at = T.shfl_sync(at, owner)
        here = T.shfl_sync(here, owner)
        before = T.shfl_sync(before, owner)
        b.prefix[0] = (b.prefix[0] << number(width)) | T.Cast(c.word, found * chunk + owner * per_lane + at)
        b.need[0] = left - before
        b.here[0] = here
        b.edge[0] = b.prefix[0] << number(shift)
        b.span[0] = number((1 << shift) - 1)
        settle(b)

    return SimpleNamespace(counting=counting, clear=clear, select=select)
