"""What the families' times grow with, in numbers that are fitted to what was measured: see `Strategy.terms`.

A launch of more blocks than a device holds runs in rounds. A block of many threads that wait for each other costs its
latency once a round; whatever keeps a processor busy costs its share of all blocks.
"""

from functools import lru_cache
from math import log2

from autotopk.device import Device
from autotopk.problem import Problem

THREADS_HELD = 2048
"""Of one multiprocessor."""

BLOCKS_HELD = 32

REGISTERS = 1 << 16
"""32 bits each, of one multiprocessor."""


NEIGHBOURS = 10 / 11
"""Share of multiprocessors that clusters of more than two find room on: of 132 for 30 of 4, 15 of 8, 7 of 16."""


def rounds(
    blocks: int, threads: int, device: Device, shared_bytes: int = 0, registers: int = 32, cluster: int = 1
) -> int:
    """How many times blocks are started until all have run, by the registers of a thread and the memory of a block."""
    return -(-blocks // at_once(threads, device, shared_bytes, registers, cluster))


@lru_cache(1 << 12)
def at_once(threads: int, device: Device, shared_bytes: int = 0, registers: int = 32, cluster: int = 1) -> int:
    """Blocks that run at the same time."""
    held = min(BLOCKS_HELD, THREADS_HELD // threads, REGISTERS // (threads * registers))
    if shared_bytes:
        held = min(held, device.shared_bytes // shared_bytes)
    held = max(1, held)
    if cluster > 2:
        return max(1, held * (int(device.processors * NEIGHBOURS) // cluster)) * cluster
    return max(1, held * device.processors)


def load(blocks: int, device: Device) -> int:
    """Blocks that the busiest multiprocessor runs."""
    return -(-blocks // device.processors)


SATURATING = 19
"""Blocks that read as fast as memory delivers, where one alone is bound by what it has on its way."""


def reading(each: float, blocks: int, times: int) -> float:
    """MB that a block alone would read in the same time as `blocks` that read `each` bytes in so many rounds."""
    return max(each * times, each * blocks / SATURATING) * 1e-6


def remote(problem: Problem, device: Device) -> float:
    """How much of an input the L2 cache has lost from one call to the next: little of a small one, most of a large."""
    read = problem.rows * problem.cols * problem.itemsize
    return read / (read + device.l2_bytes)


@lru_cache(1 << 10)
def sorting(count: int) -> float:
    """Comparisons of a bitonic network, a number."""
    width = log2(max(2, count))
    return count * width * (width + 1) / 4
