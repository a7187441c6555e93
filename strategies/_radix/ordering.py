"""Sorting the survivors and writing the best k."""

from types import SimpleNamespace

import tilelang.language as T

from autotopk.strategies._radix.bitonic import bitonic_macro

CROWD = 48
"""Most survivors of one interval that are put in order by counting the smaller ones of their interval."""


def sort_bins(c):
    """Intervals of a counting sort: a multiple of the threads."""
    return max(c.capacity, c.threads)


def ordering_macros(c, ranks, scan):
    """Macros over a block's state `b`: b.limit survivors in b.columns, at most `capacity`.

    A counting sort over equal intervals of rank, then every survivor counts the smaller ones of its own interval. What
    is crowded is divided again: an interval of several ranks between its least and its greatest, one of a single rank
    by column. Where even that leaves a crowd, a bitonic network sorts everything.
    """
    number, word, threads = c.number, c.word, c.threads
    owned = max(1, c.capacity // threads)  # survivors of a thread
    bins = sort_bins(c)
    per_thread = bins // threads
    worst = (1 << c.word_bits) - 1
    bitonic = bitonic_macro(c)

    @T.macro
    def write(rank, column, slot, b):
        """One element of the answer. Its bits follow from its rank, but for NaN, of which there are many."""
        b.indices[b.out + slot] = T.Cast(c.index, column)
        if not c.indices_only:
            bits = T.alloc_local((1,), c.element)
            lost = T.alloc_var("int32")
            ranks.bits_of(rank, bits)
            lost = 0
            if c.float_inf > 0:
                if rank == ranks.nan:
                    lost = 1
            if lost != 0:
                bits[0] = b.x[b.start + column // c.vector, column % c.vector]
            b.values[b.out + slot] = bits[0]

    @T.macro
    def range_of(rank, b, low, high):
        """The least and the greatest rank of the survivors. One barrier."""
        low[0] = number(worst)
        high[0] = number(0)
        for e in T.unroll(owned):
            if e * threads + b.tid < b.limit[0]:
                low[0] = T.min(low[0], rank[e])
                high[0] = T.max(high[0], rank[e])
        low[0] = T.warp_reduce_min(low[0])
        high[0] = T.warp_reduce_max(high[0])
        if b.lane == 0:
            b.ends[0, b.warp] = low[0]
            b.ends[1, b.warp] = high[0]
        T.sync_threads()
        low[0] = number(worst)
        high[0] = number(0)
        if b.lane < c.warps:
            low[0] = b.ends[0, b.lane]
            high[0] = b.ends[1, b.lane]
        low[0] = T.warp_reduce_min(low[0])
        high[0] = T.warp_reduce_max(high[0])

    @T.macro
    def clear(counts, b):
        for j in T.unroll(per_thread):
            counts[j * threads + b.tid] = 0

    @T.macro
    def clear_first(b):
        """Before the survivors come, a barrier between."""
        clear(b.counts, b)

    @T.macro
    def enter(counts, interval, offset, b):
        """Counts the survivors of every interval, and gives each its offset within."""
        for e in T.unroll(owned):
            if e * threads + b.tid < b.limit[0]:
                offset[e] = T.atomic_add(counts[interval[e]], 1, return_prev=True)
        T.sync_threads()

    @T.macro
    def starts(counts, b, crowded):
        """Counts to first slots; crowded[0]: whether any interval holds too many. Two barriers."""
        local = T.alloc_local((per_thread,), "int32")
        inside = T.alloc_local((1,), "int32")
        result = T.alloc_local((2,), "int32")
        mine = T.alloc_var("int32")
        many = T.alloc_var("int32")
        first = T.alloc_var("int32")
        mine = 0
        many = 0
        width = min(4, per_thread)  # 16-byte accesses
        for j in T.unroll(per_thread // width):
            for v in T.vectorized(width):
                local[j * width + v] = counts[b.tid * per_thread + j * width + v]
        for j in T.unroll(per_thread):
            mine = mine + local[j]
            if local[j] > CROWD:
                many = 1
        scan.begin_scan(mine, b, b.sort_totals, inside)
        crowded[0] = T.syncthreads_or(many)
        scan.end_scan(mine, b, b.sort_totals, inside, result)
        first = result[0]
        for j in T.unroll(per_thread):
            mine = local[j]
            local[j] = first
            first = first + mine
        for j in T.unroll(per_thread // width):
            for v in T.vectorized(width):
                counts[b.tid * per_thread + j * width + v] = local[j * width + v]
        T.sync_threads()

    @T.macro
    def end_of(counts, interval, b, end):
        end[0] = b.limit[0]
        if interval + 1 < bins:
            end[0] = counts[interval + 1]

    @T.macro
    def spread(keys, interval, low, span, b):
        """low[e], span[e]: the least key of a survivor's interval, and the distance to the greatest. Two barriers."""
        for j in T.unroll(per_thread):
            b.lows[j * threads + b.tid] = number(worst)
            b.highs[j * threads + b.tid] = number(0)
        T.sync_threads()
        for e in T.unroll(owned):
            if e * threads + b.tid < b.limit[0]:
                T.atomic_min(b.lows[interval[e]], keys[e])
                T.atomic_max(b.highs[interval[e]], keys[e])
        T.sync_threads()
        for e in T.unroll(owned):
            if e * threads + b.tid < b.limit[0]:
                low[e] = b.lows[interval[e]]
                span[e] = b.highs[interval[e]] - low[e]

    @T.macro
    def refine(rank, column, interval, offset, b, crowded):
        """Divides every interval into as many as it holds survivors."""
        keys = T.alloc_local((owned,), word)
        low = T.alloc_local((owned,), word)
        span = T.alloc_local((owned,), word)
        column_low = T.alloc_local((owned,), word)
        column_span = T.alloc_local((owned,), word)
        end = T.alloc_local((1,), "int32")
        clear(b.finer, b)
        spread(rank, interval, low, span, b)
        for e in T.unroll(owned):
            keys[e] = T.Cast(word, column[e])
        T.sync_threads()  # all have read theirs
        spread(keys, interval, column_low, column_span, b)
        for e in T.unroll(owned):
            if e * threads + b.tid < b.limit[0]:
                begin = T.alloc_var("int32")
                held = T.alloc_var("int32")
                excess = T.alloc_var("int32")
                distance = T.alloc_var(word)
                extent = T.alloc_var(word)
                begin = b.counts[interval[e]]
                end_of(b.counts, interval[e], b, end)
                held = end[0] - begin
                distance = rank[e] - low[e]
                extent = span[e]
                if span[e] == number(0):
                    distance = keys[e] - column_low[e]
                    extent = column_span[e]
                # their 16 leading bits, so that the product fits 32 bits
                excess = T.max(c.word_bits - T.Cast("int32", T.clz(extent)) - 16, 0)
                interval[e] = begin + (
                    T.Cast("int32", distance >> T.Cast(word, excess))
                    * held
                    // (T.Cast("int32", extent >> T.Cast(word, excess)) + 1)
                )
        enter(b.finer, interval, offset, b)
        starts(b.finer, b, crowded)

    @T.macro
    def scatter(counts, rank, column, interval, offset, b):
        """Every survivor to its interval's slots."""
        for e in T.unroll(owned):
            if e * threads + b.tid < b.limit[0]:
                to = T.alloc_var("int32")
                to = counts[interval[e]] + offset[e]
                b.sorted_ranks[to] = rank[e]
                b.columns[to] = column[e]
                b.intervals[to] = T.Cast(word, interval[e])
        T.sync_threads()

    @T.macro
    def finish(counts, b):
        """Every survivor's slot: its interval's first, and the number of smaller ones there."""
        end = T.alloc_local((1,), "int32")
        at = T.alloc_var("int32")
        at = b.tid
        while at < b.limit[0]:
            slot = T.alloc_var("int32")
            other = T.alloc_var("int32")
            rank = T.alloc_var(word)
            column = T.alloc_var("int32")
            interval = T.alloc_var("int32")
            interval = T.Cast("int32", b.intervals[at])
            slot = counts[interval]
            other = slot
            end_of(counts, interval, b, end)
            if other >= b.k:
                end[0] = 0
            rank = b.sorted_ranks[at]
            column = b.columns[at]
            while other < end[0]:
                if b.sorted_ranks[other] < rank or (b.sorted_ranks[other] == rank and b.columns[other] < column):
                    slot = slot + 1
                other = other + 1
            if slot < b.k:
                write(rank, column, slot, b)
            at = at + threads

    @T.macro
    def order(b):
        """Writes the best k. The caller has put a barrier behind the last survivor."""
        rank = T.alloc_local((owned,), word)
        raw = T.alloc_local((owned,), c.element)
        column = T.alloc_local((owned,), "int32")
        offset = T.alloc_local((owned,), "int32")
        interval = T.alloc_local((owned,), "int32")
        one = T.alloc_local((1,), word)
        low = T.alloc_local((1,), word)
        high = T.alloc_local((1,), word)
        crowded = T.alloc_local((1,), "int32")
        shift = T.alloc_var("int32")
        for e in T.unroll(owned):
            if e * threads + b.tid < b.limit[0]:
                column[e] = b.columns[e * threads + b.tid]
                raw[e] = b.x[b.start + column[e] // c.vector, column[e] % c.vector]
        for e in T.unroll(owned):
            ranks.rank_of(raw[e], one)
            rank[e] = one[0]
        range_of(rank, b, low, high)
        shift = T.max(c.word_bits - T.Cast("int32", T.clz(high[0] - low[0])) - (bins.bit_length() - 1), 0)
        for e in T.unroll(owned):
            if e * threads + b.tid < b.limit[0]:
                interval[e] = T.Cast("int32", (rank[e] - low[0]) >> T.Cast(word, shift))
        enter(b.counts, interval, offset, b)
        starts(b.counts, b, crowded)
        if crowded[0] == 0:
            scatter(b.counts, rank, column, interval, offset, b)
            finish(b.counts, b)
        else:
            refine(rank, column, interval, offset, b, crowded)
            scatter(b.finer, rank, column, interval, offset, b)
            if crowded[0] == 0:
                finish(b.finer, b)
            else:
                bitonic(b)
                at = T.alloc_var("int32")
                at = b.tid
                while at < b.k:
                    write(b.sorted_ranks[at], b.columns[at], at, b)
                    at = at + threads

    return SimpleNamespace(clear=clear_first, order=order)
