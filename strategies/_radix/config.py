"""The knobs that the radix families share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from autotopk.strategy import check_knobs

THREADS = (32, 64, 128, 256, 512, 1024)
"""Threads of a block that are worth measuring."""

ITEM_REGISTERS = 32
"""32-bit registers of a thread that may hold elements; 1024 threads have 64 each, and the rest of the work takes 32."""

KNOBS: dict[str, Sequence[int]] = {
    "blocks": (2, 4, 8, 16),
    "threads": THREADS,
    "items": range(1, ITEM_REGISTERS + 1),
    "radix_bits": (8, 11),
    "capacity": (0, *(1 << bits for bits in range(5, 15))),
    "vector": (1, 2, 4, 8, 16),
}
"""What kernels can be made for."""


@dataclass(frozen=True)
class RadixConfig(ABC):
    """How a row is laid out over threads, and how it is narrowed. Raises ValueError for what no kernel has."""

    threads: int
    """Threads of a block."""
    items: int
    """Elements of a thread in registers; where that is less than the row, it is a sample and the rest is streamed."""
    radix_bits: int
    """Bits of a digit."""
    capacity: int
    """Survivors that are sorted in the shared memory of one block, at least k; 0 writes the best k in any order,
    whatever k."""
    vector: int
    """Most elements of one load; fewer where rows are not aligned."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)
        if self.items % self.vector:
            raise ValueError(f"items={self.items} is no multiple of vector={self.vector}")

    @property
    @abstractmethod
    def blocks_per_row(self) -> int:
        """Blocks that share a row."""
