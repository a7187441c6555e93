"""A kernel that is nothing but the counting scan of the radix families."""
# mypy: ignore-errors

from types import SimpleNamespace

import tilelang.language as T  # noqa: N812 -- as TileLang's own documentation does

from autotopk.strategies._radix.scan import scan_macros


def scan_counts(threads):
    """From x (threads,) to values (threads + 1,): the sum over lower threads, and behind them the total. int32."""
    scan = scan_macros(SimpleNamespace(warps=threads // 32))

    @T.prim_func
    def scan_counts_of_threads(x: T.Tensor((threads,), "int32"), values: T.Tensor((threads + 1,), "int32")):
        with T.Kernel(1, threads=threads):
            tid = T.get_thread_binding(0)
            b = SimpleNamespace(tid=tid, lane=tid % 32, warp=tid // 32)
            totals = T.alloc_shared((32,), "int32")
            inside = T.alloc_local((1,), "int32")
            result = T.alloc_local((2,), "int32")
            scan.begin_scan(x[tid], b, totals, inside)
            T.sync_threads()
            scan.end_scan(x[tid], b, totals, inside, result)
            values[tid] = result[0]
            if tid == 0:
                values[threads] = result[1]

    return scan_counts_of_threads
