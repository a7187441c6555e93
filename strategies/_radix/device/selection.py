"""Narrowing a row to the bin of its k-th key, digit by digit, by as few digits as will do."""

from types import SimpleNamespace

import tilelang.language as T


def sharing_macros(c, cluster, counting):
    """What the blocks of a row, and the warps of a block, tell each other about a digit's counts."""
    blocks, warps, bins, chunk = c.blocks, c.warps, c.bins, c.chunk
    per_lane = max(1, chunk // 32)

    @T.macro
    def add_chunk(turn, b):
        """chunk_totals[turn, warp]: this block's count in the warp's chunk of bins."""
        total = T.alloc_var("int32")
        total = 0
        for j in T.unroll(per_lane):
            if j * 32 + b.lane < chunk and b.warp * chunk + j * 32 + b.lane < bins:
                total = total + b.histogram[turn, b.warp * chunk + j * 32 + b.lane]
        total = T.warp_reduce_sum(total)
        if b.lane == 0:
            b.chunk_totals[turn, b.warp] = total

    @T.macro
    def fetch(address, first, count, b):
        """b.peer_counts[p, :count] = what block p has at address(first), address(first + 1) and so on, for every p."""
        for p in T.unroll(T.ceildiv(blocks, warps)):
            peer = p * warps + b.warp
            if peer < blocks:
                for j in T.unroll(T.ceildiv(count, 32)):
                    if j * 32 + b.lane < count:
                        b.peer_counts[peer, j * 32 + b.lane] = cluster.load(address(first + j * 32 + b.lane), peer)

    @T.macro
    def share_totals(turn, b):
        """After counting: all know the totals of the chunks. Two barriers of the block; in a cluster one more of it."""
        T.sync_threads()
        add_chunk(turn, b)
        if blocks > 1:
            T.cluster_sync()
        counting.clear(1 - turn, b)  # not before all blocks are done with the digit before
        if blocks > 1:
            fetch(lambda i: T.address_of(b.chunk_totals[turn, i]), 0, warps, b)
        T.sync_threads()

    @T.macro
    def share_chunk(turn, first, b):
        """All know the counts in the chunk of bins from `first` on. In a cluster two barriers of the block."""
        if blocks > 1:
            T.sync_threads()  # all have read the totals
            fetch(lambda i: T.address_of(b.histogram[turn, i]), first, chunk, b)
            T.sync_threads()

    return SimpleNamespace(share_totals=share_totals, share_chunk=share_chunk)


def search_macros(c, scan):
    """Where the k-th key is. Every warp finds it for itself, so that all threads know without another barrier."""
    blocks, chunk = c.blocks, c.chunk
    per_lane = max(1, chunk // 32)

    @T.macro
    def find_chunk(turn, b, which, left):
        """which[0]: the chunk; left[0]: how many of its keys belong to the best k."""
        count = T.alloc_var("int32")
        up_to = T.alloc_local((1,), "int32")
        count = 0
        if b.lane < c.warps:
            if blocks > 1:
                for p in T.unroll(blocks):
                    count = count + b.peer_counts[p, b.lane]
            else:
                count = b.chunk_totals[turn, b.lane]
        scan.warp_scan(count, b.lane, up_to)
        which[0] = T.popcount(T.ballot(up_to[0] < b.remaining[0]))
        left[0] = b.remaining[0] - T.shfl_sync(up_to[0] - count, which[0])

    @T.macro
    def find_bin(turn, first, left, b, bin, before):
        """In the chunk from bin `first` on: bin[0]: the bin; before[0]: keys in those before it; b.bin_count: in it."""
        counts = T.alloc_local((per_lane,), "int32")
        total = T.alloc_var("int32")
        up_to = T.alloc_local((1,), "int32")
        total = 0
        for j in T.unroll(per_lane):
            counts[j] = 0
            if b.lane * per_lane + j < chunk:
                if blocks > 1:
                    for p in T.unroll(blocks):
                        counts[j] = counts[j] + b.peer_counts[p, b.lane * per_lane + j]
                else:
                    counts[j] = b.histogram[turn, first + b.lane * per_lane + j]
            total = total + counts[j]
        scan.warp_scan(total, b.lane, up_to)
        owner = T.alloc_var("int32")
        owner = T.popcount(T.ballot(up_to[0] < left))
        # the owner lane looks through its bins
        under = T.alloc_var("int32")
        at = T.alloc_var("int32")
        count = T.alloc_var("int32")
        lower = T.alloc_var("int32")
        under = up_to[0] - total
        at = 0
        count = counts[0]
        lower = under
        for j in T.unroll(per_lane):
            if under < left:
                at = j
                count = counts[j]
                lower = under
            under = under + counts[j]
        at = T.shfl_sync(at, owner)
        b.bin_count[0] = T.shfl_sync(count, owner)
        before[0] = T.shfl_sync(lower, owner)
        bin[0] = first + owner * per_lane + at

    return SimpleNamespace(find_chunk=find_chunk, find_bin=find_bin)


def selection_macros(c, scan, cluster, counting):
    """Macros over a block's state `b`, see `state.py`."""
    number = c.number
    sharing, search = sharing_macros(c, cluster, counting), search_macros(c, scan)
    turns = [(turn % 2, shift, width) for turn, (shift, width) in enumerate(c.digits)]

    @T.macro
    def settle(b):
        """Whether no more digits are needed: the survivors fit, or all of the bin belongs to the best k."""
        b.settled[0] = 0
        if c.capacity > 0:
            if b.k - b.remaining[0] + b.bin_count[0] <= b.allowed[0]:
                b.settled[0] = 1
        if b.remaining[0] == b.bin_count[0]:
            b.settled[0] = 1

    @T.macro
    def select(turn, shift, width, b):
        """After counting: adds a digit to the prefix. Two barriers; in a cluster four, and one of the cluster."""
        which = T.alloc_local((1,), "int32")
        left = T.alloc_local((1,), "int32")
        bin = T.alloc_local((1,), "int32")
        before = T.alloc_local((1,), "int32")
        sharing.share_totals(turn, b)
        search.find_chunk(turn, b, which, left)
        sharing.share_chunk(turn, which[0] * c.chunk, b)
        search.find_bin(turn, which[0] * c.chunk, left[0], b, bin, before)
        b.prefix[0] = (b.prefix[0] << number(width)) | T.Cast(c.word, bin[0])
        b.remaining[0] = left[0] - before[0]
        b.bin_first[0] = b.prefix[0] << number(shift)
        b.bin_span[0] = number((1 << shift) - 1)
        settle(b)

    @T.macro
    def narrow(read, allowed, b):
        """Counts digits until at most `allowed` survive; read(visit, b) shows a visitor the row."""
        b.allowed[0] = allowed
        b.prefix[0] = number(0)
        b.remaining[0] = b.k
        b.settled[0] = 0
        for turn, shift, width in turns:
            if b.settled[0] == 0:
                read(counting.counter(turn, shift, width), b)
                select(turn, shift, width, b)

    return SimpleNamespace(narrow=narrow)
