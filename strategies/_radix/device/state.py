"""What a block keeps while it selects: the table of its state, and where its buffers are allocated."""

from types import SimpleNamespace

import tilelang.language as T

from autotopk.strategies._radix.device.slots import EXCHANGES


class Block(SimpleNamespace):
    """The state `b` of one block while its kernel is traced.

    `word` is the type of keys, uint32 or uint64; `element` the type that elements travel as. The steps are those of
    `topk.py`, in their order: clear, load, narrow, list, rest, recount, order. The first block is that of a cluster, or
    the only one. Written and read by: a file here stands for its macros.

    Arguments, and where the thread is

    | name | type, shape | meaning |
    |---|---|---|
    | x | element (vectors, vector) | all rows; read by rows, answer and ordering |
    | values | element (outputs,) | all answers; written by answer |
    | indices, indices_32 | int64, int32 (outputs,) | theirs, at one address; written by answer |
    | smallest, indices_only | int32 | 1: the smallest are the best; int32 indices are written alone |
    | signed, infinity | int32 | 1: integers have a sign; bits of infinity of 16-bit floats |
    | cols, k | int32 | length of a row, and of its answer |
    | tid, lane, warp, block | int32 | thread of the block, lane of the warp, warp of the block, block of the cluster |
    | row_start, answer_start | int64 | first vector of the row in x, first element of its answer |
    | rounds | int32 | loads of every thread that cover the row |

    Shared memory: what it holds

    | name | type, shape | meaning |
    |---|---|---|
    | histogram | int32 (2, bins) | keys with each digit |
    | chunk_totals | int32 (2, 32) | sums of histogram over each warp's chunk of bins |
    | peer_counts | int32 (blocks, max(warps, chunk)) | of every block chunk_totals, then one chunk of histogram |
    | warp_totals | int32 (2, 32) | scratch of the scans of better and tied elements |
    | block_totals | int32 (2 * EXCHANGES, 32) | better and tied elements of every block, a pair of rows an exchange |
    | appended | int32 (1,) | survivors appended to own_columns, those without room included |
    | own_columns | int32 or word (capacity,) | columns of this block's survivors, in no order |
    | columns | int32 (capacity,) | in the first block: columns of the row's survivors |
    | coarse, fine | int32 (intervals,) | two divisions: survivors of each interval, then its first slot |
    | sort_totals | int32 (1, 32) | scratch of the scan over a division |
    | warp_ranges | word (2, 32) | least and greatest key of each warp's survivors |
    | sorted_keys, sorted_intervals | word (intervals,) | key and interval of the survivor in each slot |
    | least, greatest | word (intervals,) | least and greatest key, then column, of each coarse interval |

    Shared memory: who uses it, and when

    | name | written by | read by | lifetime |
    |---|---|---|---|
    | histogram | counting | selection of all blocks | half a digit each: one is cleared while the other is read |
    | chunk_totals | selection | selection of all blocks | half a digit each |
    | peer_counts | selection | selection | within a digit; clusters alone |
    | warp_totals | slots | slots | each numbering |
    | block_totals | slots of all blocks | slots | each row once; clusters alone |
    | appended | topk, survivors | rows, survivors | clear to rest |
    | own_columns | survivors | survivors | list to rest; the memory of columns, in clusters of sorted_intervals |
    | columns | survivors of all blocks, ordering, bitonic | ordering, bitonic | list to order |
    | coarse | intervals | intervals, refinement, ordering | cleared in clear; order |
    | fine | intervals | intervals, ordering | order |
    | sort_totals, warp_ranges | intervals | intervals | order |
    | sorted_keys, sorted_intervals | ordering, bitonic | ordering, bitonic | order, from `scatter` on |
    | least, greatest | refinement | refinement | order, before `scatter`; the memory of the two above |

    Registers of a thread

    | name | type, shape | meaning | written by | read by | lifetime |
    |---|---|---|---|---|---|
    | mask | word (1,) | exclusive or of ordered bits, or of integers, and their keys | keys | keys | always |
    | gap, wider | int32 (1,) | distances of held rounds | rows | rows | always |
    | elements | element (items,) | what was loaded | rows | rows | load |
    | loaded | uint32 (1,) | bit g: the g-th load was within the row | rows | rows | load to list |
    | keys | word (items,) | their keys | rows | rows | load to list |
    | allowed | int32 (1,) | counting ends where no more survive | selection | selection | narrow |
    | prefix | word (1,) | known digits of the k-th key | selection | counting, selection | narrow |
    | remaining | int32 (1,) | keys of the bin among the best k | selection | selection, slots | narrow, list |
    | bin_count | int32 (1,) | keys of the bin | selection | selection, slots | narrow, list |
    | bin_first | word (1,) | the bin's least key: smaller are better | selection | survivors | list, rest |
    | bin_span | word (1,) | distance to its greatest key | selection | survivors | list, rest |
    | settled | int32 (1,) | 1: all of the bin survives | selection | selection, slots, survivors | narrow to rest |
    | marks | uint32 (2,) | bit i: keys[i] is better; is tied | survivors | survivors | list |
    | own_counts | int32 (2,) | this thread's better, and tied | survivors | slots | list |
    | slots | int32 (2,) | next slot of a better, of a tied | slots, survivors | slots, survivors | list, rest |
    | row_totals | int32 (2,) | the row's better, and tied, or appended | slots | survivors | rest; clusters alone |
    | survivors | int32 (1,) | slots of columns in use | slots, survivors | survivors, ordering | list to order |

    Where the lists have no room for what passed, recount is narrow and list once more, over the whole row.
    """

    def hold(self, **buffers):
        """Adds buffers by name, since device code cannot assign to attributes."""
        vars(self).update(buffers)


