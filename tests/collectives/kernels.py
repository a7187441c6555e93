"""A kernel that is nothing but counting scans."""
# mypy: ignore-errors

import tilelang.language as T  # noqa: N812 -- as TileLang's own documentation does

from autotopk.strategies._collectives.cluster import launch_options
from autotopk.strategies._collectives.scan import scan_macros


def scan_counts(*, threads, blocks):
    """From x (2, n) to values (2, 3, 2, n), where n = threads * blocks, all int32.

    values[reverse, i, 0] is the sum before each thread, [reverse, i, 1] the total that it knows: i = 0 and 1 of both
    rows of x, scanned at once; i = 2 of the first row, scanned alone.
    """
    n = threads * blocks
    forward, backward = scan_macros(threads, blocks), scan_macros(threads, blocks, reverse=True)

    @T.macro
    def write(values, reverse, i, at, before, total):
        values[reverse, i, 0, at] = before
        values[reverse, i, 1, at] = total

    @T.macro
    def scan_all(scan, reverse, x, values, tid, block, warp_totals, block_totals):
        inside = T.alloc_local((2,), "int32")
        before = T.alloc_local((2,), "int32")
        total = T.alloc_local((2,), "int32")
        at = block * threads + tid
        for i in T.unroll(2):
            scan.begin(x[i, at], i, tid, warp_totals, inside)
        T.sync_threads()
        for i in T.unroll(2):
            scan.end(x[i, at], i, tid, warp_totals, inside, before, total)
        if blocks > 1:
            for i in T.unroll(2):
                scan.send(i, 1 + i, tid, block, block_totals, total)
            T.cluster_sync()
            for i in T.unroll(2):
                scan.receive(i, 1 + i, tid, block, block_totals, before, total)
        for i in T.unroll(2):
            write(values, reverse, i, at, before[i], total[i])
        if blocks == 1:  # for in a cluster its barrier lies between
            T.sync_threads()
        scan.exclusive(x[0, at], tid, block, warp_totals, block_totals, before, total)
        write(values, reverse, 2, at, before[0], total[0])

    @T.prim_func
    def scan_counts_of_threads(x: T.Tensor((2, n), "int32"), values: T.Tensor((2, 3, 2, n), "int32")):
        with T.Kernel(blocks, threads=threads, **launch_options(blocks)) as block:
            tid = T.get_thread_binding(0)
            warp_totals = T.alloc_shared((2, 32), "int32")
            block_totals = T.alloc_shared((3, 32), "int32")
            if blocks > 1:
                T.cluster_sync()
            scan_all(forward, 0, x, values, tid, block, warp_totals, block_totals)
            if blocks == 1:
                T.sync_threads()
            scan_all(backward, 1, x, values, tid, block, warp_totals, block_totals)

    return scan_counts_of_threads
