"""Any k, up to whole rows in order: radix selection and radix sorting, a row by many blocks or by one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from autotopk.candidate import Knob
from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device
from autotopk.kernel import ParameterKind, kernel_dtype
from autotopk.problem import ANSWERS, DTYPE_BYTES, KTH, Problem
from autotopk.program import Extent, KernelProgram, Launch, Scratch, most_scratch
from autotopk.strategies._costs import split
from autotopk.strategies.split_radix import MAX_COLS, most_blocks
from autotopk.strategy import Features, Strategy, check_knobs

THREADS = (64, 128, 256, 512)
MAX_BLOCKS = 4096
KNOBS: dict[str, Sequence[Knob]] = {
    "threads": THREADS,
    "blocks": range(1, MAX_BLOCKS + 1),
    "split": (False, True),
}
"""What kernels can be made for."""

LADDER_THREADS = 512
LADDER = ("float32", "float16", "float64", "int64", "int32", "int16", "int8")
"""Kinds of elements, a kernel each; the number of blocks is free."""

DIGIT_BITS, BINS = 11, 1 << 11
"""Of a digit of selection."""

PROGRAMMATIC_ARCH = 90
"""From it on the next launch of a program is made ready before the one at hand has ended."""

SORT_BINS, GROUP_PARTS = 256, 16
BOUND_BYTES, STATE_BYTES, TALLY_BYTES = 24, 16, 8
"""Of the records in scratch memory."""

MIN_K = 2048
"""Smaller ones are other families' work."""

MIN_PART, LEAST_PART = 16 << 10, 4 << 10
"""Bytes of a row that are worth a block of their own; and that may be, where most of the work is sorting."""

SORT_PART = 2048
"""Entries that are worth a block of their own."""


@dataclass(frozen=True)
class WideRadixConfig:
    """How rows are shared out. Raises ValueError for what no kernel has."""

    threads: int
    """Threads of a block."""
    blocks: int
    """Of a row where rows are split; else of the device, each with rows of its own, one after the other."""
    split: bool
    """Whether many blocks share a row, in a launch for every step."""

    def __post_init__(self) -> None:
        check_knobs(self, KNOBS)


