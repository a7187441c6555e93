"""Short rows of floats, sorted lane by lane and merged, in Triton: the fastest for small k."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.triton import TritonSource
from autotopk.device import Device
from autotopk.kernel import kernel_symbol
from autotopk.problem import ANSWERS, VECTOR_BYTES, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.strategies._short_rows import MERGED_DTYPES, index_pointer, reasons_unlaunchable, reasons_unmerged
from autotopk.strategy import Features, Strategy

MAX_SHARE = 64
"""Most elements of a lane; their loads are all in flight at once."""
LANES = (1, 2, 4, 8, 16, 32)
WARPS = (1, 2, 4, 8)
DEPTHS = (4, 8, 16, 32, 64)
TREE_K = 4
"""Largest k whose lists are merged pairwise."""
FEW = 8
"""Rows a multiprocessor that leave it waiting for memory and each other; fewer lanes a row would not help."""


@dataclass(frozen=True)
class LaneMergeConfig:
    """How rows are laid out over lanes, and how the lanes' lists are merged."""

    lanes: int
    """Of one row, at most a warp."""
    warps: int
    """Of a program; each has 32 / lanes rows."""
    depth: int
    """Length of a lane's list where its share is longer."""
    tree: bool
    """Merge lists pairwise, for k <= 4, rather than take one head after the other."""


