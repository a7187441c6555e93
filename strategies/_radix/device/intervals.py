"""Dividing survivors among intervals of a counting sort.

A division is an array of `c.intervals` numbers in shared memory: first how many survivors each interval holds, then the
slot where each begins.
"""

from types import SimpleNamespace

import tilelang.language as T

CROWD = 48  # measured: see docs/radix.md
"""Most survivors of one interval that are put in order by counting the smaller ones of their interval."""


def interval_macros(c, scan):
    """Macros over a block's state `b`, see `state.py`. A thread owns survivors tid, tid + threads and so on."""
    threads, owned = c.threads, c.owned
    per_thread, crowd = c.intervals // threads, CROWD
    width = min(4, per_thread)  # 16-byte accesses

    @T.macro
    def clear(division, b):
        for j in T.unroll(per_thread):
            division[j * threads + b.tid] = 0

    @T.macro
    def enter(division, interval, offset, b):
        """Counts the survivors of every interval, and gives each its offset within. One barrier."""
        for e in T.unroll(owned):
            if e * threads + b.tid < b.survivors[0]:
                offset[e] = T.atomic_add(division[interval[e]], 1, return_prev=True)
        T.sync_threads()

    @T.macro
    def number_intervals(division, b, crowded):
        """Counts to first slots; crowded[0]: whether any interval holds too many. Two barriers."""
        local = T.alloc_local((per_thread,), "int32")
        inside = T.alloc_local((1,), "int32")
        before = T.alloc_local((1,), "int32")
        total = T.alloc_local((1,), "int32")
        count = T.alloc_var("int32")
        many = T.alloc_var("int32")
        first = T.alloc_var("int32")
        count = 0
        many = 0
        for j in T.unroll(per_thread // width):
            for v in T.vectorized(width):
                local[j * width + v] = division[b.tid * per_thread + j * width + v]
        for j in T.unroll(per_thread):
            count = count + local[j]
            if local[j] > crowd:
                many = 1
        scan.begin(count, 0, b.tid, b.sort_totals, inside)
        crowded[0] = T.syncthreads_or(many)
        scan.end(count, 0, b.tid, b.sort_totals, inside, before, total)
        first = before[0]
        for j in T.unroll(per_thread):
            count = local[j]
            local[j] = first
            first = first + count
        for j in T.unroll(per_thread // width):
            for v in T.vectorized(width):
                division[b.tid * per_thread + j * width + v] = local[j * width + v]
        T.sync_threads()

    @T.macro
    def end_of(division, interval, b, end):
        """end[0]: the slot behind an interval's last."""
        end[0] = b.survivors[0]
        if interval + 1 < c.intervals:
            end[0] = division[interval + 1]

    return SimpleNamespace(clear=clear, enter=enter, number_intervals=number_intervals, end_of=end_of)


def range_macro(c):
    """A macro `key_range(key, b, low, high)`."""
    number, threads = c.number, c.threads

    @T.macro
    def key_range(key, b, low, high):
        """The least and the greatest key of the survivors. One barrier."""
        low[0] = number(c.worst)
        high[0] = number(0)
        for e in T.unroll(c.owned):
            if e * threads + b.tid < b.survivors[0]:
                low[0] = T.min(low[0], key[e])
                high[0] = T.max(high[0], key[e])
        low[0] = T.warp_reduce_min(low[0])
        high[0] = T.warp_reduce_max(high[0])
        if b.lane == 0:
            b.warp_ranges[0, b.warp] = low[0]
            b.warp_ranges[1, b.warp] = high[0]
        T.sync_threads()
        low[0] = number(c.worst)
        high[0] = number(0)
        if b.lane < c.warps:
            low[0] = b.warp_ranges[0, b.lane]
            high[0] = b.warp_ranges[1, b.lane]
        low[0] = T.warp_reduce_min(low[0])
        high[0] = T.warp_reduce_max(high[0])

    return key_range
