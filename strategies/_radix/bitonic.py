"""A bitonic sorting network in shared memory: slower than counting, and indifferent to the values."""

import tilelang.language as T

LAST = 0x7FFFFFFF
"""The column of an empty slot: behind every column there is."""


def bitonic_macro(c):
    """A macro `bitonic(b)`: b.sorted_ranks and b.columns of b.limit survivors in order, of one rank by column."""
    number, word, threads = c.number, c.word, c.threads
    worst = (1 << c.word_bits) - 1

    @T.macro
    def bitonic(b):
        """Over the power of two at or above b.limit, which is within the capacity."""
        size = T.alloc_var("int32")
        size = 1
        while size < b.limit[0]:
            size = size * 2
        at = T.alloc_var("int32")
        at = b.limit[0] + b.tid
        while at < size:
            b.sorted_ranks[at] = number(worst)
            b.columns[at] = LAST
            at = at + threads
        T.sync_threads()
        run = T.alloc_var("int32")
        run = 2
        while run <= size:
            stride = T.alloc_var("int32")
            stride = run // 2
            while stride > 0:
                pair = T.alloc_var("int32")
                pair = b.tid
                while pair < size // 2:
                    low = T.alloc_var("int32")
                    high = T.alloc_var("int32")
                    low = 2 * pair - (pair & (stride - 1))
                    high = low + stride
                    low_rank = T.alloc_var(word)
                    high_rank = T.alloc_var(word)
                    low_column = T.alloc_var("int32")
                    high_column = T.alloc_var("int32")
                    low_rank = b.sorted_ranks[low]
                    high_rank = b.sorted_ranks[high]
                    low_column = b.columns[low]
                    high_column = b.columns[high]
                    after = T.alloc_var("int32")
                    after = 0
                    if low_rank > high_rank or (low_rank == high_rank and low_column > high_column):
                        after = 1
                    descending = T.alloc_var("int32")
                    descending = 0
                    if (low & run) != 0:
                        descending = 1
                    if after != descending:
                        b.sorted_ranks[low] = high_rank
                        b.sorted_ranks[high] = low_rank
                        b.columns[low] = high_column
                        b.columns[high] = low_column
                    pair = pair + threads
                T.sync_threads()
                stride = stride // 2
            run = run * 2

    return bitonic
