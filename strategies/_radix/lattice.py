"""What is worth measuring of all that the radix families' kernels can run, where time is no matter."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotopk.candidate import Knob
from autotopk.problem import Problem, power_of_two
from autotopk.strategies._radix.config import THREADS, RadixConfig
from autotopk.strategies._radix.limits import held, most_items, radix_widths

ITEMS = (1, 2, 4, 8, 12, 16, 24, 32)
"""Elements of a thread."""

CAPACITIES = (64, 256, 1024, 2048, 4096, 8192, 16384)
"""Survivors that are sorted: finer where sorting is most of the work; the same for every k, so that shapes
share kernels."""


def knobs(problem: Problem, block_counts: Sequence[int]) -> Mapping[str, Sequence[Knob]]:
    """All knobs, for rows that so many blocks may share."""
    values: dict[str, Sequence[Knob]] = {
        "threads": _threads(problem, max(block_counts)),
        "items": [items for items in ITEMS if items <= most_items(problem)],
        "radix_bits": radix_widths(problem),
        "capacity": _capacities(problem),
        "vector": sorted({problem.layout.vector, max(1, problem.layout.vector // 2)}),
    }
    return values | ({"blocks": block_counts} if max(block_counts) > 1 else {})


def wasteful(config: RadixConfig, problem: Problem) -> bool:
    """Whether a simpler point does the same work sooner, or as soon.

    More registers than the row fills; a sample in less than half of the registers; narrow loads with any but the least
    capacity, since lists are made after the loads, or past a sample.
    """
    narrow = config.vector < problem.layout.vector
    if problem.cols > held(config):
        return narrow or 2 * config.items < most_items(problem)
    fewer = [items for items in ITEMS if items < config.items and items % config.vector == 0]
    filled = not fewer or problem.cols > held(replace(config, items=fewer[-1]))
    return not filled or (narrow and config.capacity != _capacities(problem)[0])


def _threads(problem: Problem, blocks: int) -> Sequence[int]:
    """From one load a thread to all that its registers hold; of a cluster the most, and half of it."""
    if blocks > 1:
        return THREADS[-2:]
    cols = power_of_two(problem.cols)
    most, least = max(THREADS[0], 2 * cols // problem.layout.vector), min(THREADS[-2], cols // most_items(problem))
    return [threads for threads in THREADS if least <= threads <= most]


def _capacities(problem: Problem) -> list[int]:
    """From k to the row; 0 where nothing is sorted."""
    found = [size for size in CAPACITIES if problem.k <= size]
    found = [size for size in found if size < 2 * problem.cols] or found[:1]
    return found if problem.sorted else [0, *found]
