"""Long rows, each split over as many blocks as the device has room for: one read, and the last to come finishes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from math import log2
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.kernel import ParameterKind, kernel_dtype
from autotopk.problem import ANSWERS, DTYPE_BYTES, WINDOWS, Problem, power_of_two
from autotopk.program import MAX_SCRATCH_BYTES, Extent, KernelProgram, Launch, Scratch
from autotopk.strategies._costs import split
from autotopk.strategies._costs.sampling import overflowing
from autotopk.strategies._lines import DTYPES, OWN_BYTES, parameters
from autotopk.strategy import Features, Strategy, check_knobs

CAPACITIES = [1 << bits for bits in range(6, 16)]
MAX_BLOCKS = 1024
KNOBS: dict[str, Sequence[Knob]] = {
    "threads": (32, 64, 128, 256, 512, 1024),
    "loads": (1, 2, 4, 8),
    "capacity": CAPACITIES,
    "blocks": range(1, MAX_BLOCKS + 1),
}
"""What kernels can be made for."""

_FEW = ((512, 2048), (1024, 4096), (1024, 8192), (1024, 16384))
_MANY = ((512, 4096), *_FEW)
LADDER = {
    kind: _MANY if kind in ("float32", "float16") else _FEW
    for kind in ("float32", "float16", "float64", "int64", "int32", "int16", "int8")
}
"""(threads, capacity) of the rungs of each kind of elements; all have loads=4, and any `blocks`."""

WINDOWS_LADDER = ((512, 4096), (1024, 16384))
"""The same of windows, for floats of 32 and 16 bits."""

MOST_OVERFLOWING = 0.05
"""Of all calls, of lists that are chosen where nothing was measured: they are made shorter while the part is read."""

HELD = 4
"""Lines of 16 bytes of a thread, of windows that a block's registers hold."""

MAX_COLS = (1 << 31) - (1 << 20)
"""Columns are counted in 32 bits, a little past the end of the row."""

STATIC_BYTES = 5 << 10
"""Shared memory of a block beside its list, or a little more."""

MOST_INTERVALS = 4096
"""Into which lists are ordered; short lists have half as many as they have entries."""

MOST_ITEMS = 8
"""Entries of its list that a thread has registers for."""

SHARE = 512
"""As in found.cuh: places in scratch memory for each part of a row, or as many times as make k."""

MIN_PART = 32 << 10
"""Bytes of a row that are worth a block of their own."""

MIN_COLS = 1 << 16
"""Shorter rows fit the registers of two blocks, which meet sooner in a cluster."""

MIN_BYTES = 16 << 20
"""Smaller inputs are read before the blocks of the whole device have started and handed on what they found."""

MIN_BYTES_OF_FEW, FEW = 4 << 20, 256  # a cluster and all blocks: 1x1,048,576, k = 100: 21.5 and 17.3 us
"""The same where no more than so many are chosen."""


