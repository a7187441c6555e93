"""Rows that the registers of a block hold: bucket selection and a counting sort by the same counts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.problem import ANSWERS, DTYPE_BYTES, VECTOR_BYTES, WINDOWS, Problem, power_of_two
from autotopk.strategies._costs import split
from autotopk.strategies._lines import DTYPES, OWN_BYTES, LinesStrategy, parameters
from autotopk.strategies.split_radix import STATIC_BYTES
from autotopk.strategy import Features, check_knobs

CAPACITIES = [5 << bits for bits in range(4, 12)]
LINES = (1, 2, 4, 8)
KNOBS: dict[str, Sequence[Knob]] = {
    "threads": (32, 64, 128, 256, 512, 1024),
    "lines": LINES,
    "capacity": CAPACITIES,
}
"""What kernels can be made for."""

LADDER = (
    (256, 1, 320),
    (256, 1, 1280),
    (256, 4, 320),
    (256, 4, 1280),
    (256, 4, 2560),
    (512, 4, 640),
    (512, 4, 2560),
    (256, 8, 640),
    (256, 8, 2560),
)
"""(threads, lines, capacity) of the rungs, for answers in order and in any order."""

WINDOWS_LADDER = ((256, 4, 1280), (256, 4, 2560), (256, 8, 2560))
"""The same of windows."""

MIN_K, ROWS_OF_PROCESSOR = 256, 4
"""The least k, and rows for each multiprocessor, for which it is chosen where nothing was measured."""

MOST_BYTES, MOST_K = 1 << 15, 2048
"""Of a row, and of the answer: what a block of 256 threads holds; longer rows are read faster by other families."""

MOST_LINES = 4
"""Of a thread that has registers for extremes, between which most of a row is counted as numbers."""

LANES_BYTES = 4 * 32
"""Of a counter for each lane, in shared memory, where they are."""

MOST_BUCKETS, ANY_BUCKETS = 2048, 512
"""In order, and in any order, where only the bucket of the k-th matters."""


@dataclass(frozen=True)
class BlockBucketsConfig:
    """How a block holds a row. Raises ValueError for what no kernel has."""

    threads: int
    """Threads of a block."""
    lines: int
    """Lines of 16 bytes of a thread."""
    capacity: int
    """Entries that are put in order, a quarter more than k or more."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)

    @property
    def resident(self) -> int:
        """Blocks of a processor that registers must suffice for: most lines need as many as 1,024 threads have."""
        return max(1, (1024 if self.lines == LINES[-1] else 1280) // self.threads)

    @property
    def resident_of_windows(self) -> int:
        """The same of kernels of windows."""
        return max(1, 1024 // self.threads)

    @property
    def room(self) -> int:
        """Bytes of the longest row."""
        return self.threads * self.lines * 16


_config = lru_cache(1 << 10)(BlockBucketsConfig)  # a call where nothing was tuned asks for several


class BlockBuckets(LinesStrategy):
    """Exact, and the same on every run: of equal elements, those of the lowest columns."""

    name = "block_buckets"
    config_type = BlockBucketsConfig
    preference: ClassVar[int] = 28
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
        """Needs registers for a row, and shared memory for its k best and a quarter more."""
        reasons = []
        if problem.cols * problem.itemsize > MOST_BYTES:
            reasons.append(f"rows of {problem.cols} have more than {MOST_BYTES} bytes")
        if problem.k > MOST_K:
            reasons.append(f"k={problem.k} is more than {MOST_K}")
        if not reasons and not self.shortlist(problem, device):
            reasons.append(f"no block has shared memory for the best {problem.k}")
        return reasons

    def valid(self, config: BlockBucketsConfig, problem: Problem, device: Device) -> bool:
        """Not by more lines a thread than `most_lines` tells."""
        return config.lines <= self.most_lines(problem, device) and super().valid(config, problem, device)

    def ladder(self, problem: Problem, device: Device) -> Sequence[BlockBucketsConfig]:
        """Without those of too many lines."""
        rungs, most = super().ladder(problem, device), self.most_lines(problem, device)
        return rungs if most == LINES[-1] else [one for one in rungs if one.lines <= most]

    def most_lines(self, problem: Problem, device: Device) -> int:
        """Of a thread: for most of a row as numbers, in order, those that it has registers for."""
        most = 2 * problem.k > problem.cols and _by_numbers(problem.itemsize, problem.answer == WINDOWS)
        return MOST_LINES if most and _always_in_order(problem, device) else LINES[-1]

    def shortlist(self, problem: Problem, device: Device) -> Sequence[BlockBucketsConfig]:
        """The fewest lines for each number of threads."""
        return _shortlist(problem, device)

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Blocks that are warps enough to hide what each waits for."""
        least = _least(problem.k)
        capacities = [size for size in CAPACITIES if least <= size <= 2 * least]
        return {"threads": (128, 256, 512, 1024), "lines": LINES, "capacity": capacities}

    def heuristic(self, problem: Problem, device: Device) -> BlockBucketsConfig | None:
        """Many rows of which many are wanted, by small blocks; other families' else."""
        many = problem.rows >= ROWS_OF_PROCESSOR * device.processors and problem.k >= MIN_K
        return next(iter(self.shortlist(problem, device)), None) if many else None

    nearest_by = "threads"

    def usual(self, problem: Problem, device: Device) -> BlockBucketsConfig | None:
        """The smallest that does."""
        return next(iter(self.shortlist(problem, device)), None)

    def kernels(self, config: BlockBucketsConfig, kind: str, windows: bool) -> Iterator[CudaSource]:
        """In order and in any order; one of windows."""
        if windows:
            yield _source(config, kind, windows=True)
        else:
            yield from (_source(config, kind, ordered=ordered) for ordered in (True, False))

    def terms(self, config: BlockBucketsConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.split`."""
        ordered = self.puts_in_order(config, problem, device)
        windows = problem.answer == WINDOWS
        own = shared_bytes(config, problem.itemsize, ordered=ordered, windows=windows)
        room = config.capacity if ordered and _lists(config, problem) else 0
        return split.buckets(config, _buckets(config, ordered), own, room, ordered, problem, device)

    def fits(self, config: BlockBucketsConfig, itemsize: int, device: Device) -> bool:
        """See `LinesStrategy`."""
        return _fits(config, itemsize, device)

    def source(self, config: BlockBucketsConfig, kind: str, *, windows: bool, ordered: bool) -> CudaSource:
        """Two kernels of plain top-k."""
        return _source(config, kind, ordered=ordered, windows=windows)

    def puts_in_order(self, config: BlockBucketsConfig, problem: Problem, device: Device) -> bool:
        """Where numbers are listed that takes less time than to do without, too."""
        if _always_in_order(problem, device):
            return True
        return _by_numbers(problem.itemsize, windows=False) and _lists(config, problem)


def _always_in_order(problem: Problem, device: Device) -> bool:
    """By whatever configuration: for few of few rows order takes less time than to do without."""
    few = problem.rows <= device.processors and 16 * problem.k <= problem.cols
    return problem.sorted or problem.answer == WINDOWS or few


def _lists(config: BlockBucketsConfig, problem: Problem) -> bool:
    """Whether a kernel in order lists what reaches a cut."""
    windows = problem.answer == WINDOWS
    most = _most_listed(config.capacity, config.threads, config.lines, problem.itemsize, windows)
    return problem.k <= most and 2 * problem.k <= problem.cols


@lru_cache(1 << 10)  # one kernel serves many shapes
def _source(config: BlockBucketsConfig, kind: str, *, ordered: bool = True, windows: bool = False) -> CudaSource:
    element_bytes = DTYPE_BYTES[kind]
    most = _most_listed(config.capacity, config.threads, config.lines, element_bytes, windows)
    constants = {
        "ELEMENT_BYTES": element_bytes,
        "FLOAT": True,
        "BLOCKS": 1,
        **({} if windows else {"SORTED": ordered}),
        "THREADS": config.threads,
        "LINES": config.lines,
        "CAPACITY": config.capacity,
        "INTERVALS": _buckets(config, ordered),
        "ITEMS": 1,
        "RESIDENT": config.resident_of_windows if windows else config.resident,
        "MOST_LISTED": most if ordered else 0,
    }
    if _by_numbers(element_bytes, windows):
        constants["NUMBERS"] = True
    form = "_windows" if windows else "" if ordered else "_any"
    return CudaSource(
        file=f"autotopk.strategies.block_buckets/{'selector' if windows else 'buckets'}.cu",
        constants=tuple(constants.items()),
        parameters=parameters(windows),
        threads=config.threads,
        shared_bytes=shared_bytes(config, element_bytes, ordered=ordered, windows=windows),
        symbol=f"autotopk_block_buckets{form}_{kind}",
        code_dependencies=("autotopk.strategies._lines", "autotopk.strategies.split_radix"),
    )


@lru_cache(64)  # whoever asks about a problem does so several times
def _shortlist(problem: Problem, device: Device) -> tuple[BlockBucketsConfig, ...]:
    found: list[BlockBucketsConfig] = []
    if problem.k <= MOST_K:
        everything = -(-problem.cols * problem.itemsize // 16)
        for threads in (256, 512, 1024):
            lines = power_of_two(-(-everything // threads))
            if lines <= LINES[-1]:
                found.append(_config(threads, lines, _capacity(threads, lines, problem)))
    return tuple([config for config in found if _fits(config, problem.itemsize, device)])


@lru_cache(1 << 12)
def _fits(config: BlockBucketsConfig, itemsize: int, device: Device) -> bool:
    """Whether a device has shared memory for its entries."""
    own = shared_bytes(config, itemsize, ordered=True, windows=False) + STATIC_BYTES + OWN_BYTES + config.threads * 8
    return own <= device.shared_bytes


def _capacity(threads: int, lines: int, problem: Problem) -> int:
    """Entries enough to list what reaches a guessed cut, where that is done; else the fewest."""
    for size, most in _listing(threads, lines, problem.itemsize, problem.answer == WINDOWS):
        if problem.k <= most:
            return size
    return _least(problem.k)


@lru_cache(1 << 10)
def _listing(threads: int, lines: int, itemsize: int, windows: bool) -> Sequence[tuple[int, int]]:
    """(capacity, the largest k that it lists), of those where that is any."""
    return [(size, most) for size in CAPACITIES if (most := _most_listed(size, threads, lines, itemsize, windows))]


@lru_cache(1 << 10)  # asked for wherever times are predicted
def _most_listed(capacity: int, threads: int, lines: int, itemsize: int, windows: bool) -> int:
    """The largest k for which what reaches a cut is listed, or 0: lists are an eighth of the longest row at most.

    Of nearly every row so many reach a guessed cut, or fewer: k, and ten deviations of how many of these are among what
    is looked at, of a row as long as there is room for. Numbers are counted as fast where k is 1/40 of that.
    """
    own = lines * VECTOR_BYTES // itemsize
    most, cols = 0, own * threads
    if 8 * capacity > cols:
        return 0
    for group in (1 << bits for bits in range(0, own.bit_length(), 2)):
        others = own / group  # of which one is looked at
        most = max(most, min(int((sqrt(25 * others + capacity - 4) - 5 * sqrt(others)) ** 2), cols // group))
    return min(most, cols // 40) if _by_numbers(itemsize, windows) else most


def _by_numbers(itemsize: int, windows: bool) -> bool:
    """Whether elements are looked at as numbers."""
    return itemsize == 4 and not windows


def _least(k: int) -> int:
    """The smallest capacity that is a quarter more than k, or more."""
    return max(5 * power_of_two(k) // 4, CAPACITIES[0])


def _buckets(config: BlockBucketsConfig, ordered: bool) -> int:
    return min(4 * config.capacity // 5, MOST_BUCKETS) if ordered else ANY_BUCKETS


def shared_bytes(config: BlockBucketsConfig, itemsize: int, *, ordered: bool, windows: bool) -> int:
    """Of the entries, and the counts of buckets and of lanes."""
    lanes = LANES_BYTES if _by_numbers(itemsize, windows) else 0
    return config.capacity * 2 * itemsize + 4 * _buckets(config, ordered) + 16 + lanes


strategy = BlockBuckets()