class WideRadix(Strategy):
    """Exact, and the same on every run: of equal values, those of the lowest columns, and these first."""

    name = "wide_radix"
    config_type = WideRadixConfig
    preference: ClassVar[int] = 10
    features = Features(answers=frozenset((*ANSWERS, KTH)), device_types=frozenset({"cuda"}), capability=(8, 0))

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Needs scratch memory for k entries."""
        reasons = []
        if problem.cols > MAX_COLS:
            reasons.append(f"rows of {problem.cols} are longer than {MAX_COLS}")
        if problem.rows >= 1 << 31:
            reasons.append(f"{problem.rows} rows are more than 32 bits count")
        if not reasons and not self.ladder(problem, device):
            needed = scratch_bytes(_whole(1), problem)
            reasons.append(f"k={problem.k} needs {needed} bytes of scratch, more than {most_scratch(problem)}")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def valid(self, config: WideRadixConfig, problem: Problem, device: Device) -> bool:
        """Whatever scratch memory has room for."""
        return scratch_bytes(config, problem) <= most_scratch(problem) and problem.rows * config.blocks < 1 << 31

    def shortlist(self, problem: Problem, device: Device) -> Sequence[WideRadixConfig]:
        """The ladder; of small k, its first rung."""
        return self.ladder(problem, device)[: None if problem.k >= MIN_K else 1]

    def knobs(self, problem: Problem, device: Device) -> Mapping[str, Sequence[Knob]]:
        """Blocks of the ladder, of fewer and of more threads; the finest parts of short rows are the shortlist's."""
        most = most_blocks(problem, MIN_PART)
        blocks = [one.blocks for one in self.ladder(problem, device) if not one.split or one.blocks <= most]
        return {"threads": (256, 512), "blocks": list(dict.fromkeys(blocks)), "split": (False, True)}

    def heuristic(self, problem: Problem, device: Device) -> WideRadixConfig | None:
        """Where no other family has room for k, and scratch memory does not leave most of the device idle."""
        usual = self.ladder(problem, device)[0]
        short = problem.cols * problem.itemsize <= MIN_PART
        busy = usual.split or 2 * usual.blocks >= (min(problem.rows, device.processors) if short else device.processors)
        return usual if problem.k >= MIN_K and busy else None

    def ladder(self, problem: Problem, device: Device) -> Sequence[WideRadixConfig]:
        """Rows split, first, where there are fewer than processors; blocks for a few waves, as scratch allows."""
        return _ladder(problem, device)

    def rungs(self, arch: int) -> Iterator[CudaSource]:
        """One for each kind of elements."""
        return (_source(kind, LADDER_THREADS, arch) for kind in LADDER)

    def terms(self, config: WideRadixConfig, problem: Problem, device: Device) -> tuple[float, ...]:
        """See `_costs.split`."""
        sharing = _sort_parts(config, problem) if config.split else 0
        return split.steps(config.blocks, config.threads, sharing, _steps(problem), problem, device)

    def program(self, config: WideRadixConfig, problem: Problem, device: Device) -> KernelProgram:
        """A launch for every step of rows that are split, or one for all rows."""
        kth = problem.answer == KTH
        source = _source(kernel_dtype(problem.dtype), config.threads, device.arch)
        if not config.split:
            entries = Extent(config.blocks * _entry_bytes(problem), (("k", 1),))
            names = ("state", "bounds", "counts", "nearest", "tallies", "tables", "sums")
            none = tuple(Scratch(name, Extent(0)) for name in names)
            return KernelProgram((Launch(source, (Extent(config.blocks),)),), (Scratch("entries", entries), *none))
        selecting, sorting = _steps(problem)
        rows, parts = (("rows", 1),), _sort_parts(config, problem)
        reading, ordering = Launch(source, (Extent(config.blocks, rows),)), Launch(source, (Extent(parts, rows),))
        return KernelProgram(
            launches=(reading,) * (selecting + (not kth)) + (ordering,) * sorting,
            scratch=(
                Scratch("entries", Extent(_entry_bytes(problem), (("rows", 1), ("k", 1)))),
                Scratch("state", Extent(STATE_BYTES), zeroed=True),
                Scratch("bounds", Extent(BOUND_BYTES, rows), zeroed=True),
                Scratch("counts", Extent(4 * BINS, rows), zeroed=True),
                Scratch("nearest", Extent(4 * BINS if kth else 0, rows), zeroed=True),
                Scratch("tallies", Extent(config.blocks * config.threads // 32 * TALLY_BYTES, rows)),
                Scratch("tables", Extent(parts * 4 * SORT_BINS, rows)),
                Scratch("sums", Extent(_groups(config) * 8 * SORT_BINS, rows)),
            ),
        )


@lru_cache(64)  # whoever asks about a problem does so several times
def _ladder(problem: Problem, device: Device) -> tuple[WideRadixConfig, ...]:
    rows, processors = problem.rows, device.processors
    shares = [max(1, waves * processors // rows) for waves in (2, 1, 4)] if rows < processors else []
    longest, most = (most_blocks(problem, part) for part in (MIN_PART, LEAST_PART))
    parts = [min(share, limit) for limit in (longest, most) for share in shares]
    split = [_split(part) for part in dict.fromkeys(parts)]
    room = most_scratch(problem) // max(1, problem.k * _entry_bytes(problem))
    counts = [max(1, min(rows, waves * processors, room)) for waves in (2, 1)]
    whole = [_whole(blocks) for blocks in dict.fromkeys(counts)]
    order = split + whole if longest > 1 else whole + split
    return tuple([config for config in dict.fromkeys(order) if strategy.valid(config, problem, device)])


def scratch_bytes(config: WideRadixConfig, problem: Problem) -> int:
    """Bytes of entries, and where rows are split, of what their blocks tell one another."""
    if not config.split:
        return config.blocks * problem.k * _entry_bytes(problem)
    tables = (_sort_parts(config, problem) + 2 * _groups(config)) * 4 * SORT_BINS
    own = (
        BOUND_BYTES
        + 4 * BINS * (1 + (problem.answer == KTH))
        + config.blocks * config.threads // 32 * TALLY_BYTES
        + tables
    )
    return STATE_BYTES + problem.rows * (problem.k * _entry_bytes(problem) + own)


def _entry_bytes(problem: Problem) -> int:
    """Of scratch for each of the k: a key and a column, twice where the answer has no room for them; none unsorted."""
    if not problem.sorted or problem.answer == KTH:
        return 0
    return (12 if problem.itemsize == 8 else 8) * (2 if problem.answer == "indices" else 1)


def _steps(problem: Problem) -> tuple[int, int]:
    """Launches before the one that places what is chosen, and after it."""
    digits = -(-8 * problem.itemsize // DIGIT_BITS)
    if problem.answer == KTH:
        return digits, 0
    return digits + 1 if problem.k < problem.cols else 0, 2 * problem.itemsize if problem.sorted else 0


def _sort_parts(config: WideRadixConfig, problem: Problem) -> int:
    return max(1, min(config.blocks, problem.k // SORT_PART))


def _groups(config: WideRadixConfig) -> int:
    return -(-config.blocks // GROUP_PARTS)


@lru_cache(1 << 12)
def _split(blocks: int) -> WideRadixConfig:
    return WideRadixConfig(LADDER_THREADS, min(blocks, MAX_BLOCKS), True)


@lru_cache(1 << 12)
def _whole(blocks: int) -> WideRadixConfig:
    return WideRadixConfig(LADDER_THREADS, min(blocks, MAX_BLOCKS), False)


@lru_cache(1 << 10)  # one kernel serves many shapes
def _source(kind: str, threads: int, arch: int) -> CudaSource:
    shared = ("state", "bounds", "counts", "nearest", "tallies", "tables", "sums")
    pointers = ("x", "entries", *shared, "values", "indices")
    numbers = ("rows", "cols", "k", "smallest", "signed", "infinity", "sorted", "kth")
    kinds: dict[str, ParameterKind] = {
        **dict.fromkeys(pointers, "pointer"),
        "row_stride": "int64",
        **dict.fromkeys(numbers, "int32"),
    }
    constants = {
        "ELEMENT_BYTES": DTYPE_BYTES[kind],
        "FLOAT": kind.startswith("float"),
        "THREADS": threads,
        "RESIDENT": max(1, 1024 // threads),
        "PROGRAMMATIC": arch >= PROGRAMMATIC_ARCH,
    }
    return CudaSource(
        file="autotopk.strategies.wide_radix/wide.cu",
        constants=tuple(constants.items()),
        parameters=tuple(kinds.items()),
        threads=threads,
        symbol=f"autotopk_wide_radix_{kind}",
        programmatic_launch=arch >= PROGRAMMATIC_ARCH,
        code_dependencies=("autotopk.strategies.split_radix",),
    )


strategy = WideRadix()
