"""All of every row, in no order: values are a copy, indices are the columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.kernel import ParameterKind
from autotopk.problem import ANSWERS, DTYPE_BYTES, VECTOR_BYTES, Problem
from autotopk.program import Extent, KernelProgram
from autotopk.strategies._costs.copying import copies
from autotopk.strategy import Features, Strategy, check_knobs

KNOBS: dict[str, Sequence[Knob]] = {"threads": (32, 128, 256, 512), "loads": (1, 2, 4, 8)}
"""What kernels can be made for."""

THREADS, FEW_THREADS = 256, 128
"""Of a block of the rungs: of many elements, and of so few that larger parts would leave processors idle."""

LOADS = {1: 1, 2: 2, 4: 4, 8: 4}
"""Of a thread of the larger rung, for the bytes of an element: 8 stores of indices, or 4, go with them."""

MOST_PARTS = 8
"""Of a processor, that are as quick large as small."""

MOST_COLS = 1 << 31
"""Columns, and twice their number, are counted in 32 bits."""

MOST_ELEMENTS = 1 << 38
"""Of all rows, of which the smallest parts are as many as a grid has blocks."""

GROUP_PARTS = 8
"""Parts, at least, of the rows that blocks are counted for together: an eighth of them may have nothing to do."""


@dataclass(frozen=True)
class WholeRowsConfig:
    """How elements are shared out. Raises ValueError for what no kernel has."""

    threads: int
    """Threads of a block."""
    loads: int
    """Loads of 16 bytes that a thread has on their way."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)


class WholeRows(Strategy):
    """Exact, and the same on every run: the order of columns."""

    name = "whole_rows"
    config_type = WholeRowsConfig
    preference: ClassVar[int] = 40
    features = Features(
        answers=frozenset(ANSWERS),
        device_types=frozenset({"cuda"}),
        capability=(8, 0),
        stable=frozenset(DTYPE_BYTES),
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Serves whole rows alone; those of one element are in order, too."""
        reasons = []
        if problem.k != problem.cols:
            reasons.append(f"k={problem.k} is not all of {problem.cols}")
        if problem.sorted and problem.cols > 1:
            reasons.append(f"puts none of k={problem.k} in order")
        if problem.cols >= MOST_COLS:
            reasons.append(f"rows of {problem.cols} are not shorter than {MOST_COLS}")
        if problem.rows * problem.cols > MOST_ELEMENTS:
            reasons.append(f"{problem.rows} rows of {problem.cols} are more than {MOST_ELEMENTS} elements")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def valid(self, config: WholeRowsConfig, problem: Problem, device: Device) -> bool:
        """Always."""
        return True

    def shortlist(self, problem: Problem, device: Device) -> Sequence[WholeRowsConfig]:
        """The rungs, more threads, and more loads."""
        loads = LOADS[problem.itemsize]
        return [*self.ladder(problem, device), _config(512, loads), _config(THREADS, 2 * loads)]

    def heuristic(self, problem: Problem, device: Device) -> WholeRowsConfig:
        """Nothing else is as quick."""
        return self.ladder(problem, device)[0]

    def ladder(self, problem: Problem, device: Device) -> Sequence[WholeRowsConfig]:
        """Large parts where every processor has one, and few have many: then more blocks are sooner replaced."""
        large, small = _rungs(problem.itemsize)
        some = device.processors <= _parts(large, problem) <= MOST_PARTS * device.processors
        return (large, small) if some else (small, large)

    def rungs(self, arch: int) -> Iterator[CudaSource]:
        """Of every size of elements."""
        for itemsize in sorted(set(DTYPE_BYTES.values())):
            yield from (_source(config, itemsize) for config in _rungs(itemsize))

    def terms(self, config: WholeRowsConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.copying`."""
        return copies(_part(config, problem.itemsize), config.threads, problem, device)

    def program(self, config: WholeRowsConfig, problem: Problem, device: Device) -> KernelProgram:
        """A block for every part of all elements, however long rows are; the same program for any number of rows."""
        part = _part(config, problem.itemsize)
        group = max(1, -(-GROUP_PARTS * part // problem.cols))  # rows
        return KernelProgram.of(
            _source(config, problem.itemsize), Extent(-(-group * problem.cols // part), (("rows", group),))
        )


_config = lru_cache(WholeRowsConfig)


def _rungs(itemsize: int) -> tuple[WholeRowsConfig, WholeRowsConfig]:
    return _config(THREADS, LOADS[itemsize]), _config(FEW_THREADS, 1)


def _part(config: WholeRowsConfig, itemsize: int) -> int:
    """Elements of a block."""
    return config.threads * config.loads * VECTOR_BYTES // itemsize


def _parts(config: WholeRowsConfig, problem: Problem) -> int:
    return -(-problem.rows * problem.cols // _part(config, problem.itemsize))


@lru_cache(1 << 10)  # one kernel serves many shapes
def _source(config: WholeRowsConfig, itemsize: int) -> CudaSource:
    kinds: dict[str, ParameterKind] = {
        **dict.fromkeys(("x", "values", "indices"), "pointer"),
        **dict.fromkeys(("row_stride", "rows"), "int64"),
        "cols": "int32",
    }
    return CudaSource(
        file="autotopk.strategies.whole_rows/rows.cu",
        constants=(("ELEMENT_BYTES", itemsize), ("THREADS", config.threads), ("LOADS", config.loads)),
        parameters=tuple(kinds.items()),
        threads=config.threads,
        symbol=f"autotopk_whole_rows_{8 * itemsize}_bits",
    )


strategy = WholeRows()
