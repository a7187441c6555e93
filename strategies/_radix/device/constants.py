"""What a radix kernel is specialised by, and what follows from it while it is traced."""

from dataclasses import dataclass
from functools import cached_property

import tilelang.language as T


@dataclass(frozen=True)
class Constants:
    """Compile-time numbers of one kernel.

    Run-time numbers are rows, columns, k, the row's stride, direction, integers' signedness, the format of 16-bit
    floats and the form of the answer.
    """

    element_bits: int
    """Bits of an element: 8, 16, 32 or 64."""
    is_float: bool
    """Floats, or else integers."""
    threads: int
    """Threads of a block."""
    blocks: int
    """Blocks of the cluster that reads one row; 1 for no cluster."""
    radix_bits: int
    """Bits of a digit."""
    vector: int
    """Elements of one load."""
    items: int
    """Elements a thread holds in registers, at most 32: of the whole row, or of a sample of it."""
    streams: bool
    """Rows may be of any length; else no longer than what is held."""
    capacity: int
    """Survivors that are sorted, a power of two and at least k; 0 to write the best k in any order without sorting."""

    @cached_property
    def word(self) -> str:
        """The type of keys."""
        return "uint64" if self.element_bits == 64 else "uint32"

    @cached_property
    def word_bits(self) -> int:
        return 64 if self.element_bits == 64 else 32

    @cached_property
    def element(self) -> str:
        """The type that elements travel as."""
        return f"uint{self.element_bits}"

    @cached_property
    def minus_infinity(self) -> int:
        """Its bits, of floats that have one format."""
        return {32: 0xFF800000, 64: 0xFFF0000000000000}[self.element_bits]

    @cached_property
    def ones(self) -> int:
        """The worst key of an element."""
        return (1 << self.element_bits) - 1

    @cached_property
    def worst(self) -> int:
        """The largest word."""
        return (1 << self.word_bits) - 1

    @cached_property
    def digits(self) -> list[tuple[int, int]]:
        """(shift, width) in bits, from the top."""
        found, top = [], self.element_bits
        while top > 0:
            width = min(self.radix_bits, top)
            top -= width
            found.append((top, width))
        return found

    @cached_property
    def bins(self) -> int:
        """Bins of the widest digit's histogram."""
        return 1 << self.digits[0][1]

    @cached_property
    def samples(self) -> bool:
        """Of longer rows registers hold a sample; without a list of survivors they hold nothing."""
        return self.streams and self.capacity > 0

    @cached_property
    def warps(self) -> int:
        return self.threads // 32

    @cached_property
    def chunk(self) -> int:
        """Neighbouring bins that one warp adds up; with less than one a warp, the later warps have none."""
        return max(1, self.bins // self.warps)

    @cached_property
    def groups(self) -> int:
        """Loads of a thread that fill its registers."""
        return self.items // self.vector

    @cached_property
    def owned(self) -> int:
        """Survivors of one thread while they are sorted."""
        return max(1, self.capacity // self.threads)

    @cached_property
    def intervals(self) -> int:
        """Intervals of the counting sort, a multiple of the threads; 1 where nothing is sorted."""
        return max(self.capacity, self.threads) if self.capacity else 1

    def number(self, value: int) -> object:
        """A constant of the type of keys."""
        return T.Cast("uint64", T.uint64(value)) if self.word == "uint64" else T.uint32(value)
