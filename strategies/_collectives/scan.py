"""The counting scan: for every thread the int32 sum over those before it, and the sum over all.

    scan = scan_macros(threads, blocks)
    ...
    warp_totals = T.alloc_shared((1, 32), "int32")
    block_totals = T.alloc_shared((1, 32), "int32")
    before, total = T.alloc_local((1,), "int32"), T.alloc_local((1,), "int32")
    scan.exclusive(count, tid, block, warp_totals, block_totals, before, total)

Threads are numbered through the blocks of a cluster: block * threads + tid. A reverse scan sums over the threads behind
instead. Every thread must take part in each macro. Sums wrap around at 32 bits.

n scans may share scratch and barriers; each is told by its number `which` below n. Arguments of the macros:

| argument | type, shape | meaning |
|---|---|---|
| value | int32 expression | this thread's summand, the same in `begin` and `end` |
| tid, block | int32 | number of the thread in its block, and of the block in its cluster |
| warp_totals | int32 (n, 32), shared | scratch |
| block_totals | int32 (any, 32), shared | scratch of a cluster, of which a scan uses `row` |
| inside | int32 (n,), of the thread | kept between `begin` and `end` |
| before, total | int32 (n,), of the thread | the result, at `which` |

| macro | what it does | barriers, of which only `exclusive` contains any |
|---|---|---|
| `begin` | sums within the warp | before: all have finished the last `end` on these warp_totals |
| `end` | before and total of the block | before: one of the block after `begin`, for all n scans |
| `send` | tells all blocks this block's total | before: one of the cluster since start, and since the row was read |
| `receive` | before and total of the cluster | before: one of the cluster after `send`, for all n scans |
| `exclusive` | all of them, for one scan, in row 0 | contains one of the block, and in a cluster one of the cluster |

The barriers between are the caller's, so that they serve whatever else waits. After the barrier behind `send` no block
touches another's memory: blocks may end without one more.
"""

from types import SimpleNamespace

import tilelang.language as T

from autotopk.strategies._collectives.cluster import cluster_macros


def scan_macros(threads, blocks=1, *, reverse=False):
    """Scans over the threads of a block, a multiple of 32 up to 1024, or of `blocks` of them, up to 32."""
    cluster = cluster_macros(blocks)
    shuffle = T.shfl_down if reverse else T.shfl_up
    last = 0 if reverse else 31  # the lane whose sum is the warp's

    def has_before(lane, distance):
        """Whether so many lanes before this one there is another."""
        return lane + distance < 32 if reverse else lane >= distance

    def is_before(other, own):
        return other > own if reverse else other < own

    @T.macro
    def warp_scan(value, lane, result):
        """result[0]: sum of `value` over this lane of the warp and those before. No barrier."""
        inside = T.alloc_var("int32")
        neighbour = T.alloc_var("int32")
        inside = value
        for step in T.unroll(5):
            neighbour = shuffle(inside, 1 << step)
            if has_before(lane, 1 << step):
                inside = inside + neighbour
        result[0] = inside

    @T.macro
    def begin(value, which, tid, warp_totals, inside):
        own = T.alloc_local((1,), "int32")
        warp_scan(value, tid % 32, own)
        inside[which] = own[0]
        if tid % 32 == last:
            warp_totals[which, tid // 32] = own[0]

    @T.macro
    def end(value, which, tid, warp_totals, inside, before, total):
        across = T.alloc_local((1,), "int32")
        warp_total = T.alloc_var("int32")
        warp_total = 0
        if tid % 32 < threads // 32:
            warp_total = warp_totals[which, tid % 32]
        warp_scan(warp_total, tid % 32, across)
        before[which] = T.shfl_sync(across[0] - warp_total, tid // 32) + inside[which] - value
        total[which] = T.shfl_sync(across[0], last)

    @T.macro
    def send(which, row, tid, block, block_totals, total):
        if tid < blocks:
            cluster.store(T.address_of(block_totals[row, block]), tid, total[which])

    @T.macro
    def receive(which, row, tid, block, block_totals, before, total):
        others = T.alloc_var("int32")
        every = T.alloc_var("int32")
        others = 0
        every = 0
        if tid % 32 < blocks:
            every = block_totals[row, tid % 32]
        if is_before(tid % 32, block):
            others = every
        before[which] = before[which] + T.warp_reduce_sum(others)
        total[which] = T.warp_reduce_sum(every)

    @T.macro
    def exclusive(value, tid, block, warp_totals, block_totals, before, total):
        inside = T.alloc_local((1,), "int32")
        begin(value, 0, tid, warp_totals, inside)
        T.sync_threads()
        end(value, 0, tid, warp_totals, inside, before, total)
        if blocks > 1:
            send(0, 0, tid, block, block_totals, total)
            T.cluster_sync()
            receive(0, 0, tid, block, block_totals, before, total)

    return SimpleNamespace(warp_scan=warp_scan, begin=begin, end=end, send=send, receive=receive, exclusive=exclusive)
