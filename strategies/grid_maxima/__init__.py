"""Few long rows, read by the whole device: each warp tells its best two, and one block finds a row's best of these."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.kernel import ParameterKind, kernel_dtype
from autotopk.problem import ANSWERS, DTYPE_BYTES, Problem
from autotopk.program import Extent, KernelProgram, Launch, Scratch
from autotopk.strategies._costs import split
from autotopk.strategies._lines import DTYPES
from autotopk.strategies.split_radix import MOST_INTERVALS, MOST_ITEMS
from autotopk.strategy import Features, Strategy, check_knobs

MOST_BLOCKS = 128
"""Of a row: nearly one a processor, and no more than four messages for a thread."""

CAPACITIES = (128, 256, 512, 1024)
KNOBS: dict[str, Sequence[Knob]] = {
    "blocks": range(1, MOST_BLOCKS + 1),
    "threads": (32, 64, 128, 256, 512, 1024),
    "loads": (1, 2, 4, 8),
    "capacity": CAPACITIES,
}
"""What kernels can be made for."""

LADDER = (512, 1024)
"""Threads of the rungs, which have 4 loads, and any blocks."""

MANY_LINES = 128
"""Of a thread of 512, from which on 1,024 threads read faster: 1x100000000, k = 32, takes 97 us and 119."""

USUAL_CAPACITY = {"float32": 512, "float16": 1024}
"""By the kind of elements: of 16 bits more are equal."""

LISTED = 1024
"""Words of shared memory: for a quarter as many messages of warps with more than they told, and for these in order."""

RANKED = 256
"""Entries that are ranked among each other."""

SPARSE = 8
"""Messages for each element that is wanted: of few warps more than two are among the best."""

MAX_ROUNDS = 512
"""Lines of a thread, of which a message has room for the number."""

MOST_ROWS = 8
"""Beyond which each has too few blocks for any k that others do not answer sooner."""

MIN_BYTES = 4 << 20
"""Of all rows, for which it is chosen where nothing was measured: smaller ones a cluster reads as soon."""


@dataclass(frozen=True)
class GridMaximaConfig:
    """How a row is shared out, and how a block reads its part. Raises ValueError for what no kernel has."""

    blocks: int
    """Of a row."""
    threads: int
    """Of a block."""
    loads: int
    """Lines of 16 bytes of a thread on their way at once."""
    capacity: int
    """Entries of the list, more than twice k."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)

    @property
    def merged(self) -> int:
        """Warps that share a message, so that there are not too many."""
        return 2 if self.threads == 1024 else 1

    @property
    def messages(self) -> int:
        """Of a row."""
        return self.blocks * self.threads // (32 * self.merged)


_config = lru_cache(1 << 12)(GridMaximaConfig)  # a call where nothing was tuned asks for some