class LaneMerge(Strategy):
    """Exact; rows of many near ties, and those with NaNs, take a second pass."""

    name = "lane_merge"
    config_type = LaneMergeConfig
    preference: ClassVar[int] = 20
    features = Features(
        dtypes=frozenset(MERGED_DTYPES),
        answers=frozenset(ANSWERS),
        side_by_side=True,
        device_types=frozenset({"cuda"}),
        capability=(8, 0),
        embeddable=True,
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs short rows and a small k."""
        return reasons_unlaunchable(problem) + reasons_unmerged(problem)

    def shortlist(self, problem: Problem, device: Device) -> Sequence[LaneMergeConfig]:
        """What was ever best, or within 3 % of it, in an exhaustive sweep: docs/small_rows.md."""
        return list(dict.fromkeys(_layouts(problem, device)))

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Every layout: the kernels of a shape are few, and quickly compiled."""
        return {"lanes": LANES, "warps": WARPS, "depth": DEPTHS, "tree": (False, True)}

    def valid(self, config: LaneMergeConfig, problem: Problem, device: Device) -> bool:
        """Any layout whose lanes can hold their shares."""
        return (
            config.lanes in LANES
            and config.warps in WARPS
            and config.depth in DEPTHS
            and share(config.lanes, problem) <= MAX_SHARE
            and config.depth >= min(share(config.lanes, problem), least_depth(config, problem))
            and (problem.k <= TREE_K or not config.tree)
        )

    def heuristic(self, problem: Problem, device: Device) -> LaneMergeConfig | None:
        """The first of the space; where so many float32 are asked for that some are alike, others are faster."""
        alike = problem.itemsize == 4 and problem.k * problem.cols > 1 << 15
        return None if alike else self.shortlist(problem, device)[0]

    def program(self, config: LaneMergeConfig, problem: Problem, device: Device) -> KernelProgram:
        """One program for every 32 * warps / lanes rows."""
        rows = 32 * config.warps // config.lanes
        ragged = is_ragged(config.lanes, problem)
        width = vector(config.lanes, problem)
        pairs = problem.itemsize == 2 and width > 1
        step = config.lanes * width
        vectors = -(-(problem.cols + (width - 1 if ragged else 0)) // step)
        whole = problem.itemsize == 2
        spare = 0 if whole or config.tree or problem.k == problem.cols else 1
        element = f"*i{8 * problem.itemsize}"
        source = TritonSource(
            function="autotopk.strategies._short_rows.lanes:lane_merge_rows",
            signature=(
                ("x", "*i32" if pairs else element),
                ("values", element),
                ("indices", index_pointer(problem)),
                ("rows", "i32"),
                ("cols", "i32"),
                ("row_stride", "i64"),
                ("col_stride", "i64"),
                ("inner", "i32"),
            ),
            constants=(
                ("ROWS", rows),
                ("LANES", config.lanes),
                ("VECTORS", vectors),
                ("VECTOR", width),
                ("INSIDE", problem.cols // step),
                ("SPAN", step * power_of_two(vectors)),
                ("DEPTH", min(config.depth, vectors * width)),
                ("TREE", config.tree),
                ("K", problem.k),
                ("SPARE", spare),
                ("SLOTS", -(-(problem.k + spare) // config.lanes)),
                ("DTYPE", problem.dtype),
                ("LARGEST", problem.largest),
                ("PAIRS", pairs),
                ("RAGGED", ragged),
                ("SIDE_BY_SIDE", problem.layout.side_by_side),
                ("SMALL", max(problem.layout.extent(problem.rows, problem.cols), problem.rows * problem.k) < 1 << 31),
                ("INDICES_ONLY", problem.answer == "indices"),
            ),
            divisors=(
                ("x", width * problem.itemsize),
                ("values", 16),
                ("indices", 16),
                ("cols", 1 if ragged else width),
                ("row_stride", 1 if ragged else width),
            ),
            warps=config.warps,
            symbol=kernel_symbol(self.name, problem, sorted=True),
        )
        return KernelProgram.of(source, Extent(per=(("rows", rows),)))


def least_depth(config: LaneMergeConfig, problem: Problem) -> float:
    """Length of a list that hardly ever ends too soon: of so many elements, those that fall to one lane, and more."""
    if config.tree:  # for what lacks its last bits, also the one after the k-th
        return problem.k if problem.itemsize == 2 or config.lanes >= 8 else problem.k + 1
    mean = (problem.k + 2) / config.lanes
    return min(problem.k + 2, mean + 3.5 * sqrt(mean) + 2)


def is_ragged(lanes: int, problem: Problem) -> bool:
    """Whether rows are read in aligned vectors although they do not begin at one: worth it for two of them a lane."""
    widest = VECTOR_BYTES // problem.itemsize
    wide = problem.cols >= 2 * lanes * widest
    return problem.layout.aligned and not problem.layout.side_by_side and problem.layout.vector < widest and wide


def vector(lanes: int, problem: Problem) -> int:
    """Elements of a load."""
    return VECTOR_BYTES // problem.itemsize if is_ragged(lanes, problem) else problem.layout.vector


def share(lanes: int, problem: Problem) -> int:
    """Elements of a lane."""
    width = vector(lanes, problem)
    return -(-problem.cols // (lanes * width)) * width


def _layouts(problem: Problem, device: Device) -> Iterator[LaneMergeConfig]:
    for lanes in _lane_counts(problem, device):
        for warps in (1, 2) if lanes == 32 else (1, 2, 4):
            if warps == 1 or problem.rows * lanes > 32 * device.processors:  # none idle
                depths = _depths(lanes, problem, tree=False, least=8)[: 1 if problem.k <= 16 else 2]
                yield from (LaneMergeConfig(lanes, warps, depth, False) for depth in depths)
                if problem.k <= TREE_K and lanes <= 8:
                    yield LaneMergeConfig(lanes, warps, _depths(lanes, problem, tree=True, least=4)[0], True)


def _depths(lanes: int, problem: Problem, *, tree: bool, least: int) -> list[int]:
    needed = min(share(lanes, problem), least_depth(LaneMergeConfig(lanes, 1, 0, tree), problem))
    return [depth for depth in DEPTHS if depth >= max(least, needed)]


def _lane_counts(problem: Problem, device: Device) -> list[int]:
    """Of one row, the likeliest first: few rows are spread thin, of many a lane takes 8 to 64 elements."""
    if problem.layout.side_by_side:  # lanes of one warp read adjacent rows
        return [min(8, power_of_two(-(-problem.cols // 16)))]
    few = problem.rows <= FEW * device.processors
    if problem.cols >= (64 if few else 512):
        return [32]
    counts = [lanes for lanes in (1, 2, 4, 8) if 8 <= share(lanes, problem) <= MAX_SHARE] or [1]
    counts.sort(key=lambda lanes: abs(share(lanes, problem) - 16))
    if few:
        return [32, *counts] if problem.cols >= 32 else counts
    return [*counts, 32] if problem.cols >= 256 else counts


strategy = LaneMerge()
