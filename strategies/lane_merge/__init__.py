"""Short rows of floats, sorted lane by lane and merged, in Triton: the fastest for small k."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import product
from math import sqrt
from typing import Any, ClassVar, Self

from autotopk.candidate import Knob
from autotopk.compilers.triton import TritonSource, reasons_unbuildable
from autotopk.device import Device
from autotopk.kernel import KernelSource
from autotopk.problem import ANSWERS, DTYPE_BYTES, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.strategies._costs import short_rows as costs
from autotopk.strategies._short_rows import (
    MERGED_DTYPES,
    Reading,
    reading_of,
    reasons_unlaunchable,
    reasons_unmerged,
    width_of,
)
from autotopk.strategies.lane_merge.ladder import FLOAT16, FLOAT16_SMALLEST, FLOAT32, FLOAT32_SMALLEST
from autotopk.strategy import Features, Strategy, later

MAX_SHARE = 64
"""Most elements of a lane; their loads are all in flight at once."""
LANES, WARPS, DEPTHS = (1, 2, 4, 8, 16, 32), (1, 2, 4, 8), (4, 8, 16, 32, 64)
LAYOUTS: Mapping[str, Sequence[Knob]] = {"lanes": LANES, "warps": WARPS, "depth": DEPTHS, "tree": (False, True)}
TREE_K = 4
"""Largest k whose lists are merged pairwise."""
UNROLLED = frozenset((*range(11), 20, 32))
"""Largest k of the kernels whose rounds are no loop: the small ones, and two that many ask for."""
DEEP = 16
"""Longest list of a lane that is sorted quickly, and compiled in seconds, not minutes."""
FEW = 8
"""Rows a multiprocessor that leave it waiting for memory and each other; fewer lanes a row would not help."""


@dataclass(frozen=True)
class LaneConfig:
    """How rows are laid out over lanes, and how the lanes' lists are merged."""

    lanes: int
    """Of one row, at most a warp."""
    warps: int
    """Of a program; each has 32 / lanes rows."""
    depth: int
    """Length of a lane's list where its share is longer."""
    tree: bool
    """Merge lists pairwise, for k <= 4, rather than take one head after the other."""

    @property
    def layout(self) -> tuple[int, int, int, bool]:
        """All of these."""
        return self.lanes, self.warps, self.depth, self.tree


@dataclass(frozen=True)
class LaneMergeConfig(LaneConfig):
    """The same, and the sizes up to which the kernel goes; where these are 0, no further than the problem."""

    vectors: int = later(0)
    """Loads of a lane."""
    inside: int = later(0)
    """The first so many are inside of every row."""
    most: int = later(0)
    """The largest k."""