@dataclass(frozen=True)
class SplitRadixConfig:
    """How a row is split, and how a block reads its part. Raises ValueError for what no kernel has."""

    blocks: int
    """Parts of a row, each a block's."""
    threads: int
    """Threads of a block."""
    loads: int
    """Loads of 16 bytes that a thread has in flight."""
    capacity: int
    """Entries of a block's list, at least twice k."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)
        if self.threads == 1024 and self.loads == 8:
            raise ValueError("1024 threads have no registers for loads=8")


class SplitRadix(Strategy):
    """Exact, and the same on every run: of equal elements, those of the lowest columns."""

    name = "split_radix"
    config_type = SplitRadixConfig
    preference: ClassVar[int] = 25
    features = Features(
        answers=frozenset({*ANSWERS, WINDOWS}),
        device_types=frozenset({"cuda"}),
        capability=(8, 0),
        stable=frozenset(DTYPE_BYTES),
    )

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs shared memory for twice k."""
        reasons = []
        windows = problem.answer == WINDOWS
        if problem.cols < MIN_COLS and not windows:
            reasons.append(f"rows of {problem.cols} are shorter than {MIN_COLS}")
        if windows and problem.dtype not in DTYPES:
            reasons.append(f"windows of {problem.dtype}; only of {', '.join(sorted(DTYPES))}")
        if problem.cols > MAX_COLS:
            reasons.append(f"rows of {problem.cols} are longer than {MAX_COLS}")
        if problem.rows >= 1 << 31:
            reasons.append(f"{problem.rows} rows are more than 32 bits count")
        if problem.k > (most := most_capacity(problem, device) // 2):
            reasons.append(f"k={problem.k} is above {most}")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def valid(self, config: SplitRadixConfig, problem: Problem, device: Device) -> bool:
        """Whatever fits."""
        return (
            2 * problem.k <= config.capacity <= most_capacity(problem, device)
            and problem.k <= MOST_ITEMS * config.threads
            and scratch_bytes(config, problem) <= MAX_SCRATCH_BYTES
            and problem.rows * config.blocks < 1 << 31
            and (problem.answer != WINDOWS or config.blocks == 1)
        )

    def shortlist(self, problem: Problem, device: Device) -> Sequence[SplitRadixConfig]:
        """Blocks for one or two waves over the device, in shapes that fill a processor; one point of small inputs."""
        if not _suits(problem):
            return [self._usual(problem, device)]
        splits = _splits(problem, device)[:2]
        least = max(_roomy(problem, splits[0]), power_of_two(4 * problem.k), 512)
        found = [
            _rung(blocks, threads, capacity)
            for blocks in splits
            for threads in (512, 1024)
            for capacity in (least, max(2 * least, 2048))
            if capacity <= CAPACITIES[-1]
        ]
        return [config for config in found if self.valid(config, problem, device)] or [self._usual(problem, device)]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Whole waves of blocks, lists from twice k on; of small inputs a few."""
        splits, suits = _splits(problem, device), _suits(problem)
        least = max(power_of_two(2 * problem.k), 256)
        most = max((16 if suits else 4) * least, 2 * _roomy(problem, splits[0]))
        return {
            "blocks": splits[: None if suits else 2],
            "threads": (256, 512, 1024) if suits else (256, 1024),
            "loads": KNOBS["loads"] if suits else (4,),
            "capacity": [size for size in CAPACITIES if least <= size <= most],
        }

    def heuristic(self, problem: Problem, device: Device) -> SplitRadixConfig | None:
        """Large inputs: 432x65536, k = 2, takes 43 us, by a block 66; 530x66576, k = 3,419, 117, by a cluster 1,055."""
        return self._usual(problem, device) if _suits(problem) else None

    def ladder(self, problem: Problem, device: Device) -> Sequence[SplitRadixConfig]:
        """Lists that hardly overflow, the nearest first; 512 threads of a row with a processor to itself, else 1024."""
        return _ladder(problem, device)

    def rungs(self, arch: int) -> Iterator[CudaSource]:
        """The same of every architecture: GPUs of one differ in shared memory from those of another that it serves."""
        for kind, shapes in LADDER.items():
            yield from (_split(_rung(1, *shape), kind) for shape in shapes)
        for kind in sorted({kernel_dtype(dtype) for dtype in DTYPES}):
            yield from (_split(_rung(1, *shape), kind, windows=True) for shape in WINDOWS_LADDER)

    def _usual(self, problem: Problem, device: Device) -> SplitRadixConfig:
        return self.ladder(problem, device)[0]

    def terms(self, config: SplitRadixConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.split`."""
        return split.lists(config, problem, device)

    def program(self, config: SplitRadixConfig, problem: Problem, device: Device) -> KernelProgram:
        """Scratch memory holds what the parts of a row found, and counters of entries and of arrivals.

        A row that is one block's from beginning to end needs none of it.
        """
        if problem.answer == WINDOWS:
            return KernelProgram.of(
                _split(config, kernel_dtype(problem.dtype), windows=True), Extent(1, (("rows", 1),))
            )
        return _program(config, kernel_dtype(problem.dtype), _key_bytes(problem))


@lru_cache(1 << 12)  # one serves many shapes
def _program(config: SplitRadixConfig, kind: str, key_bytes: int) -> KernelProgram:
    places = _places(config.blocks)
    state = Scratch("shared_state", Extent(8, (("rows", 1),)), zeroed=True)
    return KernelProgram(
        launches=(Launch(_split(config, kind), (Extent(config.blocks, (("rows", 1),)),)),),
        scratch=(
            Scratch("found_keys", Extent(places.times * key_bytes, places.per)),
            Scratch("found_columns", Extent(places.times * 4, places.per)),
            state if config.blocks > 1 else Scratch("shared_state", Extent(0)),
        ),
    )


@lru_cache(64)  # whoever asks about a problem does so several times
def _ladder(problem: Problem, device: Device) -> tuple[SplitRadixConfig, ...]:
    wanted = log2(power_of_two(max(4 * problem.k, min(16 * problem.k, 4096))))  # long lists are sampled better
    threads = 512 if problem.rows >= device.processors else 1024
    splits = _splits(problem, device)
    usual, most = splits[0], most_capacity(problem, device)
    fitting = [
        one
        for one in (WINDOWS_LADDER if problem.answer == WINDOWS else LADDER[kernel_dtype(problem.dtype)])
        if 2 * problem.k <= one[1] <= most and problem.k <= MOST_ITEMS * one[0]
    ]
    shapes = sorted(
        fitting,
        key=lambda one: (
            (0, one[0] != threads, abs(log2(one[1]) - wanted), -one[1])
            if overflowing(one[1], usual, problem) <= MOST_OVERFLOWING
            else (1, -one[1])
        ),
    )
    fits = [blocks for blocks in splits if blocks == 1 or strategy.valid(_rung(blocks, *shapes[0]), problem, device)]
    places = sorted(product(range(len(splits)), range(len(shapes))), key=sum)
    rungs = [_rung(splits[split], *shapes[shape]) for split, shape in places if splits[split] in fits]
    alone = [] if 1 in splits else [_rung(1, *shape) for shape in shapes]  # fits whatever scratch the others take
    return (*rungs, *alone)


def _roomy(problem: Problem, blocks: int) -> int:
    """The shortest list that hardly overflows."""
    enough = (
        size for size in CAPACITIES if size >= 2 * problem.k and overflowing(size, blocks, problem) <= MOST_OVERFLOWING
    )
    return next(enough, CAPACITIES[-1])


def scratch_bytes(config: SplitRadixConfig, problem: Problem) -> int:
    """Bytes of what all parts hand on, and of the counters."""
    if config.blocks == 1:
        return 0
    places = _places(config.blocks).of({"rows": problem.rows, "k": problem.k})
    return places * (_key_bytes(problem) + 4) + 8 * problem.rows


@lru_cache(1 << 12)
def _places(blocks: int) -> Extent:
    """For what so many parts of a row find."""
    return Extent(SHARE * blocks, (("rows", 1), ("k", SHARE))) if blocks > 1 else Extent(0)


def most_capacity(problem: Problem, device: Device) -> int:
    """Entries of the longest list that shared memory has room for."""
    return _most_capacity(_key_bytes(problem), problem.answer == WINDOWS, device.shared_bytes)


@cache
def _most_capacity(key_bytes: int, windows: bool, shared: int) -> int:
    room, sizes = shared - STATIC_BYTES, CAPACITIES
    if windows:
        room, sizes = room - OWN_BYTES - 8 * 1024, [capacity for _, capacity in WINDOWS_LADDER]
    return max((size for size in sizes if list_bytes(size, key_bytes, 1024, 4) <= room), default=0)


def list_bytes(capacity: int, key_bytes: int, threads: int, loads: int) -> int:
    """Shared memory of a list and its intervals, or of the queues of warps that are there before (`filter.cuh`)."""
    return capacity * (key_bytes + 4) + 4 * max(min(capacity // 2, MOST_INTERVALS), (loads + 1) * threads)


def _suits(problem: Problem) -> bool:
    """Whether the input is so large that all of the device should read it."""
    least = MIN_BYTES_OF_FEW if problem.k <= FEW else MIN_BYTES
    return problem.rows * problem.cols * problem.itemsize >= least


def _key_bytes(problem: Problem) -> int:
    return 8 if problem.itemsize == 8 else 4


def most_blocks(problem: Problem, part: int) -> int:
    """Of a row, each with so many bytes of it or more."""
    return max(1, problem.cols * problem.itemsize // part)


def _splits(problem: Problem, device: Device) -> list[int]:
    """Parts of a row so that all blocks together are one, two or four to a processor, the first the usual one."""
    if problem.answer == WINDOWS:
        return [1]
    longest = most_blocks(problem, MIN_PART)
    counts = [max(1, waves * device.processors // problem.rows) for waves in (1, 2, 4)]
    return list(dict.fromkeys(min(count, longest, MAX_BLOCKS) for count in counts))


@lru_cache(1 << 12)
def _rung(blocks: int, threads: int, capacity: int) -> SplitRadixConfig:
    """Also of the shortlist: a call where nothing was tuned asks for several."""
    return SplitRadixConfig(blocks, threads, 4, capacity)


@lru_cache(1 << 10)  # one kernel serves many shapes
def _split(config: SplitRadixConfig, kind: str, *, windows: bool = False) -> CudaSource:
    pointers = ("x", "found_keys", "found_columns", "shared_state", "values", "indices")
    kinds: dict[str, ParameterKind] = {
        **dict.fromkeys(pointers, "pointer"),
        "row_stride": "int64",
        **dict.fromkeys(("rows", "cols", "k", "smallest", "signed", "infinity"), "int32"),
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
        "RESIDENT": max(1, (512 if config.loads == 8 else 1024) // config.threads),
        **({"BLOCKS": 1, "LINES": HELD, "HELD": HELD} if windows else {}),
    }
    return CudaSource(
        file=f"autotopk.strategies.split_radix/{'selector' if windows else 'split'}.cu",
        constants=tuple(constants.items()),
        parameters=parameters(windows) if windows else tuple(kinds.items()),
        threads=config.threads,
        shared_bytes=list_bytes(capacity, max(element_bytes, 4), config.threads, config.loads) + 16 * windows,
        symbol=f"autotopk_split_radix_{'windows_' if windows else ''}{kind}",
        code_dependencies=("autotopk.strategies._lines", "autotopk.strategies.block_buckets") if windows else (),
    )


strategy = SplitRadix()
