"""Rows of any length, one block each: radix selection in registers and shared memory, in TileLang."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from autotopk.device import Device
from autotopk.problem import ANSWERS, Problem
from autotopk.strategies._radix.config import THREADS, RadixConfig
from autotopk.strategies._radix.limits import most_items
from autotopk.strategies._radix.shortlists import (
    digit_widths,
    layouts,
    overflows,
    suits_cluster,
    usual_items,
    with_capacities,
)
from autotopk.strategies._radix.strategy import RadixStrategy
from autotopk.strategies._short_rows import reasons_unmerged
from autotopk.strategy import Features

MAX_LONE_BYTES = 2 << 20  # torch.topk and a block: 1 MiB 71.5 and 53.1 us, 2 MiB 96 and 104 (docs/radix.md)
"""Longest row that one block reads before torch.topk, which spreads a row over the device, is done."""


@dataclass(frozen=True)
class BlockRadixConfig(RadixConfig):
    """How a row is laid out over the threads of a block."""

    @property
    def blocks_per_row(self) -> int:
        """Blocks that share a row."""
        return 1


_config = lru_cache(1 << 12)(BlockRadixConfig)  # a call where nothing was tuned asks for dozens


class BlockRadix(RadixStrategy):
    """Exact, and as stable as torch.topk: reads a row once, or a few times where its values are against it."""

    name = "block_radix"
    config_type = BlockRadixConfig
    features = Features(answers=frozenset(ANSWERS), device_types=frozenset({"cuda"}), capability=(8, 0))

    def roomiest(self, problem: Problem, device: Device) -> BlockRadixConfig:
        """See RadixStrategy."""
        return _config(THREADS[-1], most_items(problem), 8, 0, problem.layout.vector)

    def shortlist(self, problem: Problem, device: Device) -> Sequence[BlockRadixConfig]:
        """The first rung; whole rows in registers with up to twice as many, else samples; narrower loads are slower.

        One point, for comparison, where lanes merge their lists in two thirds of the time.
        """
        if not reasons_unmerged(problem) and problem.cols <= 512 and problem.k <= 32:
            return self.ladder(problem, device)[:1]
        shapes = [
            _config(threads, items, bits, 0, problem.layout.vector)
            for threads, items in [*layouts(problem, 1, problem.layout.vector, slack=2), *_samples(problem, device)]
            for bits in digit_widths(problem)
        ]
        first = self.ladder(problem, device)[:1]
        return list(dict.fromkeys([*first, *with_capacities(shapes, problem, device)]))

    def suits(self, problem: Problem, device: Device) -> bool:
        """Unless so few rows are so long that a cluster, or all of the device, should share each."""
        lone = 2 * problem.rows < device.processors and problem.cols * problem.itemsize > MAX_LONE_BYTES
        return not lone and not suits_cluster(problem, device)

    def preferred(self, problem: Problem, device: Device) -> BlockRadixConfig:
        """Eight elements a thread, then 16, then more threads; longer rows share processors where they are many."""
        halves, bits = THREADS[-2], digit_widths(problem)[0]
        threads = next((count for count in THREADS[:-1] if problem.cols <= 8 * count), THREADS[-1])
        if 8 * halves < problem.cols <= 16 * halves and (problem.sorted or problem.k < 1024):
            threads = halves
        elif problem.cols > THREADS[-1] * most_items(problem):
            threads = halves if problem.rows > device.processors and not overflows(halves, problem) else threads
            return _config(threads, most_items(problem), bits, 0, problem.layout.vector)
        return _config(threads, usual_items(problem, threads), bits, 0, problem.layout.vector)


def _samples(problem: Problem, device: Device) -> list[tuple[int, int]]:
    """(threads, items) that hold a part of a row: none where a cluster should share it."""
    most = most_items(problem)
    counts = () if suits_cluster(problem, device) else THREADS[-2:]
    return [(threads, items) for threads in counts if problem.cols > threads * most for items in (most // 2, most)]


strategy = BlockRadix()
