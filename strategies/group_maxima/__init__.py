"""Rows that one block holds in registers, k of hundreds or thousands: a cut that k maxima of groups reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.kernel import ParameterKind
from autotopk.problem import ANSWERS, DTYPE_BYTES, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.strategies.split_radix import KINDS, MOST_INTERVALS, MOST_ITEMS, list_bytes, most_capacity
from autotopk.strategy import Features, Strategy, check_knobs

KNOBS: dict[str, Sequence[Knob]] = {
    "threads": (32, 64, 128, 256, 512, 1024),
    "loads": (1, 2, 4, 8),
    "capacity": [1 << bits for bits in range(6, 14)],
}
"""What kernels can be made for."""

MOST_HELD = 32
"""Elements of a thread."""

MIN_COLS = 1024
"""Shorter rows are a warp's."""


@dataclass(frozen=True)
class GroupMaximaConfig:
    """How a block holds a row. Raises ValueError for what no kernel has."""

    threads: int
    """Threads of a block."""
    loads: int
    """Loads of 16 bytes that a thread holds."""
    capacity: int
    """Entries of a block's list, at least one and a half times k."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)


class GroupMaxima(Strategy):
    """Exact, and the same on every run: of equal values, those of the lowest columns."""

    name = "group_maxima"
    config_type = GroupMaximaConfig
    preference: ClassVar[int] = 27
    features = Features(answers=frozenset(ANSWERS), device_types=frozenset({"cuda"}), capability=(8, 0))

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs registers for the row and shared memory for k."""
        reasons = []
        if problem.cols < MIN_COLS:
            reasons.append(f"rows of {problem.cols} are shorter than {MIN_COLS}")
        if problem.cols > (most := 1024 * min(8 * 16 // problem.itemsize, MOST_HELD) - 16 // problem.itemsize + 1):
            reasons.append(f"rows of {problem.cols} are longer than {most}")
        if problem.rows >= 1 << 31:
            reasons.append(f"{problem.rows} rows are more than 32 bits count")
        if problem.k > (most := most_capacity(problem, device) // 2):
            reasons.append(f"k={problem.k} is above {most}")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def valid(self, config: GroupMaximaConfig, problem: Problem, device: Device) -> bool:
        """Whatever holds the row, at any alignment, and lists half more than k."""
        vector = 16 // problem.itemsize
        skew = 0 if problem.layout.aligned else vector - 1
        return (
            config.loads * vector <= MOST_HELD
            and problem.cols + skew <= config.threads * config.loads * vector
            and 3 * problem.k <= 2 * config.capacity
            and config.capacity <= most_capacity(problem, device)
            and problem.k <= MOST_ITEMS * config.threads
        )

    def shortlist(self, problem: Problem, device: Device) -> Sequence[GroupMaximaConfig]:
        """Few loads a thread, and the shortest list."""
        capacity = power_of_two(3 * problem.k // 2 + 64)
        found = [
            GroupMaximaConfig(threads, loads, size)
            for threads in (256, 512, 1024)
            for loads in KNOBS["loads"]
            for size in (capacity, 2 * capacity)
            if size in KNOBS["capacity"] and threads * loads * (16 // problem.itemsize) < 4 * problem.cols
        ]
        return [config for config in found if self.valid(config, problem, device)]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """All that holds the row."""
        return KNOBS

    def heuristic(self, problem: Problem, device: Device) -> GroupMaximaConfig | None:
        """Never unmeasured."""
        return None

    def program(self, config: GroupMaximaConfig, problem: Problem, device: Device) -> KernelProgram:
        """One block a row."""
        return KernelProgram.of(_source(config, KINDS.get(problem.dtype, problem.dtype)), Extent(1, (("rows", 1),)))


def _source(config: GroupMaximaConfig, kind: str) -> CudaSource:
    kinds: dict[str, ParameterKind] = {
        **dict.fromkeys(("x", "values", "indices"), "pointer"),
        "row_stride": "int64",
        **dict.fromkeys(("cols", "k", "smallest", "signed", "infinity"), "int32"),
    }
    element_bytes, capacity = DTYPE_BYTES[kind], config.capacity
    constants = {
        "ELEMENT_BYTES": element_bytes,
        "FLOAT": kind.startswith("float"),
        "THREADS": config.threads,
        "LOADS": config.loads,
        "CAPACITY": capacity,
        "INTERVALS": min(capacity // 2, MOST_INTERVALS),
        "ITEMS": max(1, min(MOST_ITEMS, capacity // config.threads)),
        "RESIDENT": max(1, 1024 // config.threads),
    }
    return CudaSource(
        file="autotopk.strategies.group_maxima/group.cu",
        constants=tuple(constants.items()),
        parameters=tuple(kinds.items()),
        threads=config.threads,
        shared_bytes=list_bytes(capacity, max(element_bytes, 4)),
        symbol=f"autotopk_group_maxima_{kind}",
        code_dependencies=("autotopk.strategies.split_radix",),
    )


strategy = GroupMaxima()
