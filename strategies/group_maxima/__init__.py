"""Rows that one block holds in shared memory, k of hundreds or thousands: a cut that k maxima of groups reach."""

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
from autotopk.strategies.split_radix import (
    KINDS,
    MOST_INTERVALS,
    MOST_ITEMS,
    STATIC_BYTES,
    list_bytes,
)
from autotopk.strategy import Features, Strategy, check_knobs

CAPACITIES = [1 << bits for bits in range(6, 14)]
ROOMS = [1 << bits for bits in range(7, 18)]
KNOBS: dict[str, Sequence[Knob]] = {
    "threads": (32, 64, 128, 256, 512, 1024),
    "room": ROOMS,
    "capacity": CAPACITIES,
}
"""What kernels can be made for."""


@dataclass(frozen=True)
class GroupMaximaConfig:
    """How a block holds a row. Raises ValueError for what no kernel has."""

    threads: int
    """Threads of a block."""
    room: int
    """Bytes of the longest row that there is room for, but for 16."""
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
        """Needs shared memory for the row and a list of half more than k."""
        reasons = []
        if problem.cols * problem.itemsize > ROOMS[-1]:
            reasons.append(f"rows of {problem.cols} are longer than {ROOMS[-1]} bytes")
        elif problem.k > (most := CAPACITIES[-1] * 2 // 3):
            reasons.append(f"k={problem.k} is above {most}")
        elif not self.shortlist(problem, device):
            reasons.append(f"rows of {problem.cols} and lists for k={problem.k} do not fit shared memory together")
        if problem.rows >= 1 << 31:
            reasons.append(f"{problem.rows} rows are more than 32 bits count")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def valid(self, config: GroupMaximaConfig, problem: Problem, device: Device) -> bool:
        """Whatever holds the row, at any alignment, and lists half more than k."""
        return (
            problem.cols * problem.itemsize <= config.room
            and 3 * problem.k <= 2 * config.capacity
            and shared_bytes(config, problem.itemsize) + STATIC_BYTES <= device.shared_bytes
            and problem.k <= MOST_ITEMS * config.threads
        )

    def shortlist(self, problem: Problem, device: Device) -> Sequence[GroupMaximaConfig]:
        """The least room, and the shortest list."""
        capacity = max(power_of_two(-(-3 * problem.k // 2)), CAPACITIES[0])
        room = max(power_of_two(problem.cols * problem.itemsize), ROOMS[0])
        found = [
            GroupMaximaConfig(threads, room, size)
            for threads in (256, 512, 1024)
            for size in (capacity, 2 * capacity)
            if size <= CAPACITIES[-1] and room <= ROOMS[-1]
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


def shared_bytes(config: GroupMaximaConfig, itemsize: int) -> int:
    """Of the list and the row."""
    return list_bytes(config.capacity, max(itemsize, 4)) + config.room + 16


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
        shared_bytes=shared_bytes(config, element_bytes),
        symbol=f"autotopk_group_maxima_{kind}",
        code_dependencies=("autotopk.strategies.split_radix",),
    )


strategy = GroupMaxima()
