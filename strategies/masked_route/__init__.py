"""Routing by scores with a bias, and by groups: short rows held in registers, k rounds of maximum and mask."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log2
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.triton import TritonSource, reasons_unbuildable
from autotopk.device import Device
from autotopk.kernel import KernelSource
from autotopk.problem import DTYPE_BYTES, VECTOR_BYTES, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.routing import LOGITS
from autotopk.strategies._routing import DEVICE_CODE, FEATURES, MOST_K
from autotopk.strategies._short_rows import reasons_unlaunchable
from autotopk.strategy import Strategy

ROWS, WARPS = (1, 2), (1, 2)
MOST_PLACES = {True: {64: 32, 8: 256}, False: {64: 32}}
"""With a bias and without: most groups, and then most experts of each."""
LONGEST = 2048
"""Most experts where no group is left out."""
MOST_REGISTERS = 64
"""32-bit registers of a thread that may hold keys: more of them spill."""

SIGNATURE = (
    ("values", "*i32"),
    ("indices", "*i64"),
    ("bias", "*i32"),
    ("scale", "i32"),
    ("rows", "i32"),
    ("cols", "i32"),
    ("k", "i32"),
    ("row_stride", "i64"),
    ("scoring", "i32"),
    ("renormalize", "i32"),
    ("group_size", "i32"),
    ("n_group", "i32"),
    ("topk_group", "i32"),
    ("narrow_indices", "i32"),
)
"""Run-time parameters of kernels that choose by more than logits, behind those."""


@dataclass(frozen=True)
class MaskedRouteConfig:
    """How rows are laid out over threads."""

    rows_per_program: int
    warps: int
    """That share each row of a program."""


@dataclass(frozen=True)
class MaskedRouteKernel:
    """What is compiled: a configuration, and the sizes up to which its kernel goes."""

    config: MaskedRouteConfig
    groups: int
    """The most groups, a power of two; 1 where none is left out."""
    size: int
    """The most experts of a group, a power of two."""
    most: int
    """The largest k, a power of two."""
    biased: bool
    dtype: str
    aligned: bool
    """Rows and groups are whole vectors of 16 bytes."""

    @classmethod
    def least(cls, config: MaskedRouteConfig, problem: Problem) -> "MaskedRouteKernel":
        """The least kernel of a configuration that serves."""
        groups, size = _places(problem)
        assert problem.routing is not None
        most = max(2, power_of_two(problem.k))
        return cls(config, groups, size, most, problem.routing.biased, problem.dtype, _aligned(problem))

    def serves(self, problem: Problem) -> bool:
        """Whether a problem of its dtype is within its sizes."""
        groups, size = _places(problem)
        assert problem.routing is not None
        return (
            (groups <= self.groups if self.groups > 1 else groups == 1)
            and size <= self.size
            and problem.k <= self.most
            and problem.routing.biased == self.biased
            and self.aligned <= _aligned(problem)
        )

    @property
    def work(self) -> float:
        """About the instructions of a row's threads for one of k."""
        return self.groups * self.size * (0.9 if self.aligned else 1) + 512 * self.config.warps

    @property
    def source(self) -> TritonSource:
        """The kernel."""
        itemsize = DTYPE_BYTES[self.dtype]
        vector = VECTOR_BYTES // itemsize if self.aligned else 1
        return TritonSource(
            function="autotopk.strategies._routing.choice:masked_route_rows",
            signature=(("x", f"*i{8 * itemsize}"), *SIGNATURE),
            constants=(
                ("ROWS", self.config.rows_per_program),
                ("GROUPS", self.groups),
                ("SIZE", self.size),
                ("BLOCK_K", self.most),
                ("BIASED", self.biased),
                ("DTYPE", self.dtype),
            ),
            divisors=(
                ("x", vector * itemsize),
                ("values", 16),
                ("indices", 16),
                ("cols", vector),
                ("row_stride", vector),
                ("group_size", vector),
            ),
            warps=self.config.warps,
            symbol=f"autotopk_masked_route_{self.dtype}",
            code_dependencies=DEVICE_CODE,
        )


