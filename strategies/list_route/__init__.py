"""Routing by scores with a bias, and by groups: lanes sort what is chosen by, and their lists are merged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.triton import TritonSource, reasons_unbuildable
from autotopk.device import Device
from autotopk.kernel import KernelSource
from autotopk.problem import DTYPE_BYTES, VECTOR_BYTES, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.routing import LOGITS
from autotopk.strategies._routing import DEVICE_CODE, FEATURES
from autotopk.strategies._short_rows import reasons_unlaunchable, reasons_unmerged
from autotopk.strategies.lane_merge import MAX_SHARE, UNROLLED, least_depth
from autotopk.strategies.masked_route import SIGNATURE
from autotopk.strategy import Strategy

LANES, WARPS, DEPTHS = (8, 16, 32), (1, 2), (8, 16, 32)


@dataclass(frozen=True)
class ListRouteConfig:
    """How rows are laid out over lanes."""

    lanes: int
    """Of one row, at most a warp."""
    warps: int
    """Of a program; each has 32 / lanes rows."""
    depth: int
    """Length of a lane's list where its share is longer."""


@dataclass(frozen=True)
class ListRouteKernel:
    """What is compiled: a configuration, and the sizes up to which its kernel goes."""

    config: ListRouteConfig
    vectors: int
    """Loads of a lane."""
    inside: int
    """The first so many are inside of every row."""
    most: int
    """The largest k."""
    group: int
    """Experts of a group; 0 where none is left out."""
    biased: bool
    dtype: str

    @classmethod
    def least(cls, config: ListRouteConfig, problem: Problem) -> "ListRouteKernel":
        """The least kernel of a configuration that serves."""
        routing, step = problem.routing, config.lanes * _width(problem)
        assert routing is not None
        vectors = -(-problem.cols // step)
        return cls(config, vectors, problem.cols // step, problem.k, _group(problem), routing.biased, problem.dtype)

    @property
    def step(self) -> int:
        """Columns of a load of all lanes."""
        return self.config.lanes * VECTOR_BYTES // DTYPE_BYTES[self.dtype]

    def serves(self, problem: Problem) -> bool:
        """Whether a problem of its dtype is within its sizes, and lists are long enough for most data."""
        assert problem.routing is not None
        return (
            self.inside * self.step <= problem.cols <= self.vectors * self.step
            and problem.k <= self.most
            and self.group == _group(problem)
            and self.biased == problem.routing.biased
            and _fits(self.config, problem)
        )

    @property
    def work(self) -> float:
        """About the instructions of a row times its lanes."""
        rounds = 14 * (self.most if self.most in UNROLLED else 1.5 * self.most + 3)
        return self.config.lanes * (20 * self.vectors * self.step / self.config.lanes + rounds)

    @property
    def source(self) -> TritonSource:
        """The kernel."""
        config, itemsize = self.config, DTYPE_BYTES[self.dtype]
        width = VECTOR_BYTES // itemsize
        rounds = self.most + 1 if self.most in UNROLLED else 0
        return TritonSource(
            function="autotopk.strategies._routing.lists:lane_choice_rows",
            signature=(("x", f"*i{8 * itemsize}"), *SIGNATURE),
            constants=(
                ("ROWS", 32 * config.warps // config.lanes),
                ("LANES", config.lanes),
                ("VECTORS", self.vectors),
                ("VECTOR", width),
                ("INSIDE", self.inside),
                ("SPAN", self.step * power_of_two(self.vectors)),
                ("DEPTH", min(config.depth, self.vectors * width)),
                ("ROUNDS", rounds),
                ("SLOTS", -(-(rounds or self.most) // config.lanes)),
                ("GROUP", self.group),
                ("BIASED", self.biased),
                ("DTYPE", self.dtype),
            ),
            divisors=(
                ("x", VECTOR_BYTES),
                ("values", 16),
                ("indices", 16),
                ("bias", 4),
                ("cols", width),
                ("row_stride", width),
            ),
            warps=config.warps,
            symbol=f"autotopk_list_route_{self.dtype}",
            code_dependencies=DEVICE_CODE,
        )


class ListRoute(Strategy):
    """Exact, the lower of equals first; rows of many near ties, and those with NaNs, take a second pass."""

    name = "list_route"
    config_type = ListRouteConfig
    preference: ClassVar[int] = 15
    features = FEATURES

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs short rows of whole vectors, a small k, and groups that lanes share evenly."""
        reasons = reasons_unlaunchable(problem) + reasons_unmerged(problem)
        routing, group = problem.routing, _group(problem)
        assert routing is not None
        if routing.keeps_all and not routing.biased:
            reasons.append(f"{routing} has no bias, and leaves no group out")
        if problem.layout.vector != _width(problem):
            reasons.append(f"rows of {problem.cols} {problem.dtype} are not whole vectors of 16 bytes")
        if group and (group & (group - 1) or LANES[0] * _width(problem) % group):
            most = LANES[0] * _width(problem)
            reasons.append(f"{routing} has groups of {group} experts, not of a power of two up to {most}")
        if not reasons and not any(_fits(config, problem) for config in _configs()):
            reasons.append(f"rows of {problem.cols} do not fit lanes")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What Triton's kernels lack here to be compiled."""
        return reasons_unbuildable()

    def shortlist(self, problem: Problem, device: Device) -> Sequence[ListRouteConfig]:
        """Of every number of lanes the shortest lists that suffice; no more warps than keep multiprocessors busy."""
        found: dict[tuple[int, int], ListRouteConfig] = {}
        for config in _configs():
            busy = config.warps == 1 or problem.rows * config.lanes > 32 * device.processors
            if busy and _fits(config, problem):
                found.setdefault((config.lanes, config.warps), config)
        few = problem.rows * 8 <= 32 * 8 * device.processors
        return sorted(found.values(), key=lambda one: -one.lanes if few or problem.cols > 256 else one.lanes)

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Every layout."""
        return {"lanes": LANES, "warps": WARPS, "depth": DEPTHS}

    def valid(self, config: ListRouteConfig, problem: Problem, device: Device) -> bool:
        """Any layout whose lanes can hold their shares, and whose lists are long enough for most data."""
        return config in _configs() and _fits(config, problem)

    def heuristic(self, problem: Problem, device: Device) -> ListRouteConfig:
        """The likeliest rung, else the likeliest layout."""
        return next(iter(self.ladder(problem, device)), self.shortlist(problem, device)[0])

    def ladder(self, problem: Problem, device: Device) -> Sequence[ListRouteConfig]:
        """The rungs that serve in the order of the shortlist, those of the least work first."""
        likely = [one.lanes for one in self.shortlist(problem, device)]
        rungs = sorted(
            serving(problem), key=lambda rung: likely.index(rung.config.lanes) if rung.config.lanes in likely else 99
        )
        return list(dict.fromkeys(rung.config for rung in rungs))

    def rungs(self, arch: int) -> Iterator[KernelSource]:
        """The same for every architecture."""
        for dtype in LOGITS:
            yield from (rung.source for rung in kernels(dtype))

    def program(self, config: ListRouteConfig, problem: Problem, device: Device) -> KernelProgram:
        """One program for every 32 * warps / lanes rows; the rung of the configuration, if there is one that serves."""
        rung = next((rung for rung in serving(problem) if rung.config == config), None)
        kernel = rung or ListRouteKernel.least(config, problem)
        return KernelProgram.of(kernel.source, Extent(per=(("rows", 32 * config.warps // config.lanes),)))


@cache
def _configs() -> tuple[ListRouteConfig, ...]:
    return tuple(ListRouteConfig(lanes, warps, depth) for lanes in LANES for warps in WARPS for depth in DEPTHS)


def _width(problem: Problem) -> int:
    """Elements of a load."""
    return VECTOR_BYTES // problem.itemsize


def _group(problem: Problem) -> int:
    """Experts of a group; 0 where none is left out."""
    routing = problem.routing
    return 0 if routing is None or routing.keeps_all else problem.cols // routing.n_group


def _fits(config: ListRouteConfig, problem: Problem) -> bool:
    step = config.lanes * _width(problem)
    share = -(-problem.cols // step) * _width(problem)
    needed = least_depth(config.lanes, False, problem)
    group = _group(problem)
    return share <= MAX_SHARE and config.depth >= min(share, needed) and (not group or step % group == 0)


_RUNGS: dict[str, tuple[tuple[int, int, int, int, int, int, int, bool], ...]] = {
    # lanes, warps, depth, vectors, inside, most, group, biased
    "float32": (
        (32, 1, 8, 2, 1, 8, 0, True),
        (32, 1, 8, 4, 2, 8, 0, True),
        (32, 1, 8, 8, 4, 16, 0, True),
        (32, 1, 8, 2, 2, 8, 32, True),
    ),
    "float16": (
        (32, 1, 8, 1, 0, 8, 0, True),
        (32, 1, 8, 2, 1, 8, 0, True),
        (32, 1, 8, 4, 2, 16, 0, True),
        (32, 1, 8, 1, 1, 8, 32, True),
    ),
}


@cache
def kernels(dtype: str) -> tuple[ListRouteKernel, ...]:
    """The rungs of a dtype."""
    rows = _RUNGS["float32" if dtype == "float32" else "float16"]
    return tuple(ListRouteKernel(ListRouteConfig(*row[:3]), *row[3:], dtype) for row in rows)


def serving(problem: Problem) -> list[ListRouteKernel]:
    """The rungs that serve, those of the least work first."""
    return sorted((rung for rung in kernels(problem.dtype) if rung.serves(problem)), key=lambda rung: rung.work)


strategy = ListRoute()
