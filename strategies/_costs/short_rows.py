"""Of the families of short rows: lanes that merge their lists, and threads that mask one maximum after the other."""

from math import log2
from typing import Protocol

from autotopk.device import Device
from autotopk.problem import FLOAT_INF, Problem, power_of_two
from autotopk.strategies._costs import load, rounds


class Lanes(Protocol):
    """Of lane_merge."""

    @property
    def lanes(self) -> int: ...
    @property
    def warps(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def tree(self) -> bool: ...


def lanes(config: Lanes, share: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """A launch, bytes; a warp's loads, insertions and rounds of merging, once a round and for all of a processor."""
    lanes, warps, depth, tree = config.lanes, config.warps, config.depth, config.tree
    per_block = 32 * warps // lanes
    blocks = -(-problem.rows // per_block)
    times, busy = rounds(blocks, 32 * warps, device), load(blocks, device) * warps
    length = min(depth, share)
    inserted = share * log2(length + 1)
    merging = (log2(lanes) + 1) * (problem.k if not tree else length)
    looped = 0.0 if problem.k <= 10 else float(problem.k)
    return (
        1.0,
        problem.rows * problem.cols * problem.itemsize * 1e-6,
        times,
        times * share,
        times * inserted,
        times * merging,
        times * problem.k,
        times * looped,
        busy,
        busy * share,
        busy * inserted,
        busy * merging,
        busy * problem.k,
        busy * looped,
    )


def masks(rows_per_program: int, warps: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """A launch, bytes; of every one of k a look at all elements of a row, and what its warps tell each other."""
    blocks, length = -(-problem.rows // rows_per_program), power_of_two(problem.cols)
    times, busy = rounds(blocks, 32 * warps, device), load(blocks, device)
    each = rows_per_program * length / (32 * warps)
    floats = float(problem.dtype in FLOAT_INF)  # whose NaN are looked for
    of_block = (
        1.0,
        each,
        float(problem.k),
        problem.k * each,
        float(problem.k * (warps > 1)),
    )
    of_processor = (1.0, each, float(problem.k), problem.k * each)
    grown = [times * one for one in of_block] + [busy * warps * one for one in of_processor]
    return (
        1.0,
        floats,
        problem.rows * problem.cols * problem.itemsize * 1e-6,
        *(one * floats for one in grown),
        *(one * (1 - floats) for one in grown),
    )