class GridMaxima(Strategy):
    """Exact, and the same on every run; of equal elements not always those of the lowest columns."""

    name = "grid_maxima"
    config_type = GridMaximaConfig
    preference: ClassVar[int] = 30
    features = Features(
        answers=frozenset(ANSWERS),
        device_types=frozenset({"cuda"}),
        capability=(8, 0),
        dtypes=DTYPES,
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs few rows, long beside k."""
        reasons = []
        if problem.rows > MOST_ROWS:
            reasons.append(f"{problem.rows} rows are more than {MOST_ROWS}")
        elif not self.ladder(problem, device):
            reasons.append(f"rows of {problem.cols} are too short or too long for k={problem.k}")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def valid(self, config: GridMaximaConfig, problem: Problem, device: Device) -> bool:
        """Every thread has a line, no more than a message has numbers for, and warps are many beside k."""
        lines, threads = problem.cols * problem.itemsize / 16, config.blocks * config.threads
        return (
            threads + 2 <= lines <= threads * (MAX_ROUNDS - 1)
            and SPARSE * problem.k <= config.messages
            and 2 * (problem.k + 16 // problem.itemsize) <= config.capacity <= MOST_ITEMS * config.threads
        )

    def shortlist(self, problem: Problem, device: Device) -> Sequence[GridMaximaConfig]:
        """One block a processor, of more or fewer threads and loads."""
        blocks, capacity = _blocks(problem, device), USUAL_CAPACITY[kernel_dtype(problem.dtype)]
        shapes = ((512, 4), (1024, 4), (512, 2), (512, 8), (256, 4))
        found = [_config(blocks, threads, loads, capacity) for threads, loads in shapes]
        return [config for config in found if self.valid(config, problem, device)]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """As many blocks as processors have room for at once."""
        return {
            "blocks": (_blocks(problem, device),),
            "threads": (256, 512, 1024),
            "loads": (2, 4, 8),
            "capacity": CAPACITIES[-2:],
        }

    def heuristic(self, problem: Problem, device: Device) -> GridMaximaConfig | None:
        """One or two long rows."""
        suits = problem.rows <= 2 and problem.rows * problem.cols * problem.itemsize >= MIN_BYTES
        return next(iter(self.ladder(problem, device)), None) if suits else None

    def ladder(self, problem: Problem, device: Device) -> Sequence[GridMaximaConfig]:
        """More threads where they have many lines."""
        blocks, capacity = _blocks(problem, device), USUAL_CAPACITY[kernel_dtype(problem.dtype)]
        few, many = (_config(blocks, threads, 4, capacity) for threads in LADDER)
        long = problem.cols * problem.itemsize >= 16 * MANY_LINES * few.blocks * few.threads
        return [config for config in ((many, few) if long else (few, many)) if self.valid(config, problem, device)]

    def rungs(self, arch: int) -> Iterator[CudaSource]:
        """The same of every architecture."""
        for kind, capacity in USUAL_CAPACITY.items():
            yield from (_source(_config(MOST_BLOCKS, threads, 4, capacity), kind) for threads in LADDER)

    def terms(self, config: GridMaximaConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.split`."""
        return split.grid(config, problem, device)

    def program(self, config: GridMaximaConfig, problem: Problem, device: Device) -> KernelProgram:
        """Scratch memory has two words for each message of a row, and counts its blocks that have started."""
        return _program(config, kernel_dtype(problem.dtype))


def _blocks(problem: Problem, device: Device) -> int:
    """Of a row, so that there is one for each processor."""
    return min(max(device.processors // problem.rows, 1), MOST_BLOCKS)


@lru_cache(1 << 12)  # one serves many shapes
def _program(config: GridMaximaConfig, kind: str) -> KernelProgram:
    rows = (("rows", 1),)
    return KernelProgram(
        launches=(Launch(_source(config, kind), (Extent(config.blocks, rows),)),),
        scratch=(
            Scratch("messages", Extent(16 * config.messages, rows), zeroed=True),
            Scratch("started", Extent(4, rows), zeroed=True),
        ),
    )


@lru_cache(1 << 10)  # one serves many shapes
def _source(config: GridMaximaConfig, kind: str) -> CudaSource:
    """The same for any number of blocks."""
    threads, capacity = config.threads, config.capacity
    kinds: dict[str, ParameterKind] = {
        **dict.fromkeys(("x", "messages", "started", "values", "indices"), "pointer"),
        "row_stride": "int64",
        **dict.fromkeys(("rows", "cols", "k", "smallest", "signed", "infinity"), "int32"),
    }
    intervals, listed, ranked = min(capacity, MOST_INTERVALS), max(LISTED, 2 * capacity), min(RANKED, threads, capacity)
    constants = {
        "ELEMENT_BYTES": DTYPE_BYTES[kind],
        "FLOAT": kind.startswith("float"),
        "BLOCKS": 1,
        "LINES": 1,
        "THREADS": threads,
        "LOADS": config.loads,
        "CAPACITY": capacity,
        "INTERVALS": intervals,
        "ITEMS": max(1, min(MOST_ITEMS, capacity // threads)),
        "APART": True,
        "MOST_PARTS": MOST_BLOCKS,
        "MERGED": config.merged,
        "LISTED": listed,
        "RANKED": ranked,
        "RESIDENT": 1,
    }
    return CudaSource(
        file="autotopk.strategies.grid_maxima/grid.cu",
        constants=tuple(constants.items()),
        parameters=tuple(kinds.items()),
        threads=threads,
        shared_bytes=12 * capacity + 4 * (intervals + listed),
        symbol=f"autotopk_grid_maxima_{kind}",
        code_dependencies=("autotopk.strategies._lines", "autotopk.strategies.split_radix"),
    )


strategy = GridMaxima()
