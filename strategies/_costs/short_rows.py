"""Of the families of short rows: lanes that merge their lists, and threads that mask one maximum after the other."""

from math import log2
from typing import Protocol

from autotopk.device import Device
from autotopk.problem import FLOAT_INF, VECTOR_BYTES, Problem
from autotopk.strategies._costs import load, remote, rounds


class Lanes(Protocol):
    """A configuration of lane_merge or lane_route."""

    @property
    def lanes(self) -> int: ...
    @property
    def warps(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def tree(self) -> bool: ...


class Loads(Protocol):
    """What is compiled of one."""

    @property
    def config(self) -> Lanes: ...
    @property
    def vectors(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def inside(self) -> int: ...
    @property
    def most(self) -> int: ...
    @property
    def unrolled(self) -> bool: ...


def lanes(kernel: Loads, problem: Problem, device: Device) -> tuple[float, ...]:
    """A launch, bytes; a warp's loads, insertions and rounds of merging, once a round and for all of a processor.

    A kernel loads so many elements of a lane, however short rows are, so many of them with a look at a row's end, and
    goes `most` rounds, where these are no loop; in each a list moves up, all of it, unless lists are merged as trees.
    """
    share, checked = kernel.vectors * kernel.width, (kernel.vectors - kernel.inside) * kernel.width
    lanes, warps, depth, tree = kernel.config.lanes, kernel.config.warps, kernel.config.depth, kernel.config.tree
    per_block = 32 * warps // lanes
    blocks = -(-problem.rows // per_block)
    times, busy = rounds(blocks, 32 * warps, device), load(blocks, device) * warps
    length = min(depth, share)
    inserted = share * log2(length + 1)
    taken = kernel.most if kernel.unrolled else problem.k
    merging = (log2(lanes) + 1) * (taken if not tree else length)
    shifted = 0.0 if tree else float(taken * length)
    looped = 0.0 if kernel.unrolled else float(problem.k)
    return (
        1.0,
        problem.rows * problem.cols * problem.itemsize * 1e-6,
        remote(problem, device),
        problem.rows * problem.k * problem.itemsize * 1e-6,
        times,
        times * share,
        times * checked,
        times * inserted,
        times * merging,
        times * shifted,
        times * problem.k,
        times * looped,
        busy,
        busy * share,
        busy * share * (problem.layout.vector * problem.itemsize < VECTOR_BYTES),
        busy * inserted,
        busy * merging,
        busy * shifted,
        busy * shifted * (lanes < 32),
        busy * problem.k,
        busy * looped,
    )


def masks(rows_per_program: int, warps: int, length: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """A launch, bytes; of every one of k a look at `length` elements of a row, and what its warps tell each other."""
    blocks = -(-problem.rows // rows_per_program)
    times, busy = rounds(blocks, 32 * warps, device), load(blocks, device)
    each, k = rows_per_program * length / (32 * warps), float(problem.k)
    floats = problem.dtype in FLOAT_INF  # whose NaN are looked for
    *both, together = 1.0, each, k, k * each, k * (warps > 1)
    grown = [*[times * one for one in both], times * together, *[busy * warps * one for one in both]]
    none = [0.0] * len(grown)
    words, ragged = problem.itemsize == 8, problem.layout.vector * problem.itemsize < VECTOR_BYTES
    return (
        1.0,
        float(floats),
        problem.rows * problem.cols * problem.itemsize * 1e-6,
        remote(problem, device),
        *(grown if floats else none),
        *(none if floats else grown),
        times * k * words,
        busy * warps * k * each * words,
        times * each * ragged,
        busy * warps * each * ragged,
    )
