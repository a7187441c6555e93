"""Sorting the survivors and writing the best k."""

from types import SimpleNamespace

import tilelang.language as T

from autotopk.strategies._radix.device.bitonic import bitonic_macro
from autotopk.strategies._radix.device.intervals import interval_macros, range_macro
from autotopk.strategies._radix.device.refinement import refine_macro


def placing_macros(c, intervals, answer):
    """Survivors to the slots of their interval, and from there to the answer."""
    word, threads = c.word, c.threads

    @T.macro
    def scatter(division, key, column, interval, offset, b):
        """Every survivor to its interval's slots. One barrier."""
        for e in T.unroll(c.owned):
            if e * threads + b.tid < b.survivors[0]:
                to = T.alloc_var("int32")
                to = division[interval[e]] + offset[e]
                b.sorted_keys[to] = key[e]
                b.columns[to] = column[e]
                b.sorted_intervals[to] = T.Cast(word, interval[e])
        T.sync_threads()

    @T.macro
    def finish(division, b):
        """Every survivor's place: its interval's first slot, and the number of smaller ones there."""
        end = T.alloc_local((1,), "int32")
        at = T.alloc_var("int32")
        at = b.tid
        while at < b.survivors[0]:
            place = T.alloc_var("int32")
            other = T.alloc_var("int32")
            key = T.alloc_var(word)
            column = T.alloc_var("int32")
            interval = T.alloc_var("int32")
            interval = T.Cast("int32", b.sorted_intervals[at])
            place = division[interval]
            other = place
            intervals.end_of(division, interval, b, end)
            if other >= b.k:
                end[0] = 0
            key = b.sorted_keys[at]
            column = b.columns[at]
            while other < end[0]:
                if b.sorted_keys[other] < key or (b.sorted_keys[other] == key and b.columns[other] < column):
                    place = place + 1
                other = other + 1
            if place < b.k:
                answer.write_key(key, column, place, b)
            at = at + threads

    return SimpleNamespace(scatter=scatter, finish=finish)


def ordering_macros(c, convert, scan, answer):
    """Macros over a block's state `b`: b.survivors of them in b.columns, at most `capacity`.

    A counting sort over equal intervals of keys, then every survivor counts the smaller ones of its own interval. What
    is crowded is divided again. Where even that leaves a crowd, a bitonic network sorts everything.
    """
    word, threads, owned = c.word, c.threads, c.owned
    intervals, key_range = interval_macros(c, scan), range_macro(c)
    placing, refine, bitonic = placing_macros(c, intervals, answer), refine_macro(c, intervals), bitonic_macro(c)

    @T.macro
    def clear(b):
        """Before the survivors come, a barrier between."""
        intervals.clear(b.coarse, b)

    @T.macro
    def order(b):
        """Writes the best k. The caller has put a barrier behind the last survivor."""
        key = T.alloc_local((owned,), word)
        element = T.alloc_local((owned,), c.element)
        column = T.alloc_local((owned,), "int32")
        offset = T.alloc_local((owned,), "int32")
        interval = T.alloc_local((owned,), "int32")
        one = T.alloc_local((1,), word)
        low = T.alloc_local((1,), word)
        high = T.alloc_local((1,), word)
        crowded = T.alloc_local((1,), "int32")
        shift = T.alloc_var("int32")
        for e in T.unroll(owned):
            if e * threads + b.tid < b.survivors[0]:
                column[e] = b.columns[e * threads + b.tid]
                element[e] = b.x[b.row_start + column[e] // c.vector, column[e] % c.vector]
        for e in T.unroll(owned):
            convert.key_of(element[e], one, b)
            key[e] = one[0]
        key_range(key, b, low, high)
        shift = T.max(c.word_bits - T.Cast("int32", T.clz(high[0] - low[0])) - (c.intervals.bit_length() - 1), 0)
        for e in T.unroll(owned):
            if e * threads + b.tid < b.survivors[0]:
                interval[e] = T.Cast("int32", (key[e] - low[0]) >> T.Cast(word, shift))
        intervals.enter(b.coarse, interval, offset, b)
        intervals.number_intervals(b.coarse, b, crowded)
        if crowded[0] == 0:
            placing.scatter(b.coarse, key, column, interval, offset, b)
            placing.finish(b.coarse, b)
        else:
            refine(key, column, interval, offset, b, crowded)
            placing.scatter(b.fine, key, column, interval, offset, b)
            if crowded[0] == 0:
                placing.finish(b.fine, b)
            else:
                bitonic(b)
                at = T.alloc_var("int32")
                at = b.tid
                while at < b.k:
                    answer.write_key(b.sorted_keys[at], b.columns[at], at, b)
                    at = at + threads

    return SimpleNamespace(clear=clear, order=order)
