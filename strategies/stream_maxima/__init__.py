"""Rows read in a stream, maxima of several lines in registers: what may be among the best is read again, ordered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.problem import ANSWERS, DTYPE_BYTES, Problem, power_below, power_of_two
from autotopk.strategies._costs import split
from autotopk.strategies._lines import DTYPES, OWN_BYTES, ClusterConfig, LinesStrategy, most_at_once, parameters
from autotopk.strategies.split_radix import MOST_INTERVALS, MOST_ITEMS, STATIC_BYTES
from autotopk.strategy import Features, check_knobs

BLOCKS = (1, 2, 4, 8, 16)
LINES = (64, 128, 256, 512)
CAPACITIES = [1 << bits for bits in range(6, 14)]
LADDER = (
    (1, 128, 128, 512),
    (1, 128, 256, 512),
    (1, 256, 128, 512),
    (1, 256, 256, 512),
    (1, 512, 512, 512),
    (2, 256, 256, 512),
    (2, 512, 256, 512),
    (4, 256, 64, 1024),
    (4, 256, 128, 512),
    (4, 256, 128, 1024),
    (4, 256, 256, 512),
    (8, 256, 128, 512),
    (8, 256, 256, 1024),
    (8, 512, 64, 4096),
    (16, 256, 128, 512),
    (16, 256, 256, 512),
    (16, 256, 256, 1024),
    (16, 512, 256, 4096),
)
"""(blocks, threads, lines, capacity) of the rungs."""

KNOBS: dict[str, Sequence[Knob]] = {
    "blocks": BLOCKS,
    "threads": (32, 64, 128, 256, 512),
    "lines": LINES,
    "capacity": CAPACITIES,
}
"""What kernels can be made for."""

LISTED = 1024
"""Lines that a block lists, beside as many as the list has entries."""

LEAST_CAPACITY = 512
"""Of a list: shorter ones are no sooner ordered."""

LONGEST = 1 << 21
"""Lines of a row: 32 MB, beyond which few blocks read for too long."""

SPARSE = 16
"""Elements of a maximum, times k, of which a row has as many times as many: few maxima have two of the best."""

MANY_K = 32
"""Above which as few maxima as 128 threads have tell a cut that in one of a hundred rows too few elements reach."""

MIN_COLS, MOST_K = 16384, 3072
"""Columns of the shortest rows, and the largest k, for which it is chosen where nothing was measured."""


@dataclass(frozen=True)
class StreamMaximaConfig(ClusterConfig):
    """How the blocks of a cluster share a row. Raises ValueError for what no kernel has."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)

    @property
    def resident(self) -> int:
        """Blocks of a processor that registers suffice for: of small ones as many lines are on their way of each."""
        return max(1, (1024 if self.threads == 512 and self.lines <= 128 else 512) // self.threads)


_config = lru_cache(1 << 12)(StreamMaximaConfig)  # a call where nothing was tuned asks for dozens


class StreamMaxima(LinesStrategy):
    """Exact, and the same on every run: of equal elements, those of the lowest columns."""

    name = "stream_maxima"
    config_type = StreamMaximaConfig
    preference: ClassVar[int] = 26
    config = staticmethod(_config)
    plain_rungs = LADDER
    features = Features(
        answers=frozenset(ANSWERS),
        device_types=frozenset({"cuda"}),
        capability=(8, 0),
        dtypes=DTYPES,
        stable=DTYPES,
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs rows of many times k, and a rung: others are quicker where k is large, and need no compiler either."""
        reasons = []
        if not self.ladder(problem, device):
            reasons.append(f"no cluster streams rows of {problem.cols} for k={problem.k}")
        if problem.rows * BLOCKS[-1] >= 1 << 31:
            reasons.append(f"{problem.rows} rows are more than 32 bits count")
        return reasons

    def shortlist(self, problem: Problem, device: Device) -> Sequence[StreamMaximaConfig]:
        """The fewest lines for each number of threads and blocks, and lists half more than k or longer."""
        capacity = max(power_of_two(-(-3 * problem.k // 2)), LEAST_CAPACITY)
        everything = -(-problem.cols * problem.itemsize // 16)
        most_blocks = max(1, most_at_once(problem, device))
        if capacity > CAPACITIES[-1] or everything > LONGEST:
            return ()
        found = _shortlist(
            capacity, power_of_two(everything), most_blocks, _most_lines(problem), problem.itemsize, device
        )
        return [one for one in found if one.threads >= _least_threads(problem)]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Lists from half more than k on, and clusters that all run at once."""
        least = max(power_of_two(-(-3 * problem.k // 2)), LEAST_CAPACITY)
        return {
            "blocks": [blocks for blocks in BLOCKS if blocks <= max(1, most_at_once(problem, device))],
            "threads": [threads for threads in (128, 256, 512) if threads >= _least_threads(problem)],
            "lines": [lines for lines in LINES if lines <= _most_lines(problem)],
            "capacity": [size for size in CAPACITIES if least <= size <= 2 * least],
        }

    def heuristic(self, problem: Problem, device: Device) -> StreamMaximaConfig | None:
        """Long rows of which enough are read at once, by a block each or by clusters that all run; others' else."""
        usual = self.usual(problem, device)
        if usual is None or problem.cols < MIN_COLS or problem.k > MOST_K:
            return None
        together = problem.rows * usual.blocks
        if usual.lines > _most_lines(problem, 2 * SPARSE):  # of half as many, others are as quick as often as not
            return None
        enough = 3 * together >= device.processors and (usual.blocks == 1 or together <= device.processors)
        return usual if enough else None

    def usual(self, problem: Problem, device: Device) -> StreamMaximaConfig | None:
        """As many blocks as half of the processors hold: more of them wait for room beside each other."""
        found = self.shortlist(problem, device)
        at_once = [one for one in found if 2 * problem.rows * one.blocks <= device.processors]
        at_once = at_once or [one for one in found if one.blocks == found[0].blocks]
        return max(at_once, key=lambda one: (one.blocks, one.threads == 256, -one.lines), default=None)

    def ladder(self, problem: Problem, device: Device) -> Sequence[StreamMaximaConfig]:
        """Maxima of so few lines that few have two of the best, enough of them, and clusters that all run at once."""
        return _ladder(problem, device)

    def terms(self, config: StreamMaximaConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.split`."""
        return split.streams(config, shared_bytes(config, problem.itemsize), problem, device)

    def fits(self, config: StreamMaximaConfig, itemsize: int, device: Device) -> bool:
        """See `LinesStrategy`."""
        return _fits(config, itemsize, device)

    def source(self, config: StreamMaximaConfig, kind: str, *, windows: bool, ordered: bool) -> CudaSource:
        """One kernel, in order."""
        return _source(config, kind)


@lru_cache(1 << 10)  # one kernel serves many shapes
def _source(config: StreamMaximaConfig, kind: str) -> CudaSource:
    element_bytes, capacity = DTYPE_BYTES[kind], config.capacity
    constants = {
        "ELEMENT_BYTES": element_bytes,
        "FLOAT": kind.startswith("float"),
        "BLOCKS": config.blocks,
        "THREADS": config.threads,
        "LINES": config.lines,
        "MAXIMA": split.STREAMED,
        "CAPACITY": capacity,
        "LISTED": capacity + LISTED,
        "INTERVALS": min(capacity, MOST_INTERVALS),
        "ITEMS": max(1, min(MOST_ITEMS, capacity // config.threads)),
        "APART": True,
        "RESIDENT": config.resident,
    }
    return CudaSource(
        file="autotopk.strategies.stream_maxima/streams.cu",
        constants=tuple(constants.items()),
        parameters=parameters(False),
        threads=config.threads,
        shared_bytes=shared_bytes(config, element_bytes),
        symbol=f"autotopk_stream_maxima_{kind}",
        cluster=config.blocks,
        code_dependencies=(
            "autotopk.strategies._lines",
            "autotopk.strategies.load_maxima",
            "autotopk.strategies.split_radix",
        ),
    )


@lru_cache(64)  # whoever asks about a problem does so several times
def _ladder(problem: Problem, device: Device) -> Sequence[StreamMaximaConfig]:
    most, least = _most_lines(problem), _least_threads(problem)
    if not most:
        return ()
    rungs = LinesStrategy.ladder(strategy, problem, device)
    able = [one for one in rungs if one.lines <= most and one.threads >= least]
    most_blocks = max(min([one.blocks for one in able], default=0), most_at_once(problem, device))
    return tuple([one for one in able if one.blocks <= most_blocks])


def _least_threads(problem: Problem) -> int:
    return 256 if problem.k > MANY_K else 128


def _most_lines(problem: Problem, sparse: int = SPARSE) -> int:
    """Of a thread: more where k is smaller beside the elements of a row; 0 where it is too large for any."""
    elements = problem.cols // (sparse * problem.k)  # of a maximum
    return split.STREAMED * power_below(elements * problem.itemsize // 16) if elements * problem.itemsize >= 16 else 0


@lru_cache(1 << 12)  # a call where nothing was tuned meets few of them
def _shortlist(
    capacity: int, everything: int, most_blocks: int, most_lines: int, itemsize: int, device: Device
) -> tuple[StreamMaximaConfig, ...]:
    """For entries of a list, lines of a row (a power of two), blocks that may share it, and lines of a thread."""
    found: list[StreamMaximaConfig] = []
    for blocks in BLOCKS:
        if blocks > most_blocks and found:
            break
        if blocks < most_blocks // 2:  # memory would idle
            continue
        for threads in (128, 256, 512):
            least = everything // (blocks * threads)
            if blocks > 1 and threads == 512 and capacity <= MOST_ITEMS * 256:  # registers are spilled for a cluster
                least = max(least, 256)
            wide = (least, 2 * least) if threads * least == 512 * 64 else (least,)
            found += [_config(blocks, threads, one, capacity) for one in wide if one in LINES and one <= most_lines]
    return tuple([config for config in found if _fits(config, itemsize, device)])


@lru_cache(1 << 12)
def _fits(config: StreamMaximaConfig, itemsize: int, device: Device) -> bool:
    """Whether a device has threads and shared memory for its lists, and clusters."""
    return (
        config.capacity <= MOST_ITEMS * config.threads
        and shared_bytes(config, itemsize) + STATIC_BYTES + OWN_BYTES + config.threads * 8 <= device.shared_bytes
        and (config.blocks == 1 or device.capability >= (9, 0))
    )


@lru_cache(1 << 10)
def shared_bytes(config: StreamMaximaConfig, itemsize: int) -> int:
    """Of the list, its intervals, and the lines that are read again."""
    capacity = config.capacity
    return capacity * (max(itemsize, 4) + 4) + 4 * (min(capacity, MOST_INTERVALS) + capacity + LISTED)


strategy = StreamMaxima()
