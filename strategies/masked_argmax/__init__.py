"""Short rows held in registers: k rounds of maximum and mask, in Triton."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import ClassVar, Self

from autotopk.candidate import Knob
from autotopk.compilers.triton import TritonSource, reasons_unbuildable
from autotopk.device import Device
from autotopk.kernel import KernelSource
from autotopk.problem import ANSWERS, DTYPE_BYTES, INTEGERS, VECTOR_BYTES, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.strategies._costs import short_rows
from autotopk.strategies._short_rows import MERGED_DTYPES, reasons_unlaunchable, reasons_unmerged
from autotopk.strategy import Features, Strategy, later

MAX_COLS = 8192
MAX_K = 128
FEW = 8
"""Rows a multiprocessor that leave it waiting if several share a program."""
ROWS = (1, 2, 4, 8, 16, 32, 64)
MAX_KEY_REGISTERS = {1: 64, 2: 64, 4: 64, 8: 32, 16: 16}
"""32-bit registers of a thread that may hold keys, by warps: more of them spill; half of it for several rows."""
MOST_KEYS = max(32 * warps * registers for warps, registers in MAX_KEY_REGISTERS.items())
"""The same of a block."""


@dataclass(frozen=True)
class MaskedArgmaxConfig:
    """How rows are laid out over threads."""

    rows_per_program: int
    warps: int
    longest: int = later(0)
    """Of the rows that the kernel goes up to, a power of two, and the largest k; 0: no further than the problem."""
    most: int = later(0)


_config = lru_cache(1 << 10)(MaskedArgmaxConfig)  # a call where nothing was tuned asks for several


@dataclass(frozen=True)
class MaskedArgmaxKernel:
    """What is compiled: a configuration, and the sizes up to which its kernel goes."""

    config: MaskedArgmaxConfig
    longest: int
    """The longest row, a power of two."""
    most: int
    """The largest k, a power of two."""
    element: str
    """"int8" for any integers of 8 bits, "float16" for any floats of 16."""
    aligned: bool
    """Rows are whole vectors of 16 bytes."""

    @classmethod
    def least(cls, config: MaskedArgmaxConfig, problem: Problem) -> Self:
        """The least kernel of a configuration that serves."""
        sizes = power_of_two(problem.cols), power_of_two(problem.k)
        return cls(config, *sizes, _element(problem.dtype), _aligned(problem))

    def serves(self, problem: Problem) -> bool:
        """Whether a problem's sizes are within its own."""
        return problem.cols <= self.longest and problem.k <= self.most and self.aligned <= _aligned(problem)

    @property
    def work(self) -> float:
        """About the instructions of a row's threads for one of k: some for every element and every warp."""
        return self.longest * (0.9 if self.aligned else 1) + 512 * self.config.warps / self.config.rows_per_program

    @cached_property
    def program(self) -> KernelProgram:
        """Its launch."""
        return KernelProgram.of(self.source, Extent(per=(("rows", self.config.rows_per_program),)))

    @cached_property
    def source(self) -> TritonSource:
        """The kernel."""
        itemsize = DTYPE_BYTES[self.element]
        element = f"*i{8 * itemsize}"  # float bits travel as integers of their width
        vector = VECTOR_BYTES // itemsize if self.aligned else 1
        return TritonSource(
            function="autotopk.strategies._short_rows.masking:masked_argmax_rows",
            signature=(
                ("x", element),
                ("values", element),
                ("indices", "*i64"),
                ("rows", "i32"),
                ("cols", "i32"),
                ("k", "i32"),
                ("row_stride", "i64"),
                ("smallest", "i32"),
                ("signed", "i32"),
                ("infinity", "i32"),
                ("indices_only", "i32"),
            ),
            constants=(
                ("BLOCK_ROWS", self.config.rows_per_program),
                ("BLOCK_COLS", self.longest),
                ("BLOCK_K", self.most),
                ("BITS", 8 * itemsize),
                ("FLOAT", self.element.startswith("float")),
            ),
            divisors=(
                ("x", vector * itemsize),
                ("values", 16),
                ("indices", 16),
                ("cols", vector),
                ("row_stride", vector),
            ),
            warps=self.config.warps,
            symbol=f"autotopk_masked_argmax_{self.element}",
        )


