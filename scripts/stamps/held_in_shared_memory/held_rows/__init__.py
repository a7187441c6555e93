"""Rows that the shared memory of a block or of a cluster holds: a cut is guessed, counted, and what reaches it put in order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.kernel import ParameterKind
from autotopk.problem import ANSWERS, DTYPE_BYTES, INTEGERS, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.strategies.split_radix import KINDS, MOST_INTERVALS, MOST_ITEMS, STATIC_BYTES
from autotopk.strategy import Features, Strategy, check_knobs

CAPACITIES = [1 << bits for bits in range(6, 14)]
ROOMS = [1 << bits for bits in range(10, 18)]
KNOBS: dict[str, Sequence[Knob]] = {
    "blocks": (1, 2, 4, 8, 16),
    "threads": (32, 64, 128, 256, 512, 1024),
    "room": ROOMS,
    "capacity": CAPACITIES,
}
"""What kernels can be made for."""

MOST_ELEMENTS = 64
"""Of a thread: it marks what it has found with a bit each."""

OWN_BYTES = 3 << 10
"""Shared memory of a block beside what every list has: 4 bytes for each warp of a cluster, and what blocks exchange."""


@dataclass(frozen=True)
class HeldRowsConfig:
    """How the blocks of a cluster hold a row. Raises ValueError for what no kernel has."""

    blocks: int
    """Blocks of a cluster."""
    threads: int
    """Threads of a block."""
    room: int
    """Bytes of the row that a block has room for; each of its warps rounds up to lines of 128."""
    capacity: int
    """Entries of the list, more than k."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)


class HeldRows(Strategy):
    """Exact, and the same on every run: of equal keys, those of the lowest columns; -0 has a key below +0."""

    name = "held_rows"
    config_type = HeldRowsConfig
    preference: ClassVar[int] = 27
    features = Features(
        answers=frozenset(ANSWERS), device_types=frozenset({"cuda"}), capability=(8, 0), stable=INTEGERS
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs shared memory for the row and a list longer than k."""
        reasons = []
        if not self.shortlist(problem, device):
            reasons.append(f"no cluster holds rows of {problem.cols} and a list for k={problem.k}")
        if problem.rows * KNOBS["blocks"][-1] >= 1 << 31:
            reasons.append(f"{problem.rows} rows are more than 32 bits count")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def valid(self, config: HeldRowsConfig, problem: Problem, device: Device) -> bool:
        """Whatever holds the row, at any alignment, and lists more than k."""
        warps = config.blocks * config.threads // 32
        lines = -(-(problem.cols * problem.itemsize // 16 + 2) // (8 * warps)) * 8  # of a warp, 16 bytes each
        return (
            problem.cols * problem.itemsize <= config.blocks * config.room
            and -(-lines // 32) * (16 // problem.itemsize) <= MOST_ELEMENTS
            and 5 * problem.k <= 4 * config.capacity
            and problem.k <= MOST_ITEMS * config.threads
            and shared_bytes(config, problem.itemsize) + STATIC_BYTES + OWN_BYTES + config.threads * 8
            <= device.shared_bytes
            and (config.blocks == 1 or device.capability >= (9, 0))
        )

    def shortlist(self, problem: Problem, device: Device) -> Sequence[HeldRowsConfig]:
        """The least room for each number of threads and blocks, and lists half more than k or longer."""
        least = max(power_of_two(-(-3 * problem.k // 2)), 256)
        found = [
            HeldRowsConfig(blocks, threads, room, size)
            for blocks in KNOBS["blocks"]
            if blocks == 1 or problem.rows * blocks <= 2 * device.processors
            for room in [max(power_of_two(-(-problem.cols * problem.itemsize // blocks)), ROOMS[0])]
            if room <= ROOMS[-1]
            for threads in (256, 512, 1024)
            for size in (least, 2 * least)
            if size <= CAPACITIES[-1]
        ]
        return [config for config in found if self.valid(config, problem, device)]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """All that holds the row."""
        return KNOBS

    def heuristic(self, problem: Problem, device: Device) -> HeldRowsConfig | None:
        """Never unmeasured."""
        return None

    def rungs(self, arch: int) -> Iterator[CudaSource]:
        """None yet."""
        yield from ()

    def program(self, config: HeldRowsConfig, problem: Problem, device: Device) -> KernelProgram:
        """One cluster a row."""
        source = _source(config, KINDS.get(problem.dtype, problem.dtype))
        return KernelProgram.of(source, Extent(config.blocks, (("rows", 1),)))


def _source(config: HeldRowsConfig, kind: str) -> CudaSource:
    kinds: dict[str, ParameterKind] = {
        **dict.fromkeys(("x", "values", "indices"), "pointer"),
        "row_stride": "int64",
        **dict.fromkeys(("cols", "k", "smallest", "signed", "infinity"), "int32"),
    }
    element_bytes, capacity = DTYPE_BYTES[kind], config.capacity
    constants = {
        "ELEMENT_BYTES": element_bytes,
        "FLOAT": kind.startswith("float"),
        "BLOCKS": config.blocks,
        "THREADS": config.threads,
        "CAPACITY": capacity,
        "INTERVALS": _intervals(config),
        "ITEMS": max(1, min(MOST_ITEMS, capacity // config.threads)),
        "RESIDENT": max(1, (1024 if element_bytes == 8 else 1536) // config.threads),
    }
    return CudaSource(
        file="autotopk.strategies.held_rows/held.cu",
        constants=tuple(constants.items()),
        parameters=tuple(kinds.items()),
        threads=config.threads,
        shared_bytes=shared_bytes(config, element_bytes),
        symbol=f"autotopk_held_rows_{kind}",
        cluster=config.blocks,
        code_dependencies=("autotopk.strategies.split_radix",),
    )


def _intervals(config: HeldRowsConfig) -> int:
    return min(config.capacity, MOST_INTERVALS)


def shared_bytes(config: HeldRowsConfig, itemsize: int) -> int:
    """Of the list, its intervals, and the row, of which each warp has up to 128 bytes more than its share."""
    return config.capacity * (max(itemsize, 4) + 4) + 4 * _intervals(config) + config.room + 4 * config.threads


strategy = HeldRows()
