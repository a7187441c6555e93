"""Of the families that share a row out over the device."""

from typing import Protocol

from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.strategies._costs import load, rounds, sorting


class Lists(Protocol):
    """Of split_radix."""

    @property
    def blocks(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def loads(self) -> int: ...
    @property
    def capacity(self) -> int: ...


def lists(config: Lists, problem: Problem, device: Device) -> tuple[float, ...]:
    """Parts of a row whose best go through a list: a launch, bytes; reading, the list, what the last block orders."""
    blocks, threads, loads, capacity = config.blocks, config.threads, config.loads, config.capacity
    everywhere = problem.rows * blocks
    times, busy = rounds(everywhere, threads, device, 8 * capacity), load(everywhere, device)
    part = problem.cols / blocks
    last = sorting(2 * problem.k) / threads
    return (
        1.0,
        problem.rows * problem.cols * problem.itemsize * 1e-6,
        times,
        times * part / threads,
        times * part / (threads * loads),
        times * sorting(capacity) / threads,
        times * capacity / threads,
        times * last,
        times * (blocks > 1),
        times * (blocks > 1) * problem.k * blocks / threads,
        busy * part * 1e-3,
        busy * capacity * 1e-3,
        busy * problem.k * 1e-3,
    )


def steps(blocks: int, threads: int, split: bool, launches: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """Launches that each read a row, or blocks that go over theirs as often."""
    everywhere = problem.rows * blocks if split else min(blocks, problem.rows)
    times, busy = rounds(everywhere, threads, device), load(everywhere, device)
    each = problem.cols / blocks if split else problem.cols * -(-problem.rows // everywhere)
    chosen = problem.k / blocks if split else problem.k * -(-problem.rows // everywhere)
    bytes_ = problem.rows * problem.cols * problem.itemsize * 1e-6
    return (
        1.0,
        launches,
        bytes_,
        launches * bytes_ if split else 0.0,
        times,
        times * each / threads,
        times * chosen / threads * problem.itemsize,
        busy * each * 1e-3,
        busy * chosen * 1e-3 * problem.itemsize,
        problem.rows * problem.k * problem.itemsize * 1e-6,
    )