def state_macros(c):
    """Macros that allocate the buffers of a `Block`.

    Shared memory is laid out in the order of the buffers' names. TileLang names a buffer for the variable that it is
    assigned to; buffers without one are all called alike, and their order would differ from process to process.
    """
    capacity = max(1, c.capacity)

    @T.macro
    def allocate_counting(b):
        histogram = T.alloc_shared((2, c.bins), "int32")
        chunk_totals = T.alloc_shared((2, 32), "int32")
        peer_counts = T.alloc_shared((c.blocks, max(c.warps, c.chunk)) if c.blocks > 1 else (1, 1), "int32")
        warp_totals = T.alloc_shared((2, 32), "int32")
        block_totals = T.alloc_shared((2 * EXCHANGES, 32), "int32")
        appended = T.alloc_shared((1,), "int32")
        b.hold(histogram=histogram, chunk_totals=chunk_totals, peer_counts=peer_counts)
        b.hold(warp_totals=warp_totals, block_totals=block_totals, appended=appended)

    @T.macro
    def allocate_sorting(b):
        columns = T.alloc_shared((capacity,), "int32")
        coarse = T.alloc_shared((c.intervals,), "int32")
        fine = T.alloc_shared((c.intervals,), "int32")
        sort_totals = T.alloc_shared((1, 32), "int32")
        warp_ranges = T.alloc_shared((2, 32), c.word)
        sorted_keys = T.alloc_shared((c.intervals,), c.word)
        sorted_intervals = T.alloc_shared((c.intervals,), c.word)
        b.hold(columns=columns, coarse=coarse, fine=fine, sort_totals=sort_totals, warp_ranges=warp_ranges)
        b.hold(sorted_keys=sorted_keys, sorted_intervals=sorted_intervals)
        b.hold(least=sorted_keys, greatest=sorted_intervals)
        # in a cluster others write to `columns` while this block still reads its own
        b.hold(own_columns=sorted_intervals if c.blocks > 1 else columns)

    @T.macro
    def allocate_registers(b):
        mask = T.alloc_local((1,), c.word)
        gap = T.alloc_local((1,), "int32")
        wider = T.alloc_local((1,), "int32")
        elements = T.alloc_local((c.items,), c.element)
        loaded = T.alloc_local((1,), "uint32")
        keys = T.alloc_local((c.items,), c.word)
        marks = T.alloc_local((2,), "uint32")
        prefix = T.alloc_local((1,), c.word)
        bin_first = T.alloc_local((1,), c.word)
        bin_span = T.alloc_local((1,), c.word)
        bin_count = T.alloc_local((1,), "int32")
        remaining = T.alloc_local((1,), "int32")
        allowed = T.alloc_local((1,), "int32")
        settled = T.alloc_local((1,), "int32")
        survivors = T.alloc_local((1,), "int32")
        own_counts = T.alloc_local((2,), "int32")
        slots = T.alloc_local((2,), "int32")
        row_totals = T.alloc_local((2,), "int32")
        b.hold(mask=mask, gap=gap, wider=wider, elements=elements, loaded=loaded, keys=keys, marks=marks)
        b.hold(prefix=prefix, bin_first=bin_first, bin_span=bin_span, bin_count=bin_count)
        b.hold(remaining=remaining, allowed=allowed, settled=settled, survivors=survivors)
        b.hold(own_counts=own_counts, slots=slots, row_totals=row_totals)

    @T.macro
    def allocate(b):
        """All of them, once, before anything else."""
        allocate_counting(b)
        allocate_sorting(b)
        allocate_registers(b)

    return SimpleNamespace(allocate=allocate)
