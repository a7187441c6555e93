"""Dividing crowded intervals again, each into as many as it holds survivors."""

import tilelang.language as T


def refine_macro(c, intervals):
    """A macro `refine(key, column, interval, offset, b, crowded)`.

    An interval of several keys is divided between its least and its greatest, one of a single key by column.
    """
    number, word, threads, owned = c.number, c.word, c.threads, c.owned
    per_thread = c.intervals // threads

    @T.macro
    def spread(key, interval, low, span, b):
        """low[e], span[e]: the least key of a survivor's interval, and the distance to the greatest. Two barriers."""
        for j in T.unroll(per_thread):
            b.least[j * threads + b.tid] = number(c.worst)
            b.greatest[j * threads + b.tid] = number(0)
        T.sync_threads()
        for e in T.unroll(owned):
            if e * threads + b.tid < b.survivors[0]:
                T.atomic_min(b.least[interval[e]], key[e])
                T.atomic_max(b.greatest[interval[e]], key[e])
        T.sync_threads()
        for e in T.unroll(owned):
            if e * threads + b.tid < b.survivors[0]:
                low[e] = b.least[interval[e]]
                span[e] = b.greatest[interval[e]] - low[e]

    @T.macro
    def refine(key, column, interval, offset, b, crowded):
        """From b.coarse to b.fine; crowded[0]: whether an interval still holds too many. Eight barriers."""
        column_key = T.alloc_local((owned,), word)
        low = T.alloc_local((owned,), word)
        span = T.alloc_local((owned,), word)
        column_low = T.alloc_local((owned,), word)
        column_span = T.alloc_local((owned,), word)
        end = T.alloc_local((1,), "int32")
        intervals.clear(b.fine, b)
        spread(key, interval, low, span, b)
        for e in T.unroll(owned):
            column_key[e] = T.Cast(word, column[e])
        T.sync_threads()  # all have read theirs
        spread(column_key, interval, column_low, column_span, b)
        for e in T.unroll(owned):
            if e * threads + b.tid < b.survivors[0]:
                begin = T.alloc_var("int32")
                held = T.alloc_var("int32")
                excess = T.alloc_var("int32")
                distance = T.alloc_var(word)
                extent = T.alloc_var(word)
                begin = b.coarse[interval[e]]
                intervals.end_of(b.coarse, interval[e], b, end)
                held = end[0] - begin
                distance = key[e] - low[e]
                extent = span[e]
                if span[e] == number(0):
                    distance = column_key[e] - column_low[e]
                    extent = column_span[e]
                # their 16 leading bits, so that the product fits 32 bits
                excess = T.max(c.word_bits - T.Cast("int32", T.clz(extent)) - 16, 0)
                interval[e] = begin + (
                    T.Cast("int32", distance >> T.Cast(word, excess))
                    * held
                    // (T.Cast("int32", extent >> T.Cast(word, excess)) + 1)
                )
        intervals.enter(b.fine, interval, offset, b)
        intervals.number_intervals(b.fine, b, crowded)

    return refine
