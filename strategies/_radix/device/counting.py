"""Counting digits of keys in a histogram in shared memory."""

from types import SimpleNamespace

import tilelang.language as T


def counting_macros(c):
    """Two histograms take turns, so that one is cleared while the other is read."""
    number, bins = c.number, c.bins

    @T.macro
    def clear(turn, b):
        for j in T.unroll(T.ceildiv(bins, c.threads)):
            if j * c.threads + b.tid < bins:
                b.histogram[turn, j * c.threads + b.tid] = 0

    def counter(turn, shift, width):
        """A visitor that counts one digit of the keys that share the prefix found so far."""
        above = shift + width

        @T.macro
        def count(key, column, i, b):
            if above == c.element_bits:
                T.atomic_add(b.histogram[turn, T.Cast("int32", key >> number(shift))], 1)
            else:
                if (key >> number(above)) == b.prefix[0]:
                    T.atomic_add(
                        b.histogram[turn, T.Cast("int32", (key >> number(shift)) & number((1 << width) - 1))], 1
                    )

        return count

    return SimpleNamespace(clear=clear, counter=counter)