@dataclass(frozen=True)
class LaneMergeKernel:
    """What is compiled: a configuration, and the sizes up to which its kernel goes."""

    config: LaneConfig
    vectors: int
    """Loads of a lane."""
    inside: int
    """The first so many are inside of every row; of ragged rows all but the very first."""
    most: int
    """The largest k."""
    dtype: str
    largest: bool
    reading: Reading

    @classmethod
    def least(cls, config: LaneConfig, problem: Problem) -> Self:
        """The least kernel of a configuration that serves."""
        reading = reading_of(config.lanes, problem)
        width = width_of(reading, problem.itemsize)
        step, longest = config.lanes * width, problem.cols + (width - 1 if reading == "ragged" else 0)
        most = least_most(config.tree, problem.k)
        return cls(config, -(-longest // step), problem.cols // step, most, problem.dtype, problem.largest, reading)

    @cached_property
    def width(self) -> int:
        """Elements of a load."""
        return width_of(self.reading, DTYPE_BYTES[self.dtype])

    @cached_property
    def step(self) -> int:
        """Elements of a load of all lanes."""
        return self.config.lanes * self.width

    @cached_property
    def longest(self) -> int:
        """The longest row."""
        return self.vectors * self.step - (self.width - 1 if self.reading == "ragged" else 0)

    @property
    def share(self) -> int:
        """The most elements of a lane in a row."""
        return (self.vectors - (self.reading == "ragged")) * self.width

    @property
    def unrolled(self) -> bool:
        """Whether its rounds are no loop."""
        return self.most in UNROLLED

    def serves(self, problem: Problem) -> bool:
        """Whether a problem that is read so is within its sizes, and lists are long enough for most data."""
        return self.is_long_enough(problem) and self.is_deep_enough(problem)

    def is_long_enough(self, problem: Problem) -> bool:
        """The first of these."""
        return problem.k <= self.most and self.inside * self.step <= problem.cols <= self.longest

    def is_least(self, problem: Problem) -> bool:
        """Whether it goes no further than a problem that it serves."""
        longest = problem.cols + (self.width - 1 if self.reading == "ragged" else 0)
        least = -(-longest // self.step), problem.cols // self.step, least_most(self.config.tree, problem.k)
        return (self.vectors, self.inside, self.most) == least

    def is_deep_enough(self, problem: Problem) -> bool:
        """The last of these."""
        config, loads = self.config, -(-problem.cols // self.step)
        return config.depth >= min(loads * self.width, least_depth(config.lanes, config.tree, problem))

    def work(self, problem: Problem) -> float:
        """About the instructions of a row times its lanes; a round in a loop costs more than others."""
        rounds = 14 * (self.most if self.unrolled else 1.5 * problem.k + 3)
        return self.config.lanes * (8 * self.vectors * self.width - 2 * self.inside + rounds)

    @cached_property
    def program(self) -> KernelProgram:
        """One for every 32 * warps / lanes rows."""
        return KernelProgram.of(self.source, Extent(per=(("rows", 32 * self.config.warps // self.config.lanes),)))

    @cached_property
    def source(self) -> TritonSource:
        """The kernel."""
        lanes, itemsize = self.config.lanes, DTYPE_BYTES[self.dtype]
        pairs = itemsize == 2 and self.width > 1
        element = f"*i{8 * itemsize}"
        tree = power_of_two(max(2, self.most)) if self.config.tree else 0
        rounds = self.most + int(itemsize == 4) if self.unrolled and not self.config.tree else 0
        slots = -(-(tree or rounds or self.most) // lanes)
        return TritonSource(
            function="autotopk.strategies._short_rows.lanes:lane_merge_rows",
            signature=(
                ("x", "*i32" if pairs else element),
                ("values", element),
                ("indices", "*i64"),
                ("rows", "i32"),
                ("cols", "i32"),
                ("k", "i32"),
                ("row_stride", "i64"),
                ("col_stride", "i64"),
                ("inner", "i32"),
                ("indices_only", "i32"),
            ),
            constants=(
                ("ROWS", 32 * self.config.warps // lanes),
                ("LANES", lanes),
                ("VECTORS", self.vectors),
                ("VECTOR", self.width),
                ("INSIDE", self.inside),
                ("SPAN", self.step * power_of_two(self.vectors)),
                ("DEPTH", min(self.config.depth, self.vectors * self.width)),
                ("TREE", tree),
                ("ROUNDS", rounds),
                ("SLOTS", slots),
                ("DTYPE", self.dtype),
                ("LARGEST", self.largest),
                ("PAIRS", pairs),
                ("RAGGED", self.reading == "ragged"),
                ("SIDE_BY_SIDE", self.reading == "beside"),
            ),
            divisors=(
                ("x", self.width * itemsize),
                ("values", 16),
                ("indices", 16),
                ("cols", self.width if self.reading == "aligned" else 1),
                ("row_stride", self.width if self.reading == "aligned" else 1),
            ),
            warps=self.config.warps,
            symbol=f"autotopk_lane_merge_{self.dtype}_{'largest' if self.largest else 'smallest'}",
        )


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

    def reasons_unbuildable(self) -> list[str]:
        """What Triton's kernels lack here to be compiled."""
        return reasons_unbuildable()

    def shortlist(self, problem: Problem, device: Device) -> Sequence[LaneMergeConfig]:
        """The `layouts`, with kernels that go no further than the problem: rungs, where these do not either."""
        rungs, found = _serving(problem), []
        for one in layouts(problem, device):
            rung = rungs.get(one.layout)
            sizes = (rung.vectors, rung.inside, rung.most) if rung and rung.is_least(problem) else ()
            found.append(_config(*one.layout, *sizes))
        return found

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Every layout: the kernels of a shape are few, and quickly compiled."""
        return {**LAYOUTS, "vectors": (0,), "inside": (0,), "most": (0,)}

    def valid(self, config: LaneMergeConfig, problem: Problem, device: Device) -> bool:
        """Any layout whose lanes can hold their shares, and sizes that the problem is within."""
        if config.vectors:
            kernel = _kernel(config, problem)
            if kernel.share > MAX_SHARE or not kernel.is_long_enough(problem):
                return False
        return fits(config, problem)

    def heuristic(self, problem: Problem, device: Device) -> LaneMergeConfig | None:
        """The likeliest rung; where so many float32 are asked for that some are alike, others are faster."""
        alike = problem.itemsize == 4 and problem.k * problem.cols > 1 << 15
        return None if alike else self.ladder(problem, device)[0]

    def ladder(self, problem: Problem, device: Device) -> Sequence[LaneMergeConfig]:
        """Rungs that serve: those no longer than needed in the order of the shortlist, trees first; others by work."""
        return ordered(_serving(problem).values(), layouts(problem, device), problem.cols)

    def rungs(self, arch: int) -> Iterator[KernelSource]:
        """The same for every architecture."""
        for dtype, largest in product(MERGED_DTYPES, (True, False)):
            yield from (rung.source for rung in kernels(dtype, largest))

    def terms(self, config: LaneMergeConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.short_rows`."""
        return costs.lanes(_kernel(config, problem), problem, device)

    def program(self, config: LaneMergeConfig, problem: Problem, device: Device) -> KernelProgram:
        """That of the kernel."""
        return _kernel(config, problem).program


def _kernel(config: LaneMergeConfig, problem: Problem) -> LaneMergeKernel:
    """What runs."""
    if not config.vectors:
        return LaneMergeKernel.least(config, problem)
    sizes, reading = (config.vectors, config.inside, config.most), reading_of(config.lanes, problem)
    return _rung(config, *sizes, problem.dtype, problem.largest, reading)


_rung = lru_cache(1 << 12)(LaneMergeKernel)  # one serves many shapes


def fits(config: LaneConfig, problem: Problem) -> bool:
    """Whether a layout's lanes can hold their shares, and lists are long enough for most data."""
    if not (config.lanes in LANES and config.warps in WARPS and config.depth in DEPTHS):
        return False
    own, least = share(config.lanes, problem), least_depth(config.lanes, config.tree, problem)
    return own <= MAX_SHARE and config.depth >= min(own, least) and (problem.k <= TREE_K or not config.tree)


def ordered(rungs: Iterable[LaneMergeKernel], short: Sequence[LaneConfig], cols: int) -> list[Any]:
    """The configurations of rungs by work, in the order of `LaneMerge.ladder`."""
    likely = list(dict.fromkeys((config.lanes, config.tree) for config in short))

    def place(rung: LaneMergeKernel) -> tuple[bool, int]:
        layout = rung.config.lanes, rung.config.tree
        if layout not in likely or rung.vectors >= 2 * -(-cols // rung.step):
            return True, len(likely)
        return not rung.config.tree, likely.index(layout)

    return list(dict.fromkeys(rung.config for rung in sorted(rungs, key=place)))


def least_most(tree: bool, k: int) -> int:
    """The largest k of the least kernel for one."""
    return power_of_two(max(2, k)) if tree else k


def least_depth(lanes: int, tree: bool, problem: Problem) -> float:
    """Length of a list that hardly ever ends too soon: of so many elements, those that fall to one lane, and more."""
    if tree:  # for what lacks its last bits, also the one after the k-th
        return problem.k if problem.itemsize == 2 or lanes >= 8 else problem.k + 1
    mean = (problem.k + 2) / lanes
    return min(problem.k + 2, mean + 3.5 * sqrt(mean) + 2)


def share(lanes: int, problem: Problem) -> int:
    """Elements of a lane."""
    width = width_of(reading_of(lanes, problem), problem.itemsize)
    return -(-problem.cols // (lanes * width)) * width


@lru_cache(64)  # whoever asks about a problem does so several times
def layouts(problem: Problem, device: Device) -> tuple[LaneConfig, ...]:
    """What was ever best, or within 3 % of it, in an exhaustive sweep: docs/small_rows.md."""
    found: list[LaneConfig] = []
    for lanes in _lane_counts(problem, device):
        depths = _depths(lanes, problem, tree=False, least=8)[: 1 if problem.k <= 16 else 2]
        lists = [(depth, False) for depth in depths]
        if problem.k <= TREE_K and lanes <= 8:
            lists.append((_depths(lanes, problem, tree=True, least=4)[0], True))
        for warps in (1, 2) if lanes == 32 else (1, 2, 4):
            if warps == 1 or problem.rows * lanes > 32 * device.processors:  # none idle
                found += [_layout(lanes, warps, depth, tree) for depth, tree in lists]
    return tuple(dict.fromkeys([one for one in found if one.depth <= DEEP] or found))


def _depths(lanes: int, problem: Problem, *, tree: bool, least: int) -> list[int]:
    needed = max(least, min(share(lanes, problem), least_depth(lanes, tree, problem)))
    return [depth for depth in DEPTHS if depth >= needed]


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


@cache
def kernels(dtype: str, largest: bool) -> tuple[LaneMergeKernel, ...]:
    """The rungs of a dtype and direction."""
    if DTYPE_BYTES[dtype] == 4:
        rows = FLOAT32 if largest else FLOAT32_SMALLEST
    else:
        rows = FLOAT16 if largest else FLOAT16_SMALLEST
    return tuple(LaneMergeKernel(LaneMergeConfig(*row[1:]), *row[5:], dtype, largest, row[0]) for row in rows)


Sized = tuple[int, int, int, int, LaneMergeKernel]
"""Number of a rung, its largest k, its shortest and its longest row, and the rung."""


@cache
def _by_reading(dtype: str, largest: bool) -> dict[tuple[int, Reading], list[Sized]]:
    """The rungs by lanes and how these read, with what is known of them before a problem is."""
    found = defaultdict[tuple[int, Reading], list[Sized]](list)
    for number, rung in enumerate(kernels(dtype, largest)):
        sized = number, rung.most, rung.inside * rung.step, rung.longest, rung
        found[rung.config.lanes, rung.reading].append(sized)
    return dict(found)


@lru_cache(64)  # whoever asks about a problem does so several times
def _serving(problem: Problem) -> dict[tuple[int, int, int, bool], LaneMergeKernel]:
    """The rungs that serve, those of the least work first; of a layout the first."""
    k, cols, rungs = problem.k, problem.cols, _by_reading(problem.dtype, problem.largest)
    able = [
        (rung.work(problem), number, rung)
        for lanes in LANES
        for number, most, shortest, longest, rung in rungs.get((lanes, reading_of(lanes, problem)), ())
        if k <= most and shortest <= cols <= longest and rung.is_deep_enough(problem)
    ]
    able.sort()
    found: dict[tuple[int, int, int, bool], LaneMergeKernel] = {}
    for _, _, rung in able:
        found.setdefault(rung.config.layout, rung)
    return found


_config = lru_cache(1 << 10)(LaneMergeConfig)  # a call where nothing was tuned asks for several
_layout = lru_cache(1 << 10)(LaneConfig)
strategy = LaneMerge()
