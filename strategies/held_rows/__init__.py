"""Rows that the registers of a block or a cluster hold: a cut is guessed, counted, and what reaches it put in order."""

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
BLOCKS = (1, 2, 4, 8, 16)
LOADS = (1, 2, 4, 8, 16)
KNOBS: dict[str, Sequence[Knob]] = {
    "blocks": BLOCKS,
    "threads": (32, 64, 128, 256, 512, 1024),
    "loads": LOADS,
    "capacity": CAPACITIES,
}
"""What kernels can be made for."""

MOST_LOADS = 8192
"""Of a block: 128 KB, half of the registers of a processor."""


OWN_BYTES = 1 << 10
"""Shared memory of a block beside what every list has, and a key of each thread: what blocks exchange."""


@dataclass(frozen=True)
class HeldRowsConfig:
    """How the blocks of a cluster hold a row. Raises ValueError for what no kernel has."""

    blocks: int
    """Blocks of a cluster."""
    threads: int
    """Threads of a block."""
    loads: int
    """Loads of 16 bytes that a thread holds."""
    capacity: int
    """Entries of the list, more than k."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)
        if self.threads * self.loads > MOST_LOADS:
            raise ValueError(f"{self.threads} threads have no registers for loads={self.loads}")

    @property
    def room(self) -> int:
        """Bytes of the longest row."""
        return self.blocks * self.threads * self.loads * 16


class HeldRows(Strategy):
    """Exact, and the same on every run: of equal keys, those of the lowest columns; -0 has a key below +0."""

    name = "held_rows"
    config_type = HeldRowsConfig
    preference: ClassVar[int] = 27
    features = Features(
        answers=frozenset(ANSWERS), device_types=frozenset({"cuda"}), capability=(8, 0), stable=INTEGERS
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs registers for the row and a list longer than k."""
        reasons = []
        if not self.shortlist(problem, device):
            reasons.append(f"no cluster holds rows of {problem.cols} and a list for k={problem.k}")
        if problem.rows * BLOCKS[-1] >= 1 << 31:
            reasons.append(f"{problem.rows} rows are more than 32 bits count")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def valid(self, config: HeldRowsConfig, problem: Problem, device: Device) -> bool:
        """Whatever holds the row, and lists more than k."""
        return (
            problem.cols * problem.itemsize <= config.room
            and 5 * problem.k <= 4 * config.capacity
            and config.capacity <= MOST_ITEMS * config.threads
            and shared_bytes(config, problem.itemsize) + STATIC_BYTES + OWN_BYTES + config.threads * 8
            <= device.shared_bytes
            and (config.blocks == 1 or device.capability >= (9, 0))
        )

    def shortlist(self, problem: Problem, device: Device) -> Sequence[HeldRowsConfig]:
        """The fewest loads for each number of threads and blocks, and lists half more than k or longer."""
        least = max(power_of_two(-(-3 * problem.k // 2)), 256)
        found = []
        for blocks in BLOCKS:
            if blocks > 1 and problem.rows * blocks > 2 * device.processors:
                continue
            for threads in (256, 512, 1024):
                loads = power_of_two(-(-problem.cols * problem.itemsize // (16 * blocks * threads)))
                if loads > LOADS[-1] or threads * loads > MOST_LOADS:
                    continue
                found += [
                    HeldRowsConfig(blocks, threads, loads, size)
                    for size in (least, 2 * least)
                    if size <= CAPACITIES[-1]
                ]
        return [config for config in found if self.valid(config, problem, device)]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Lists from half more than k on, and clusters of which half run at once."""
        least = power_of_two(-(-3 * problem.k // 2))
        return {
            "blocks": [blocks for blocks in BLOCKS if blocks == 1 or problem.rows * blocks <= 2 * device.processors],
            "threads": (256, 512, 1024),
            "loads": LOADS,
            "capacity": [size for size in CAPACITIES if max(least, 256) <= size <= 4 * max(least, 256)],
        }

    def heuristic(self, problem: Problem, device: Device) -> HeldRowsConfig | None:
        """Never where it was not measured: it has no rungs."""
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
        "LOADS": config.loads,
        "CAPACITY": capacity,
        "INTERVALS": _intervals(config),
        "ITEMS": max(1, min(MOST_ITEMS, capacity // config.threads)),
        "RESIDENT": max(1, (1024 if config.loads <= 8 else 512) // config.threads),
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
    """Of the list and its intervals."""
    return config.capacity * (max(itemsize, 4) + 4) + 4 * _intervals(config)


strategy = HeldRows()
