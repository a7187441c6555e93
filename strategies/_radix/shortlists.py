"""Which configurations are worth measuring, and which to begin with."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from autotopk.device import Device
from autotopk.problem import Problem, power_of_two
from autotopk.strategies._radix.config import THREADS, RadixConfig
from autotopk.strategies._radix.limits import held, most_blocks, most_capacity, most_items, sampled

MIN_CAPACITY = 32
"""Fewest survivors worth making room for."""

MIN_CLUSTER_BYTES = 64 << 10  # a block and a cluster: 64 KiB 5.8 and 6.9 us, 128 KiB 7.1 and 6.7 (docs/radix.md)
"""Shorter rows are done by one block each before the blocks of a cluster have met."""


SORTED = 8  # 256x131072: k = 256 of 512 threads 74 us, k = 512 162, of 1,024 79 (docs/radix.md)
"""Survivors of a thread that a block sorts before it must read the row again for fewer."""


def overflows(threads: int, problem: Problem) -> bool:
    """Whether more of a row survive what so many threads sample than they sort."""
    longer = -(-problem.cols // (threads * most_items(problem)))
    return longer > 1 and 2 * problem.k * longer > SORTED * threads


def least_cluster(problem: Problem) -> int:
    """Blocks of the smallest cluster whose registers hold a row."""
    return power_of_two(-(-problem.cols // (THREADS[-1] * most_items(problem))))


def suits_cluster(problem: Problem, device: Device) -> bool:
    """Whether rows are so few and long that one block each would leave most of the device idle.

    Or so long for k that a block would read them more than once, which a few blocks hold.
    """
    few = 4 * problem.rows <= device.processors and problem.cols * problem.itemsize > MIN_CLUSTER_BYTES
    most = THREADS[-1] * most_items(problem) // (2 if problem.itemsize == 2 else 1)  # bfloat16 64x32768: 15.9, 12.7 us
    long = 2 * problem.rows <= device.processors and problem.cols > most
    held = overflows(THREADS[-1], problem) and least_cluster(problem) <= 4
    return most_blocks(device) > 1 and (few or long or held)


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


def with_capacities(layouts: Sequence[Any], problem: Problem, device: Device) -> list[Any]:
    """Layouts, themselves without, with capacities worth measuring, all of which fit: the smallest first, 0 the last.

    More survivors than k: fewer digits. Of a streamed row as many times more survive as it is longer than its sample.
    """
    cols, k, found = problem.cols, problem.k, []
    least, longest = max(MIN_CAPACITY, power_of_two(k)), power_of_two(cols)
    of_held = [min(least * factor, max(least, longest)) for factor in (2, 4 if least > 256 else 8)]
    for layout in layouts:
        wanted, most = of_held, most_capacity(layout, problem, device)
        if (longer := -(-cols // held(layout))) > 1:
            base = max(1024, power_of_two(2 * k * longer))
            wanted = [base, 4 * base] if k <= sampled(layout) else []
        sizes = dict.fromkeys([min(one, most) for one in wanted]) if least <= most else {}
        found += [with_capacity(layout, size) for size in sizes]
        if not problem.sorted:
            found.append(layout)
    return found


@lru_cache(1 << 12)  # a call where nothing was tuned asks for dozens
def with_capacity(config: RadixConfig, capacity: int) -> Any:
    """The configuration with another capacity."""
    return replace(config, capacity=capacity)


def wanted_capacity(config: RadixConfig, problem: Problem, device: Device) -> int:
    """The capacity to begin with where it fits; 0 where best nothing is sorted."""
    room = held(config)
    if problem.cols > room:
        return wanted_of_streamed(room, problem)
    return wanted_of_held(config.blocks_per_row, problem, device)


def wanted_of_streamed(held: int, problem: Problem) -> int:
    """Where registers hold so much of a longer row."""
    return max(1024, power_of_two(2 * problem.k * -(-problem.cols // held)))


def wanted_of_held(blocks: int, problem: Problem, device: Device) -> int:
    """Where the registers of so many blocks hold a row.

    The more survive a digit than k, the smaller k is beside its length. Sorting thousands costs more than a further
    digit, and more than writing them in any order but on idle blocks.
    """
    least = max(MIN_CAPACITY, power_of_two(problem.k))
    alone = blocks == 1 and problem.rows <= device.processors
    if not problem.sorted and problem.k >= 1024 and not alone:
        return 0
    wanted = 2 * least if 64 * problem.k >= problem.cols else max(2 * least, min(8 * least, 4096))
    return max(least, min(wanted, power_of_two(problem.cols)))
