"""Which configurations are worth measuring, and which to begin with."""

from collections.abc import Iterator

from autotopk.device import Device
from autotopk.problem import Problem, power_of_two
from autotopk.strategies._radix.config import THREADS, RadixConfig
from autotopk.strategies._radix.limits import held, most_blocks, most_capacity, most_items, registers, sampled

MIN_CAPACITY = 32
"""Fewest survivors worth making room for."""

MIN_CLUSTER_BYTES = 64 << 10  # a block and a cluster: 64 KiB 5.8 and 6.9 us, 128 KiB 7.1 and 6.7 (docs/radix.md)
"""Shorter rows are done by one block each before the blocks of a cluster have met."""


def suits_cluster(problem: Problem, device: Device) -> bool:
    """Whether rows are so few and long that one block each would leave most of the device idle."""
    few = 4 * problem.rows <= device.processors and problem.cols * problem.itemsize > MIN_CLUSTER_BYTES
    long = 2 * problem.rows <= device.processors and problem.cols > THREADS[-1] * most_items(problem)
    return most_blocks(device) > 1 and (few or long)


def digit_widths(problem: Problem) -> tuple[int, ...]:
    """Bits of a digit worth measuring: long rows gain by fewer digits, short ones by fewer bins."""
    if problem.itemsize == 1 or problem.cols <= 512:
        return (8,)
    return (8, 11) if problem.cols < 4096 else (11,)


def layouts(problem: Problem, blocks: int, vector: int, slack: int) -> Iterator[tuple[int, int]]:
    """(threads, items) that hold whole rows, with at most `slack` times the elements."""
    for threads in THREADS if blocks == 1 else THREADS[-2:]:
        items = max(vector, power_of_two(-(-problem.cols // (blocks * threads))))
        if items <= most_items(problem) and blocks * threads * items <= slack * power_of_two(problem.cols):
            yield threads, items


def usual_items(problem: Problem, threads: int) -> int:
    """Elements of a thread to begin with, where so many threads read a row: no more than spill no registers."""
    items = max(problem.layout.vector, power_of_two(-(-problem.cols // threads)))
    spared = most_items(problem) // 2
    return items if items <= spared or (items == 2 * spared and problem.itemsize < 8) else spared


def capacities(config: RadixConfig, problem: Problem, device: Device) -> list[int]:
    """Capacities worth measuring beside the other knobs, all of which fit: the smallest first, 0 the last.

    More survivors than k: fewer digits. Of a streamed row as many times more survive as it is longer than its sample.
    """
    least, longest = max(MIN_CAPACITY, power_of_two(problem.k)), power_of_two(problem.cols)
    if (longer := -(-problem.cols // held(config))) > 1:
        base = max(1024, power_of_two(2 * problem.k * longer))
        wanted = [base, 4 * base] if problem.k <= sampled(config) else []
    else:
        wanted = [min(least * factor, max(least, longest)) for factor in (2, 4 if least > 256 else 8)]
    most = most_capacity(config, problem, device)
    found = list(dict.fromkeys(min(one, most) for one in wanted if least <= most))
    return found if problem.sorted else [*found[:2], 0]


def usual_capacity(config: RadixConfig, problem: Problem, device: Device) -> int | None:
    """The capacity to begin with: of those worth measuring the least, or less where that would spill registers."""
    first = next(iter(capacities(config, problem, device)), None)
    if first and problem.cols <= held(config) and first * registers(problem) > 4 * config.threads:
        return min(first, power_of_two(problem.k))
    return first
