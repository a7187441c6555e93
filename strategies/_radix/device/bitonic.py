"""A bitonic sorting network in shared memory: slower than counting, and indifferent to the values."""

import tilelang.language as T

LAST = 0x7FFFFFFF
"""The column of an empty slot: behind every column there is."""


def bitonic_macro(c):
    """A macro `bitonic(b)`: sorts b.survivors pairs of b.sorted_keys and b.columns, pairs of one key by column."""
    number, word, threads = c.number, c.word, c.threads

    @T.macro
    def bitonic(b):
        """Over the power of two at or above b.survivors, which is within the capacity."""
        size = T.alloc_var("int32")
        size = 1
        while size < b.survivors[0]:
            size = size * 2
        at = T.alloc_var("int32")
        at = b.survivors[0] + b.tid
        while at < size:
            b.sorted_keys[at] = number(c.worst)
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
                    low_key = T.alloc_var(word)
                    high_key = T.alloc_var(word)
                    low_column = T.alloc_var("int32")
                    high_column = T.alloc_var("int32")
                    low_key = b.sorted_keys[low]
                    high_key = b.sorted_keys[high]
                    low_column = b.columns[low]
                    high_column = b.columns[high]
                    after = T.alloc_var("int32")
                    after = 0
                    if low_key > high_key or (low_key == high_key and low_column > high_column):
                        after = 1
                    descending = T.alloc_var("int32")
                    descending = 0
                    if (low & run) != 0:
                        descending = 1
                    if after != descending:
                        b.sorted_keys[low] = high_key
                        b.sorted_keys[high] = low_key
                        b.columns[low] = high_column
                        b.columns[high] = low_column
                    pair = pair + threads
                T.sync_threads()
                stride = stride // 2
            run = run * 2

    return bitonic