class MaskedRoute(Strategy):
    """Exact, the lower of equals first; its time grows with k, its registers with the row."""

    name = "masked_route"
    config_type = MaskedRouteConfig
    preference: ClassVar[int] = 10
    features = FEATURES

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs scores with a bias or groups, few experts and a small k."""
        reasons, routing = reasons_unlaunchable(problem), problem.routing
        groups, size = _places(problem)
        assert routing is not None
        if routing.keeps_all and not routing.biased:
            reasons.append(f"{routing} has no bias, and leaves no group out")
        if groups == 1 and size > LONGEST:
            reasons.append(f"{problem.cols} experts are more than {LONGEST}")
        places = MOST_PLACES[routing.biased]
        if groups > 1 and not any(groups <= most and size <= places[most] for most in places):
            told = " nor ".join(f"{most} groups of {each}" for most, each in places.items())
            reasons.append(f"{problem.cols} experts in {routing.n_group} groups do not fit {told}")
        if problem.k > MOST_K:
            reasons.append(f"k={problem.k} is above {MOST_K}")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What Triton's kernels lack here to be compiled."""
        return reasons_unbuildable()

    def shortlist(self, problem: Problem, device: Device) -> Sequence[MaskedRouteConfig]:
        """One warp a row was best of all (4096x160 to 4096x896 on an H200), two for long rows."""
        fitting = [config for config in map(MaskedRouteConfig, (1, 2, 1), (1, 1, 2)) if _fits(config, problem)]
        return fitting if sum(map(log2, _places(problem))) > 9 else fitting[:2]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Every layout."""
        return {"rows_per_program": ROWS, "warps": WARPS}

    def valid(self, config: MaskedRouteConfig, problem: Problem, device: Device) -> bool:
        """Any layout whose registers suffice."""
        return config.rows_per_program in ROWS and config.warps in WARPS and _fits(config, problem)

    def heuristic(self, problem: Problem, device: Device) -> MaskedRouteConfig:
        """One warp a row, until it holds too much: beyond the ladder, which answers until that is compiled."""
        small = MaskedRouteConfig(1, 1)
        groups, size = _places(problem)
        return small if groups * size <= 1024 else self.ladder(problem, device)[0]

    def ladder(self, problem: Problem, device: Device) -> Sequence[MaskedRouteConfig]:
        """The rungs that serve, those of the least work first."""
        return list(dict.fromkeys(rung.config for rung in serving(problem)))

    def rungs(self, arch: int) -> Iterator[KernelSource]:
        """The same for every architecture."""
        for dtype in LOGITS:
            yield from (rung.source for rung in kernels(dtype))

    def program(self, config: MaskedRouteConfig, problem: Problem, device: Device) -> KernelProgram:
        """One program for every `rows_per_program` rows; the rung of the configuration, if there is one that serves."""
        rung = next((rung for rung in serving(problem) if rung.config == config), None)
        kernel = rung or MaskedRouteKernel.least(config, problem)
        return KernelProgram.of(kernel.source, Extent(per=(("rows", config.rows_per_program),)))


def _places(problem: Problem) -> tuple[int, int]:
    """Groups and places of a group; 1 group where none is left out."""
    routing = problem.routing
    if routing is None or routing.keeps_all:
        return 1, power_of_two(problem.cols)
    return power_of_two(routing.n_group), power_of_two(problem.cols // routing.n_group)


def _fits(config: MaskedRouteConfig, problem: Problem) -> bool:
    groups, size = _places(problem)
    return config.rows_per_program * groups * size <= 32 * config.warps * MOST_REGISTERS


def _aligned(problem: Problem) -> bool:
    vector, (groups, _) = VECTOR_BYTES // problem.itemsize, _places(problem)
    assert problem.routing is not None
    return problem.layout.vector == vector and (groups == 1 or problem.cols // problem.routing.n_group % vector == 0)


_RUNGS: tuple[tuple[int, int, int, bool], ...] = (
    # warps, groups, size, biased
    (2, 1, 2048, True),
    (2, 64, 32, True),
    (2, 8, 256, True),
    (2, 64, 32, False),
)
"""All of rows that begin anywhere, and of any k: what `list_route` has no kernel for."""


@cache
def kernels(dtype: str) -> tuple[MaskedRouteKernel, ...]:
    """The rungs of a dtype."""
    return tuple(
        MaskedRouteKernel(MaskedRouteConfig(1, warps), groups, size, MOST_K, biased, dtype, False)
        for warps, groups, size, biased in _RUNGS
    )


def serving(problem: Problem) -> list[MaskedRouteKernel]:
    """The rungs that serve, those of the least work first."""
    return sorted((rung for rung in kernels(problem.dtype) if rung.serves(problem)), key=lambda rung: rung.work)


strategy = MaskedRoute()
