"""Rows read once, a block each: a sample of a row tells a cut; what reaches it is listed as it comes, then ordered."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device, device_of_arch
from autotopk.kernel import kernel_dtype
from autotopk.problem import ANSWERS, DTYPE_BYTES, Problem, power_of_two
from autotopk.program import Extent, KernelProgram
from autotopk.strategies._costs import split
from autotopk.strategies._lines import DTYPES, parameters
from autotopk.strategies.split_radix import MOST_INTERVALS
from autotopk.strategy import Features, Strategy, check_knobs

CAPACITIES = [1 << bits for bits in range(9, 14)]
KNOBS: dict[str, Sequence[Knob]] = {
    "threads": (32, 64, 128, 256, 512, 1024),
    "loads": (1, 2, 4, 8),
    "capacity": CAPACITIES,
}
"""What kernels can be made for."""

HANDED_OUT = 8
"""Loads from which on what warps read is handed out to them; with fewer, numbers tell where it is."""

LADDER = (
    (256, 4, 1024),
    (256, 8, 512),
    (512, 4, 1024),
    (512, 4, 2048),
    (512, 4, 4096),
    (512, 8, 1024),
)
"""(threads, loads, capacity) of the rungs."""

SHAPES = ((256, 4), (256, 8), (512, 4), (512, 8))
"""(threads, loads) that are raced."""

DEVIATIONS, MORE, LATER = 5.5, 4, 3
"""Beyond the wanted of the sample, for the cut (`sample.cuh`), and how many more; of a list, for its room."""

STATIC_BYTES = 8 << 10
"""Shared memory of a block beside its list, or a little more."""

LONGEST = 1 << 26
"""Bytes of a row, which one block reads for too long."""

FEW_ROWS = 4
"""Rows of which, times so many, there are fewer than processors are shared by blocks sooner."""

MIN_BYTES = 128 << 10
"""Of a row, for which it is chosen where nothing was measured."""


@dataclass(frozen=True)
class StreamListsConfig:
    """How a block reads a row. Raises ValueError for what no kernel has."""

    threads: int
    """Of a block."""
    loads: int
    """Lines of 16 bytes of a thread that are looked at together, while as many are on their way."""
    capacity: int
    """Entries of the list, at least twice k."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)
        if not self.resident:
            raise ValueError(f"{self.threads} threads have no registers for loads={self.loads}")

    @property
    def blocks(self) -> int:
        """Of a row."""
        return 1

    @property
    def handed_out(self) -> bool:
        """Whether what warps read is handed out to them, which takes twice as many registers."""
        return self.loads >= HANDED_OUT

    @property
    def resident(self) -> int:
        """Blocks of a processor that registers suffice for."""
        return (512 if self.handed_out else 1024) // self.threads

    @property
    def batch(self) -> int:
        """Bytes of what all threads look at together; the first is the sample."""
        return 16 * self.threads * self.loads

    @property
    def most_items(self) -> int:
        """Entries of its list that a thread has registers for."""
        return 16 if self.handed_out else 8

    @property
    def intervals(self) -> int:
        """Into which the list is ordered."""
        return min(self.capacity, MOST_INTERVALS)

    @property
    def shared_bytes(self) -> int:
        """Of the list and its intervals."""
        return 8 * self.capacity + 4 * self.intervals


_config = lru_cache(1 << 12)(StreamListsConfig)  # a call where nothing was tuned asks for some


