"""Routing by the logits themselves: `lane_merge`'s way to the best of short rows, with weights in place of values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.triton import TritonSource, reasons_unbuildable
from autotopk.device import Device
from autotopk.kernel import KernelSource
from autotopk.problem import VECTOR_BYTES, Problem
from autotopk.program import Extent, KernelProgram
from autotopk.routing import LOGITS
from autotopk.strategies import lane_merge
from autotopk.strategies._costs import short_rows as costs
from autotopk.strategies._routing import DEVICE_CODE, FEATURES
from autotopk.strategies._short_rows import reading_of, reasons_unlaunchable, reasons_unmerged
from autotopk.strategies.lane_merge import LaneConfig, LaneMergeKernel
from autotopk.strategies.lane_merge.ladder import Rung
from autotopk.strategy import Strategy


@dataclass(frozen=True)
class LaneRouteKernel(LaneMergeKernel):
    """What is compiled: `lane_merge`'s kernel of the same sizes up to where it would write."""

    @property
    def source(self) -> TritonSource:
        """The kernel."""
        merging = super().source
        return replace(
            merging,
            function="autotopk.strategies._routing.logits:lane_route_rows",
            signature=(
                ("x", dict(merging.signature)["x"]),
                ("values", "*i32"),
                ("indices", "*i64"),
                ("scale", "i32"),
                ("rows", "i32"),
                ("cols", "i32"),
                ("k", "i32"),
                ("row_stride", "i64"),
                ("scoring", "i32"),
                ("renormalize", "i32"),
                ("narrow_indices", "i32"),
            ),
            constants=tuple(
                (name, value) for name, value in merging.constants if name not in ("LARGEST", "RAGGED", "SIDE_BY_SIDE")
            ),
            symbol=f"autotopk_lane_route_{self.dtype}",
            code_dependencies=DEVICE_CODE,
        )


class LaneRoute(Strategy):
    """Exact, the lower of equals first; rows of many near ties, and those with NaNs, take a second pass."""

    name = "lane_route"
    config_type = LaneConfig
    preference: ClassVar[int] = 20
    features = FEATURES

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs short rows, a small k, and a choice by the logits of all experts."""
        reasons, routing = reasons_unlaunchable(problem) + reasons_unmerged(problem), problem.routing
        assert routing is not None
        if routing.biased:
            reasons.append(f"{routing} chooses by scores with a bias, not by logits")
        if not routing.keeps_all:
            reasons.append(f"{routing} leaves groups out")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What Triton's kernels lack here to be compiled."""
        return reasons_unbuildable()

    def shortlist(self, problem: Problem, device: Device) -> Sequence[LaneConfig]:
        """As of `lane_merge`."""
        return lane_merge.layouts(_read_evenly(problem), device)

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """As of `lane_merge`."""
        return lane_merge.LAYOUTS

    def valid(self, config: LaneConfig, problem: Problem, device: Device) -> bool:
        """As of `lane_merge`."""
        return lane_merge.fits(config, _read_evenly(problem))

    def heuristic(self, problem: Problem, device: Device) -> LaneConfig:
        """The likeliest rung."""
        return self.ladder(problem, device)[0]

    def ladder(self, problem: Problem, device: Device) -> Sequence[LaneConfig]:
        """Rungs that serve, as `lane_merge` orders its own."""
        return lane_merge.ordered(serving(problem), self.shortlist(problem, device), problem.cols)

    def rungs(self, arch: int) -> Iterator[KernelSource]:
        """The same for every architecture."""
        for dtype in LOGITS:
            yield from (rung.source for rung in kernels(dtype))

    def terms(self, config: LaneConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """As of `lane_merge`."""
        return costs.lanes(_kernel(config, problem), problem, device)

    def program(self, config: LaneConfig, problem: Problem, device: Device) -> KernelProgram:
        """One program for every 32 * warps / lanes rows; the rung of the configuration, if there is one that serves."""
        source = _kernel(config, problem).source
        return KernelProgram.of(source, Extent(per=(("rows", 32 * config.warps // config.lanes),)))


def _kernel(config: LaneConfig, problem: Problem) -> LaneRouteKernel:
    """What runs: the rung of the configuration, if there is one that serves."""
    rung = next((rung for rung in serving(problem) if rung.config == config), None)
    return rung or LaneRouteKernel.least(config, _read_evenly(problem))


def _read_evenly(problem: Problem) -> Problem:
    """The problem as it is read: whole vectors, or one element a load where rows do not begin at a multiple of one."""
    aligned = problem.layout.vector == VECTOR_BYTES // problem.itemsize
    return replace(problem, layout=replace(problem.layout, aligned=aligned))


_FLOAT32: Sequence[Rung] = (
    ("aligned", 32, 1, 8, False, 1, 0, 8),
    ("aligned", 32, 1, 8, False, 2, 1, 8),
    ("aligned", 32, 1, 8, False, 4, 2, 10),
    ("aligned", 32, 1, 16, False, 16, 0, 64),
    ("aligned", 8, 1, 8, False, 8, 4, 8),
    ("aligned", 8, 1, 4, True, 4, 1, 4),
    ("single", 32, 1, 16, False, 64, 0, 64),
)
_FLOAT16: Sequence[Rung] = (
    ("aligned", 32, 1, 8, False, 1, 0, 8),
    ("aligned", 32, 1, 16, False, 8, 0, 64),
    ("aligned", 8, 1, 8, False, 4, 2, 8),
    ("single", 32, 1, 16, False, 64, 0, 64),
)


@cache
def kernels(dtype: str) -> tuple[LaneRouteKernel, ...]:
    """The rungs of a dtype."""
    rows = _FLOAT32 if dtype == "float32" else _FLOAT16
    return tuple(LaneRouteKernel(LaneConfig(*row[1:5]), *row[5:], dtype, True, row[0]) for row in rows)


def serving(problem: Problem) -> list[LaneRouteKernel]:
    """The rungs that serve, those of the least work first."""
    even = _read_evenly(problem)
    rungs = [
        rung
        for rung in kernels(problem.dtype)
        if rung.reading == reading_of(rung.config.lanes, even) and rung.serves(even)
    ]
    return sorted(rungs, key=lambda rung: rung.work(even))


strategy = LaneRoute()