class MaskedArgmax(Strategy):
    """Exact, and stable but for -0, which it ranks below +0; its time grows with k, its registers with the row."""

    name = "masked_argmax"
    config_type = MaskedArgmaxConfig
    preference: ClassVar[int] = 10
    features = Features(
        answers=frozenset(ANSWERS),
        device_types=frozenset({"cuda"}),
        capability=(8, 0),
        stable=INTEGERS,
        embeddable=True,
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs short rows and a small k."""
        reasons = reasons_unlaunchable(problem)
        if problem.cols > MAX_COLS:
            reasons.append(f"rows of {problem.cols} are longer than {MAX_COLS}")
        if problem.k > MAX_K:
            reasons.append(f"k={problem.k} is above {MAX_K}")
        if power_of_two(problem.cols) * _registers(problem.dtype) > MOST_KEYS:
            reasons.append(f"rows of {problem.cols} {problem.dtype} do not fit a block's registers")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What Triton's kernels lack here to be compiled."""
        return reasons_unbuildable()

    def shortlist(self, problem: Problem, device: Device) -> Sequence[MaskedArgmaxConfig]:
        """Rows per program and warps, such that threads hold 1 to 64 elements and idle rows stay few.

        One point, for comparison, where lane_merge serves: it was faster on every shape measured.
        """
        if not reasons_unmerged(problem):
            return [_named(_fewest_warps(problem), problem)]
        width = power_of_two(problem.cols)
        return [
            _named(config, problem)
            for rows in ROWS
            for warps in MAX_KEY_REGISTERS
            if rows < 2 * problem.rows and _fits(config := _config(rows, warps), problem) and rows * width >= 32 * warps
        ] or [_named(_config(1, 1), problem)]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Every layout, of no more than twice the rows."""
        rows = [rows for rows in ROWS if rows < 2 * problem.rows]
        return {"rows_per_program": rows, "warps": list(MAX_KEY_REGISTERS), "longest": (0,), "most": (0,)}

    def valid(self, config: MaskedArgmaxConfig, problem: Problem, device: Device) -> bool:
        """Any layout whose registers suffice, and sizes that the problem is within."""
        if config.rows_per_program not in ROWS or config.warps not in MAX_KEY_REGISTERS:
            return False
        return _fits(config, problem) and (not config.longest or _kernel(config, problem).serves(problem))

    def heuristic(self, problem: Problem, device: Device) -> MaskedArgmaxConfig | None:
        """As few warps a row as hold it, while k rounds over it cost no more than torch.topk."""
        if problem.k * power_of_two(problem.cols) > 32 * 2048:
            return None
        return self.ladder(problem, device)[0]

    def ladder(self, problem: Problem, device: Device) -> Sequence[MaskedArgmaxConfig]:
        """The rungs that serve, those of the least work a row first; where rows are few, of one row a program."""
        few = problem.rows <= FEW * device.processors
        rungs = sorted(_serving(problem), key=lambda rung: few and rung.config.rows_per_program > 1)
        return list(dict.fromkeys(rung.config for rung in rungs))

    def rungs(self, arch: int) -> Iterator[KernelSource]:
        """The same for every architecture."""
        for element in dict.fromkeys(map(_element, DTYPE_BYTES)):
            yield from (rung.source for rung in kernels(element))

    def terms(self, config: MaskedArgmaxConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.short_rows`."""
        length = config.longest or power_of_two(problem.cols)
        return short_rows.masks(config.rows_per_program, config.warps, length, problem, device)

    def program(self, config: MaskedArgmaxConfig, problem: Problem, device: Device) -> KernelProgram:
        """One program for every `rows_per_program` rows."""
        return _kernel(config, problem).program


def _kernel(config: MaskedArgmaxConfig, problem: Problem) -> MaskedArgmaxKernel:
    """What runs; rungs of several rows a program are of rows of any alignment."""
    if not config.longest:
        return MaskedArgmaxKernel.least(config, problem)
    aligned = config.rows_per_program == 1 and _aligned(problem)
    return _rung(config, config.longest, config.most, _element(problem.dtype), aligned)


_rung = lru_cache(1 << 12)(MaskedArgmaxKernel)  # one serves many shapes


def _named(layout: MaskedArgmaxConfig, problem: Problem) -> MaskedArgmaxConfig:
    """A layout with the kernel that goes no further than the problem: a rung, where one does not either."""
    least = MaskedArgmaxKernel.least(layout, problem)
    sized = replace(layout, longest=least.longest, most=least.most)
    same = (rung.config for rung in _serving(problem) if rung.config == sized and rung.aligned == least.aligned)
    return next(same, layout)


def _element(dtype: str) -> str:
    return {"uint8": "int8", "bfloat16": "float16"}.get(dtype, dtype)


def _aligned(problem: Problem) -> bool:
    return problem.layout.vector * problem.itemsize == VECTOR_BYTES


_LAYOUTS: Mapping[int, tuple[tuple[int, int, int, int], ...]] = {
    1: (
        (4, 1, 64, 32),
        (1, 1, 256, 32),
        (1, 1, 1024, MAX_K),
        (1, 1, 2048, MAX_K),
        (1, 4, MAX_COLS, MAX_K),
        (1, 8, 4096, 8),
        (1, 16, 4096, 8),
    ),
    2: (
        (16, 4, 16, 16),
        (8, 2, 32, 16),
        (4, 4, 32, 16),
        (2, 2, 32, 16),
        (8, 1, 32, 16),
        (4, 1, 32, 16),
        (1, 1, 32, 32),
        (8, 2, 64, 16),
        (8, 2, 128, 8),
        (4, 1, 128, 8),
        (2, 2, 512, 8),
        (4, 1, 64, 32),
        (1, 1, 128, 8),
        (1, 1, 256, 32),
        (1, 1, 512, 8),
        (1, 2, 512, MAX_K),
        (1, 1, 1024, MAX_K),
        (1, 8, 2048, 8),
        (1, 4, 4096, MAX_K),
    ),
    4: (
        (8, 1, 32, 32),
        (4, 4, 32, 16),
        (2, 2, 32, 16),
        (8, 4, 32, 2),
        (8, 4, 64, 8),
        (1, 1, 64, 8),
        (4, 1, 64, 32),
        (1, 1, 128, 32),
        (2, 2, 256, 2),
        (1, 1, 256, 4),
        (1, 2, 256, MAX_K),
        (1, 1, 512, MAX_K),
        (1, 2, 1024, 8),
        (1, 4, 2048, MAX_K),
    ),
}
"""By registers of an element: rows of a program, its warps, the longest row, the largest k."""


@cache
def kernels(element: str) -> tuple[MaskedArgmaxKernel, ...]:
    """The rungs of a kind of element; of those that lane_merge mostly serves, few."""
    layouts = _LAYOUTS[_registers(element)]
    if element in map(_element, MERGED_DTYPES):
        layouts = layouts[3:]
    return tuple(
        MaskedArgmaxKernel(MaskedArgmaxConfig(rows, warps, longest, most), longest, most, element, aligned)
        for rows, warps, longest, most in layouts
        for aligned in ((False,) if rows > 1 else (True, False))
    )


@lru_cache(64)  # whoever asks about a problem does so several times
def _serving(problem: Problem) -> tuple[MaskedArgmaxKernel, ...]:
    """The rungs that serve, those of the least work first."""
    rungs = [rung for rung in kernels(_element(problem.dtype)) if rung.serves(problem)]
    return tuple(sorted(rungs, key=lambda rung: rung.work))


def _fewest_warps(problem: Problem) -> MaskedArgmaxConfig:
    layouts = (_config(1, warps) for warps in MAX_KEY_REGISTERS)
    return next(config for config in layouts if _fits(config, problem))


def _fits(config: MaskedArgmaxConfig, problem: Problem) -> bool:
    """Whether a thread's keys (and, for integers of full range, positions) fit its registers."""
    elements = config.rows_per_program * power_of_two(problem.cols) / (32 * config.warps)
    limit = MAX_KEY_REGISTERS[config.warps]
    return elements * _registers(problem.dtype) <= (limit if config.rows_per_program == 1 else limit // 2)


def _registers(dtype: str) -> int:
    return {"int32": 2, "int64": 4, "float64": 2}.get(dtype, 1)


strategy = MaskedArgmax()