class StreamLists(Strategy):
    """Exact, and the same on every run: of equal elements, those of the lowest columns."""

    name = "stream_lists"
    config_type = StreamListsConfig
    preference: ClassVar[int] = 31
    features = Features(
        answers=frozenset(ANSWERS),
        device_types=frozenset({"cuda"}),
        capability=(9, 0),
        dtypes=DTYPES,
        stable=DTYPES,
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs many rows, long beside k."""
        reasons = []
        if FEW_ROWS * problem.rows < device.processors:
            reasons.append(f"{problem.rows} rows are few for {device.processors} multiprocessors")
        elif not self.ladder(problem, device):
            reasons.append(f"rows of {problem.cols} are too short or too long for k={problem.k}")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def valid(self, config: StreamListsConfig, problem: Problem, device: Device) -> bool:
        """Rows of two batches, in whose sample a thread has one of the wanted at most, and lists of twice k."""
        bytes_, of_thread = problem.cols * problem.itemsize, 16 * config.loads // problem.itemsize
        return (
            2 * config.batch + 16 <= bytes_ <= LONGEST
            and problem.k * of_thread <= problem.cols
            and 2 * problem.k <= config.capacity <= config.most_items * config.threads
            and _fits(config, device)
        )

    def shortlist(self, problem: Problem, device: Device) -> Sequence[StreamListsConfig]:
        """Lists that nearly all rows have room in."""
        found = []
        for threads, loads in SHAPES:
            capacity = max(power_of_two(max(_listed(threads, loads, problem), 2 * problem.k)), CAPACITIES[0])
            if capacity <= CAPACITIES[-1]:
                found.append(_config(threads, loads, capacity))
        return [config for config in found if self.valid(config, problem, device)]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Lists from twice k on."""
        least = max(power_of_two(2 * problem.k), CAPACITIES[0])
        return {
            "threads": (128, 256, 512),
            "loads": (2, 4, 8),
            "capacity": [size for size in CAPACITIES if least <= size <= 8 * least],
        }

    def heuristic(self, problem: Problem, device: Device) -> StreamListsConfig | None:
        """As many long rows as processors, or more."""
        long = problem.cols * problem.itemsize >= MIN_BYTES
        suits = long and problem.rows >= device.processors
        return next(iter(self.ladder(problem, device)), None) if suits else None

    def ladder(self, problem: Problem, device: Device) -> Sequence[StreamListsConfig]:
        """Blocks that all run at once, of as many threads as a processor has room for."""
        return _ladder(problem, device)

    def rungs(self, arch: int) -> Iterator[CudaSource]:
        """The same of every architecture, where they fit."""
        device = device_of_arch(arch)
        for kind in ("float32", "float16"):
            yield from (_source(config, kind) for config in _rungs() if _fits(config, device))

    def terms(self, config: StreamListsConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.split`."""
        listed = _listed(config.threads, config.loads, problem, deviations=0)
        return split.listed(config, listed, problem, device)

    def program(self, config: StreamListsConfig, problem: Problem, device: Device) -> KernelProgram:
        """One block a row."""
        return _program(config, kernel_dtype(problem.dtype))


def _rungs() -> list[StreamListsConfig]:
    return [_config(*rung) for rung in LADDER]


def _fits(config: StreamListsConfig, device: Device) -> bool:
    """Pairs of bfloat16 are compared by instructions of 9.0."""
    return (
        device.capability >= StreamLists.features.capability
        and config.shared_bytes <= device.shared_bytes - STATIC_BYTES
    )


def _listed(threads: int, loads: int, problem: Problem, deviations: float = LATER) -> int:
    """Entries that the list of a row has, on average and some deviations more."""
    sample = min(16 * threads * loads / (problem.cols * problem.itemsize), 1.0)
    wanted = problem.k * sample
    aimed = wanted + DEVIATIONS * sqrt(wanted) + MORE
    return int((aimed + deviations * sqrt(aimed)) / sample)


@lru_cache(64)  # whoever asks about a problem does so several times
def _ladder(problem: Problem, device: Device) -> tuple[StreamListsConfig, ...]:
    together = max(1, -(-problem.rows // device.processors))  # blocks of a processor

    def away(one: StreamListsConfig) -> tuple[bool, int, int]:
        return one.resident < together, abs(one.resident - together), one.capacity

    able = [
        one
        for one in _rungs()
        if one.capacity >= _listed(one.threads, one.loads, problem) and strategy.valid(one, problem, device)
    ]
    return tuple(sorted(able, key=away))


@lru_cache(1 << 12)  # one serves many shapes
def _program(config: StreamListsConfig, kind: str) -> KernelProgram:
    return KernelProgram.of(_source(config, kind), Extent(1, (("rows", 1),)))


@lru_cache(1 << 10)  # one kernel serves many shapes
def _source(config: StreamListsConfig, kind: str) -> CudaSource:
    constants = {
        "ELEMENT_BYTES": DTYPE_BYTES[kind],
        "FLOAT": kind.startswith("float"),
        "BLOCKS": 1,
        "THREADS": config.threads,
        "LINES": config.loads,
        "LOADS": config.loads,
        "SPREAD": not config.handed_out,
        "CAPACITY": config.capacity,
        "LISTED": config.capacity,
        "KEPT": 0,
        "INTERVALS": config.intervals,
        "ITEMS": max(1, config.capacity // config.threads),
        "APART": True,
        "RESIDENT": config.resident,
    }
    return CudaSource(
        file="autotopk.strategies.stream_lists/streams.cu",
        constants=tuple(constants.items()),
        parameters=parameters(False),
        threads=config.threads,
        shared_bytes=config.shared_bytes,
        symbol=f"autotopk_stream_lists_{kind}",
        code_dependencies=(
            "autotopk.strategies._lines",
            "autotopk.strategies.split_radix",
            "autotopk.strategies.cluster_lists",
        ),
    )


strategy = StreamLists()
