"""The counting scan: exclusive sum over the threads of a block, with the total."""

from types import SimpleNamespace

import tilelang.language as T


def scan_macros(c):
    """Macros over all threads of a block; every thread of a warp must take part."""

    @T.macro
    def warp_scan(value, lane, result):
        """result[0]: sum of `value` over this lane and those below."""
        inside = T.alloc_var("int32")
        below = T.alloc_var("int32")
        inside = value
        for step in T.unroll(5):
            below = T.shfl_up(inside, 1 << step)
            if lane >= (1 << step):
                inside = inside + below
        result[0] = inside

    @T.macro
    def begin_scan(value, b, totals, inside):
        """First half: inside[0] is the sum within the warp. A barrier must follow. totals: (warps,) shared."""
        warp_scan(value, b.lane, inside)
        if b.lane == 31:
            totals[b.warp] = inside[0]

    @T.macro
    def end_scan(value, b, totals, inside, result):
        """Second half: result[0] is the sum over lower threads, result[1] over all."""
        across = T.alloc_local((1,), "int32")
        total = T.alloc_var("int32")
        total = 0
        if b.lane < c.warps:
            total = totals[b.lane]
        warp_scan(total, b.lane, across)
        result[0] = T.shfl_sync(across[0] - total, b.warp) + inside[0] - value
        result[1] = T.shfl_sync(across[0], 31)

    return SimpleNamespace(warp_scan=warp_scan, begin_scan=begin_scan, end_scan=end_scan)
