"""What families share that have a row as lines of 16 bytes; device code: reading, guessing a cut, ties, windows."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaSource
from autotopk.device import Device, device_of_arch
from autotopk.kernel import ParameterKind, kernel_dtype
from autotopk.problem import DTYPE_BYTES, WINDOWS, Problem, power_below
from autotopk.program import Extent, KernelProgram
from autotopk.strategies._costs import NEIGHBOURS
from autotopk.strategy import Strategy

DTYPES = frozenset({"float32", "float16", "bfloat16"})
"""Which the ladders have kernels for."""

OWN_BYTES = 1 << 10
"""Shared memory of a block beside what every list has, and a key of each thread: what blocks exchange."""

_PLAIN: dict[str, ParameterKind] = {
    **dict.fromkeys(("x", "values", "indices"), "pointer"),
    "row_stride": "int64",
    **dict.fromkeys(("cols", "k", "smallest", "signed", "infinity"), "int32"),
}
_WINDOWS: dict[str, ParameterKind] = {
    **dict.fromkeys(("x", "ends", "starts", "selected", "ks", "offsets"), "pointer"),
    "row_stride": "int64",
    **dict.fromkeys(("cols", "k", "height", "width", "flags", "ends_group", "compress_ratio", "starts_group"), "int32"),
    **dict.fromkeys(("smallest", "signed", "infinity"), "int32"),
    "indices": "pointer",
    "indices_stride": "int64",
    **dict.fromkeys(("values", "positions", "page_table", "row_to_batch", "page_starts"), "pointer"),
    **dict.fromkeys(("batch_group", "pages", "batches", "page_bits"), "int32"),
    **dict.fromkeys(("table_stride", "fill", "values_stride", "positions_stride"), "int64"),
}
"""In the order of the signature of selector.cuh."""


def parameters(windows: bool) -> tuple[tuple[str, ParameterKind], ...]:
    """Of a kernel of a family, in the order of its signature."""
    return tuple((_WINDOWS if windows else _PLAIN).items())


@dataclass(frozen=True)
class ClusterConfig:
    """How the blocks of a cluster share a row."""

    blocks: int
    """Blocks of a cluster."""
    threads: int
    """Threads of a block."""
    lines: int
    """Lines of 16 bytes of a thread."""
    capacity: int
    """Entries of the list, more than k; of the lists of all blocks where each has its own."""

    @property
    def room(self) -> int:
        """Bytes of the longest row."""
        return self.blocks * self.threads * self.lines * 16


def most_at_once(problem: Problem, device: Device) -> int:
    """Blocks of the largest clusters of which all run at the same time: 16 free processors are not always neighbours.

    0 where not even single blocks do.
    """
    if 16 * problem.rows <= device.processors * NEIGHBOURS:
        return 16
    room = device.processors // problem.rows
    return min(power_below(room), 8) if room else 0


Place = tuple[int, int, int]
"""Of a configuration among those of its family: doublings of one knob, of room and of capacity."""


@lru_cache(1 << 12)
def place_of(config: Any, first: str) -> Place:
    """By a knob that is a power of two, as room is; capacities differ by powers of two."""
    first_of_all: int = getattr(config, first)
    return first_of_all.bit_length(), config.room.bit_length(), config.capacity.bit_length()


@lru_cache(1 << 10)
def _nearest(
    strategy: "LinesStrategy", windows: bool, dtype: str, device: Device, usual: Place
) -> tuple[tuple[int, int, Any], ...]:
    """(bytes of the longest row, largest k, rung) of what a device has room for at all, the nearest first."""
    (first, room, capacity), itemsize = usual, DTYPE_BYTES[dtype]

    def away(rung: Any) -> int:
        its_first, its_room, its_capacity = place_of(rung, strategy.nearest_by)
        return 100 * abs(its_first - first) + abs(its_room - room) + abs(its_capacity - capacity)

    rungs = sorted((rung for rung in strategy.steps(windows) if strategy.fits(rung, itemsize, device)), key=away)
    return tuple((rung.room, 4 * rung.capacity // 5, rung) for rung in rungs)


@lru_cache(1 << 12)  # one serves many shapes
def _program(strategy: "LinesStrategy", config: Any, kind: str, windows: bool, ordered: bool) -> KernelProgram:
    source = strategy.source(config, kind, windows=windows, ordered=ordered)
    return KernelProgram.of(source, Extent(getattr(config, "blocks", 1), (("rows", 1),)))


class LinesStrategy(Strategy):
    """A family of kernels in CUDA C++, with rungs of plain top-k and of windows; a block or a cluster has a row."""

    config: ClassVar[Callable[..., Any]]
    """`config_type`, of which those that were met are kept: a call where nothing was tuned asks for dozens."""

    plain_rungs: ClassVar[Sequence[tuple[int, ...]]]
    """The knobs of each."""
    window_rungs: ClassVar[Sequence[tuple[int, ...]]] = ()

    nearest_by: ClassVar[str] = "blocks"
    """The knob that tells rungs apart before all others."""

    @abstractmethod
    def usual(self, problem: Problem, device: Device) -> Any:
        """What rungs are to be near to; None where nothing serves."""

    @abstractmethod
    def fits(self, config: Any, itemsize: int, device: Device) -> bool:
        """Whether a device has threads and shared memory for it, and clusters."""

    @abstractmethod
    def source(self, config: Any, kind: str, *, windows: bool, ordered: bool) -> CudaSource:
        """The kernel for a kind of elements, of windows or whole rows, in order or in any."""

    def steps(self, windows: bool) -> list[Any]:
        """The configurations of the rungs."""
        return [self.config(*rung) for rung in (self.window_rungs if windows else self.plain_rungs)]

    def kernels(self, config: Any, kind: str, windows: bool) -> Iterator[CudaSource]:
        """Of a rung, for a kind of elements."""
        yield self.source(config, kind, windows=windows, ordered=True)

    def puts_in_order(self, config: Any, problem: Problem, device: Device) -> bool:
        """Whether the kernel that answers a problem is one that does."""
        return True

    def valid(self, config: Any, problem: Problem, device: Device) -> bool:
        """Whatever has room for the row, and lists more than k."""
        return (
            problem.cols * problem.itemsize <= config.room
            and 5 * problem.k <= 4 * config.capacity
            and self.fits(config, problem.itemsize, device)
        )

    def program(self, config: Any, problem: Problem, device: Device) -> KernelProgram:
        """One block or cluster a row."""
        kind, windows = kernel_dtype(problem.dtype), problem.answer == WINDOWS
        return _program(self, config, kind, windows, self.puts_in_order(config, problem, device))

    def reasons_unbuildable(self) -> list[str]:
        """What nvcc lacks here."""
        return nvcc.reasons_missing()

    def ladder(self, problem: Problem, device: Device) -> Sequence[Any]:
        """The nearest by one knob first, then by room and lists."""
        usual = self.usual(problem, device)
        if usual is None:
            return []
        place = place_of(usual, self.nearest_by)
        bytes_, k, windows = problem.cols * problem.itemsize, problem.k, problem.answer == WINDOWS
        nearest = _nearest(self, windows, problem.dtype, device, place)
        return [rung for longest, most, rung in nearest if bytes_ <= longest and k <= most]

    def rungs(self, arch: int) -> Iterator[CudaSource]:
        """All that the architecture has room for."""
        device = device_of_arch(arch)
        for kind in ("float32", "float16"):
            problem = Problem.contiguous(1, 16, 1, kind)
            for windows in (False, True):
                for config in self.steps(windows):
                    if self.valid(config, problem, device):
                        yield from self.kernels(config, kind, windows)
