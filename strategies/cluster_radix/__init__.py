"""Few long rows, several blocks each: radix selection over a cluster's distributed shared memory, in TileLang."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autotopk.device import Device
from autotopk.problem import ANSWERS, Problem, power_below
from autotopk.strategies._radix.config import KNOBS, THREADS, RadixConfig
from autotopk.strategies._radix.limits import most_blocks, most_items
from autotopk.strategies._radix.shortlists import (
    digit_widths,
    layouts,
    least_cluster,
    overflows,
    suits_cluster,
    usual_items,
    with_capacities,
)
from autotopk.strategies._radix.strategy import RadixStrategy
from autotopk.strategy import Features

MIN_COLS = 4096  # one row of 16,384: a block 5.8 us, a cluster 6.9; of 32,768: 7.1 and 6.7 (docs/radix.md)
"""Shorter rows are done before blocks have met."""


@dataclass(frozen=True)
class ClusterRadixConfig(RadixConfig):
    """How a row is laid out over the blocks of a cluster and their threads; the first block sorts."""

    blocks: int
    """Blocks that share a row."""

    @property
    def blocks_per_row(self) -> int:
        """Blocks that share a row."""
        return self.blocks


_config = lru_cache(1 << 12)(ClusterRadixConfig)  # a call where nothing was tuned asks for dozens


class ClusterRadix(RadixStrategy):
    """Exact, and as stable as torch.topk: blocks exchange counts and survivors without touching global memory."""

    name = "cluster_radix"
    config_type = ClusterRadixConfig
    features = Features(answers=frozenset(ANSWERS), device_types=frozenset({"cuda"}), capability=(9, 0))

    def roomiest(self, problem: Problem, device: Device) -> ClusterRadixConfig:
        """See RadixStrategy."""
        blocks = max(2, _most_blocks(problem, device))
        return _config(THREADS[-1], most_items(problem), 8, 0, problem.layout.vector, blocks)

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs rows worth sharing, and shared memory for a sorted k."""
        reasons = super().reasons_unsupported(problem, device)
        if problem.cols < MIN_COLS:
            reasons.append(f"rows of {problem.cols} are shorter than {MIN_COLS}")
        elif _most_blocks(problem, device) < 2:
            reasons.append(f"{problem.rows} rows of {problem.cols} keep the device busy with one block each")
        return reasons

    def shortlist(self, problem: Problem, device: Device) -> Sequence[ClusterRadixConfig]:
        """The first rung; whole rows in registers, else samples over as many blocks as the device has room for."""
        shapes = [
            _config(threads, items, bits, 0, problem.layout.vector, blocks)
            for blocks, threads, items in _layouts(problem, device)
            for bits in digit_widths(problem)
        ]
        first = self.ladder(problem, device)[:1]
        return list(dict.fromkeys([*first, *with_capacities(shapes, problem, device)]))

    def block_counts(self, problem: Problem, device: Device) -> Sequence[int]:
        """Up to clusters of which only half run at once."""
        most = min(2 * _most_blocks(problem, device), most_blocks(device))
        return [blocks for blocks in KNOBS["blocks"] if blocks <= most]

    def suits(self, problem: Problem, device: Device) -> bool:
        """Where one block each would leave most of the device idle."""
        return suits_cluster(problem, device)

    def preferred(self, problem: Problem, device: Device) -> ClusterRadixConfig:
        """So many blocks that half of their registers hold the row, as far as all clusters run at once.

        Where only all of their registers do, twice as many of half the threads: two share a processor. Of many rows
        that one block would read again, as few as hold one.
        """
        threads, most, room = THREADS[-1], most_items(problem), device.processors // problem.rows
        if overflows(threads, problem) and room < (least := least_cluster(problem)) <= 4:
            return _config(threads, most, digit_widths(problem)[-1], 0, problem.layout.vector, least)
        sizes = [blocks for blocks in _sizes(problem, device) if blocks <= max(2, room)]
        blocks = next((count for count in sizes if 2 * problem.cols <= count * threads * most), sizes[-1])
        items, full = usual_items(problem, blocks * threads), blocks * threads * most
        if full < 2 * problem.cols:
            items = most
            if problem.cols <= full and 2 * blocks <= most_blocks(device):
                blocks, threads = 2 * blocks, threads // 2
        return _config(threads, items, digit_widths(problem)[-1], 0, problem.layout.vector, blocks)


def _most_blocks(problem: Problem, device: Device) -> int:
    """Blocks of the largest cluster worth trying, 1 for none: all at once, or pairs where no block holds a row."""
    room = max(device.processors // problem.rows, 1 if problem.cols <= THREADS[-1] * most_items(problem) else 2)
    return min(most_blocks(device), power_below(room))


def _sizes(problem: Problem, device: Device) -> list[int]:
    most = _most_blocks(problem, device)
    return [blocks for blocks in KNOBS["blocks"] if blocks <= most]


def _layouts(problem: Problem, device: Device) -> Iterator[tuple[int, int, int]]:
    """(blocks, threads, items): of samples only those that no larger cluster beats by holding more at once."""
    sizes, most = _sizes(problem, device), most_items(problem)
    for blocks in sizes:
        yield from ((blocks, *layout) for layout in layouts(problem, blocks, problem.layout.vector, slack=2))
        crowded = blocks == sizes[-1] or 2 * blocks * problem.rows > device.processors
        if crowded and problem.cols > blocks * THREADS[-1] * most:
            yield from ((blocks, threads, items) for threads in THREADS[-2:] for items in (most // 2, most))
    halves = 2 * sizes[-1], THREADS[-2], most  # blocks that share processors: 32x128256 17.9 us, 19.4 of whole blocks
    if halves[0] <= most_blocks(device) and halves[1:] in layouts(problem, halves[0], problem.layout.vector, slack=2):
        yield halves


strategy = ClusterRadix()
