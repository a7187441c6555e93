"""Maxima of 16 bytes in the registers of a block or a cluster: what may be among the best is read again, ordered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.problem import ANSWERS, DTYPE_BYTES, WINDOWS, Problem, power_below, power_of_two
from autotopk.strategies._costs import split
from autotopk.strategies._lines import DTYPES, OWN_BYTES, ClusterConfig, LinesStrategy, most_at_once, parameters
from autotopk.strategies.split_radix import MOST_INTERVALS, MOST_ITEMS, STATIC_BYTES
from autotopk.strategy import Features, check_knobs

CAPACITIES = [1 << bits for bits in range(6, 14)]
BLOCKS = (1, 2, 4, 8, 16)
LINES = (1, 2, 4, 8, 16, 32)
LADDER = (
    (1, 256, 4, 512),
    (1, 256, 8, 256),
    (1, 256, 8, 512),
    (1, 256, 16, 256),
    (1, 256, 16, 512),
    (1, 256, 16, 2048),
    (1, 256, 32, 256),
    (1, 256, 32, 1024),
    (1, 512, 8, 4096),
    (1, 512, 16, 1024),
    (1, 512, 16, 4096),
    (1, 512, 32, 512),
    (1, 512, 32, 4096),
    (1, 1024, 4, 8192),
    (1, 1024, 16, 8192),
    (2, 512, 32, 512),
    (2, 512, 32, 4096),
    (4, 512, 16, 4096),
    (4, 1024, 16, 8192),
    (8, 512, 32, 4096),
    (16, 512, 32, 512),
    (16, 512, 32, 4096),
    (16, 1024, 16, 8192),
)
"""(blocks, threads, lines, capacity) of the rungs; together they have room for all rows and k of the shortlists."""

WINDOWS_LADDER = (
    (1, 512, 8, 4096),
    (1, 512, 32, 1024),
    (1, 512, 32, 4096),
    (1, 1024, 16, 8192),
    (2, 512, 32, 4096),
    (16, 512, 32, 4096),
    (16, 1024, 16, 8192),
)
"""The same of windows."""

KNOBS: dict[str, Sequence[Knob]] = {
    "blocks": BLOCKS,
    "threads": (32, 64, 128, 256, 512, 1024),
    "lines": LINES,
    "capacity": CAPACITIES,
}
"""What kernels can be made for."""

MIN_COLS, MOST_K = 16384, 3072
"""Columns of the shortest rows, and the largest k, for which it is chosen where nothing was measured; windows aside."""

MOST_LINES = 16384
"""Of a block: 256 KB of a row, and as many maxima as registers have room for beside what is on its way."""

MOST_HELD = 8
"""Lines of a thread that a block holds whole, of windows so short that one block answers."""


@dataclass(frozen=True)
class LoadMaximaConfig(ClusterConfig):
    """How the blocks of a cluster share a row. Raises ValueError for what no kernel has."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)
        if self.threads * self.lines > MOST_LINES:
            raise ValueError(f"{self.threads} threads have no registers for lines={self.lines}")

    @property
    def resident(self) -> int:
        """Blocks of a processor that registers suffice for: of rows that blocks have alone there are mostly many."""
        return self._blocks_of_processor(16 if self.blocks == 1 else 8)

    @property
    def resident_of_windows(self) -> int:
        """The same of windows: what is known of them takes registers."""
        return self._blocks_of_processor(8)

    def _blocks_of_processor(self, most_lines: int) -> int:
        return max(1, (1024 if self.lines <= most_lines else 512) // self.threads)


_config = lru_cache(1 << 12)(LoadMaximaConfig)  # a call where nothing was tuned asks for dozens


class LoadMaxima(LinesStrategy):
    """Exact, and the same on every run: of equal elements, those of the lowest columns."""

    name = "load_maxima"
    config_type = LoadMaximaConfig
    preference: ClassVar[int] = 27
    config = staticmethod(_config)
    plain_rungs, window_rungs = LADDER, WINDOWS_LADDER
    features = Features(
        answers=frozenset({*ANSWERS, WINDOWS}),
        device_types=frozenset({"cuda"}),
        capability=(8, 0),
        dtypes=DTYPES,
        stable=DTYPES,
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs registers for the maxima of a row and a list longer than k."""
        reasons = []
        if not self.shortlist(problem, device):
            reasons.append(f"no cluster holds rows of {problem.cols} and a list for k={problem.k}")
        if problem.rows * BLOCKS[-1] >= 1 << 31:
            reasons.append(f"{problem.rows} rows are more than 32 bits count")
        return reasons

    def shortlist(self, problem: Problem, device: Device) -> Sequence[LoadMaximaConfig]:
        """The fewest lines for each number of threads and blocks, and lists half more than k or longer."""
        least, everything = power_of_two(-(-3 * problem.k // 2)), -(-problem.cols * problem.itemsize // 16)
        if least > CAPACITIES[-1] or everything > BLOCKS[-1] * MOST_LINES:
            return ()
        most_blocks = min(power_below(2 * device.processors // problem.rows | 1), BLOCKS[-1])
        return _shortlist(max(least, 256), power_of_two(everything), most_blocks, problem.itemsize, device)

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Lists from half more than k on, and clusters of which half run at once."""
        least = power_of_two(-(-3 * problem.k // 2))
        return {
            "blocks": [blocks for blocks in BLOCKS if blocks == 1 or problem.rows * blocks <= 2 * device.processors],
            "threads": (256, 512, 1024),
            "lines": LINES,
            "capacity": [size for size in CAPACITIES if max(least, 256) <= size <= 4 * max(least, 256)],
        }

    def heuristic(self, problem: Problem, device: Device) -> LoadMaximaConfig | None:
        """Windows, and long rows that a block holds, or clusters that all run at once; other families' else."""
        usual = self.usual(problem, device)
        if usual is None or problem.answer == WINDOWS:
            return usual
        at_once = usual.blocks == 1 or usual.blocks <= most_at_once(problem, device)
        return usual if at_once and problem.cols >= MIN_COLS and problem.k <= MOST_K else None

    def usual(self, problem: Problem, device: Device) -> LoadMaximaConfig | None:
        """As many blocks as half of the processors hold: more of them wait for room beside each other."""
        found = self.shortlist(problem, device)
        at_once = [one for one in found if 2 * problem.rows * one.blocks <= device.processors] or found[:1]
        return max(at_once, key=lambda one: (one.blocks, one.threads == 512, -one.capacity), default=None)

    def terms(self, config: LoadMaximaConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.split`."""
        own = shared_bytes(config, problem.itemsize)
        return split.maxima(config, own, problem, device)

    def fits(self, config: LoadMaximaConfig, itemsize: int, device: Device) -> bool:
        """See `LinesStrategy`."""
        return _fits(config, itemsize, device)

    def source(self, config: LoadMaximaConfig, kind: str, *, windows: bool, ordered: bool) -> CudaSource:
        """One kernel, in order."""
        return _source(config, kind, windows=windows)


@lru_cache(1 << 10)  # one kernel serves many shapes
def _source(config: LoadMaximaConfig, kind: str, *, windows: bool) -> CudaSource:
    element_bytes, capacity = DTYPE_BYTES[kind], config.capacity
    constants = {
        "ELEMENT_BYTES": element_bytes,
        "FLOAT": kind.startswith("float"),
        "BLOCKS": config.blocks,
        "THREADS": config.threads,
        "LINES": config.lines,
        "CAPACITY": capacity,
        "INTERVALS": _intervals(config),
        "ITEMS": max(1, min(MOST_ITEMS, capacity // config.threads)),
        "APART": True,
        "RESIDENT": config.resident_of_windows if windows else config.resident,
        **({"HELD": min(config.lines, MOST_HELD)} if windows else {}),
    }
    return CudaSource(
        file=f"autotopk.strategies.load_maxima/{'selector' if windows else 'maxima'}.cu",
        constants=tuple(constants.items()),
        parameters=parameters(windows),
        threads=config.threads,
        shared_bytes=shared_bytes(config, element_bytes),
        symbol=f"autotopk_load_maxima_{'windows_' if windows else ''}{kind}",
        cluster=config.blocks,
        code_dependencies=(
            "autotopk.strategies._lines",
            "autotopk.strategies.block_buckets",
            "autotopk.strategies.split_radix",
        ),
    )


@lru_cache(1 << 12)  # a call where nothing was tuned meets few of them
def _shortlist(
    least: int, everything: int, most_blocks: int, itemsize: int, device: Device
) -> tuple[LoadMaximaConfig, ...]:
    """For the least capacity, lines of a row (a power of two), and blocks that may share it."""
    found: list[LoadMaximaConfig] = []
    sizes = [size for size in (least, 2 * least) if size <= CAPACITIES[-1]]
    for blocks in BLOCKS:
        if found and blocks > most_blocks:
            break
        for threads in (256, 512, 1024):
            lines = power_of_two(-(-everything // (blocks * threads)))
            if lines <= LINES[-1] and threads * lines <= MOST_LINES:
                found += [_config(blocks, threads, lines, size) for size in sizes]
    return tuple([config for config in found if _fits(config, itemsize, device)])


@lru_cache(1 << 12)
def _fits(config: LoadMaximaConfig, itemsize: int, device: Device) -> bool:
    """Whether a device has threads and shared memory for its lists, and clusters."""
    return (
        config.capacity <= MOST_ITEMS * config.threads
        and shared_bytes(config, itemsize) + STATIC_BYTES + OWN_BYTES + config.threads * 8 <= device.shared_bytes
        and (config.blocks == 1 or device.capability >= (9, 0))
    )


def _intervals(config: LoadMaximaConfig) -> int:
    return min(config.capacity, MOST_INTERVALS)


@lru_cache(1 << 10)
def shared_bytes(config: LoadMaximaConfig, itemsize: int) -> int:
    """Of the list, its intervals, and the lines that are read again."""
    return config.capacity * (max(itemsize, 4) + 8) + 4 * _intervals(config)


strategy = LoadMaxima()
