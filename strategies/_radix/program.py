"""What the families of radix kernels share on the host: limits, memory, and how a kernel is named."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from autotopk.compilers.tilelang import TileLangSource, reasons_unbuildable
from autotopk.device import Device
from autotopk.errors import UnsupportedProblemError
from autotopk.problem import VECTOR_BYTES, Problem
from autotopk.strategy import KernelProgram, Strategy

THREADS = (32, 64, 128, 256, 512, 1024)
"""Threads of a block that are worth measuring."""

CAPACITIES = (32, 16384)
"""Fewest and most survivors that a kernel sorts."""

MAX_COLS = (1 << 31) - (1 << 20)
"""Columns are counted in 32 bits, past the end of the row by up to four loads of every thread."""

ITEM_REGISTERS = 32
"""32-bit registers of a thread that may hold elements; 1024 threads have 64 each, and the rest of the work takes 32."""

MAX_OWNED = 16
"""Survivors of one thread while they are sorted."""

KNOBS = {
    "blocks": (1, 2, 4, 8, 16),
    "threads": THREADS,
    "items": range(1, ITEM_REGISTERS + 1),
    "radix_bits": (8, 11),
    "capacity": (0, *(1 << bits for bits in range(5, 15))),
    "vector": (1, 2, 4, 8, 16),
}
"""What kernels can be made for."""

FLOAT_INF = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}
"""Bits of infinity."""

MASKED = 8192
"""Elements times rounds that masked_argmax goes through in the least time of radix selection."""


class RadixConfig(Protocol):
    """The knobs that the kernels have; see `Constants`."""

    @property
    def blocks(self) -> int:
        """Blocks that share a row."""

    @property
    def threads(self) -> int:
        """Threads of a block."""

    @property
    def items(self) -> int:
        """Elements of a thread in registers."""

    @property
    def radix_bits(self) -> int:
        """Bits of a digit."""

    @property
    def capacity(self) -> int:
        """Survivors that are sorted; 0 to write them as they are found."""

    @property
    def vector(self) -> int:
        """Most elements of one load; fewer where rows are not aligned."""


class RadixStrategy(Strategy):
    """A family of kernels that narrow a row to its best by radix selection."""

    preference: ClassVar[int] = 15
    indices_alone = True
    code_dependencies = ("autotopk.strategies._radix",)

    @abstractmethod
    def roomiest(self, problem: Problem, device: Device) -> Any:
        """The configuration that leaves most room to sort, without a capacity."""

    @abstractmethod
    def suits(self, problem: Problem, device: Device) -> bool:
        """Whether the family should serve where nothing was measured."""

    @abstractmethod
    def preferred(self, problem: Problem, device: Device) -> Any:
        """The configuration to begin with, without a capacity."""

    def usual(self, problem: Problem, device: Device) -> Any:
        """The configuration to begin with; with the roomiest instead of the preferred where k needs it."""
        for config in (self.preferred(problem, device), self.roomiest(problem, device)):
            if (capacity := usual_capacity(config, problem, device)) is not None:
                return replace(config, capacity=capacity)
        raise UnsupportedProblemError(f"{self.name} cannot serve {problem}")

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        """Rows whose columns 32 bits count, and where they are sorted a k that fits in shared memory."""
        reasons = []
        config = self.roomiest(problem, device)
        if problem.cols > MAX_COLS:
            reasons.append(f"rows of {problem.cols} are longer than {MAX_COLS}")
        if problem.rows * config.blocks >= 1 << 31:
            reasons.append(f"{problem.rows} rows are more than 32 bits count")
        if problem.sorted and problem.k > (most := _most_sorted(config, problem, device)):
            reasons.append(f"k={problem.k} is above {most}")
        return reasons

    def reasons_unbuildable(self) -> list[str]:
        """What TileLang's kernels lack here to be compiled."""
        return reasons_unbuildable()

    def valid(self, config: Any, problem: Problem, device: Device) -> bool:
        """Whatever the kernel can run."""
        return fits(config, problem, device)

    def heuristic(self, problem: Problem, device: Device) -> Any | None:
        """The usual configuration where the family suits, and its kernel is kept already or can be compiled here.

        None for rows so short and k so small that k rounds of masking are done sooner.
        """
        if problem.k * power_of_two(problem.cols) <= MASKED or not self.suits(problem, device):
            return None
        config = self.usual(problem, device)
        available = not self.reasons_unbuildable() or source(config, problem).cache_path(device.arch).exists()
        return config if available else None

    def program(self, config: Any, problem: Problem, device: Device) -> KernelProgram:
        """One block, or one cluster of them, for every row."""
        return KernelProgram(source(config, problem), grid=(problem.rows * config.blocks, 1, 1))


def check(config: RadixConfig) -> None:
    """Raises ValueError for a knob's value that no kernel has."""
    for knob, values in KNOBS.items():
        value = getattr(config, knob)
        if type(value) is not int or value not in values:
            raise ValueError(f"{knob}={value!r} is not one of {', '.join(map(str, values))}")
    if config.items % config.vector:
        raise ValueError(f"items={config.items} is no multiple of vector={config.vector}")


def fits(config: RadixConfig, problem: Problem, device: Device) -> bool:
    """Whether a kernel of the configuration answers the problem within the device's registers and shared memory."""
    return (
        problem.rows * config.blocks < 1 << 31
        and config.blocks <= most_blocks(device)
        and config.items <= most_items(problem)
        and config.vector * problem.itemsize <= VECTOR_BYTES
        and config.radix_bits in radix_widths(problem)
        and config.capacity <= MAX_OWNED * config.threads
        and (config.capacity >= problem.k if config.capacity else not problem.sorted)
        and (config.capacity == 0 or problem.cols <= held(config) or problem.k <= sampled(config))
        and shared_bytes(config, config.capacity, problem) <= device.shared_bytes
    )


def held(config: RadixConfig) -> int:
    """Elements of a row in registers; longer rows are streamed past a sample of that size."""
    return config.blocks * config.threads * config.items


def sampled(config: RadixConfig) -> int:
    """Elements of a longer row that are surely held: one of a thread's loads may lie past the end."""
    return config.blocks * config.threads * (config.items - config.vector)


def most_items(problem: Problem) -> int:
    """Elements that a thread's registers can hold."""
    return ITEM_REGISTERS // registers(problem)


def registers(problem: Problem) -> int:
    """32-bit registers of one element."""
    return 2 if problem.itemsize == 8 else 1


def usual_items(problem: Problem, threads: int) -> int:
    """Elements of a thread to begin with, where so many threads read a row: no more than spill no registers."""
    items = max(problem.vector, power_of_two(-(-problem.cols // threads)))
    spared = most_items(problem) // 2
    return items if items <= spared or (items == 2 * spared and problem.itemsize < 8) else spared


def most_blocks(device: Device) -> int:
    """Blocks of the largest cluster; 16 only where a processor group is known to have as many, 1 before clusters."""
    if device.arch < 90:
        return 1
    return 16 if device.capability[0] in (9, 10) else 8


def radix_widths(problem: Problem) -> tuple[int, ...]:
    """Bits of a digit."""
    return (8, 11) if problem.itemsize > 1 else (8,)


def digit_widths(problem: Problem) -> tuple[int, ...]:
    """Bits of a digit worth measuring: long rows gain by fewer digits, short ones by fewer bins."""
    if problem.itemsize == 1 or problem.cols <= 512:
        return (8,)
    return (8, 11) if problem.cols < 4096 else (11,)


def shared_bytes(config: RadixConfig, capacity: int, problem: Problem) -> int:
    """Shared memory of a block, or a little more."""
    streams = problem.cols > held(config)
    word = 8 if problem.itemsize == 8 else 4
    bins, warps = 1 << config.radix_bits, config.threads // 32
    total = 4096 + 2 * 4 * bins
    if config.blocks > 1:
        total += 4 * config.blocks * max(warps, bins // warps)
    if capacity:
        lists = 2 if streams and config.blocks > 1 else 1
        total += 4 * lists * capacity + (2 * word + 8) * max(capacity, config.threads)
    return total


def layouts(problem: Problem, blocks: int, vector: int, slack: int) -> Iterator[tuple[int, int]]:
    """(threads, items) that hold whole rows, with at most `slack` times the elements."""
    for threads in THREADS if blocks == 1 else THREADS[-2:]:
        items = max(vector, power_of_two(-(-problem.cols // (blocks * threads))))
        if items <= most_items(problem) and blocks * threads * items <= slack * power_of_two(problem.cols):
            yield threads, items


def capacities(config: RadixConfig, problem: Problem, device: Device) -> list[int]:
    """Capacities worth measuring beside the other knobs, all of which fit: the smallest first, 0 the last.

    More survivors than k: fewer digits. Of a streamed row as many times more survive as it is longer than its sample.
    """
    least, longest = max(CAPACITIES[0], power_of_two(problem.k)), power_of_two(problem.cols)
    if (longer := -(-problem.cols // held(config))) > 1:
        base = max(1024, power_of_two(2 * problem.k * longer))
        wanted = [base, 4 * base] if problem.k <= sampled(config) else []
    else:
        wanted = [min(least * factor, max(least, longest)) for factor in (2, 4 if least > 256 else 8)]
    most = most_capacity(config, problem, device)
    found = list(dict.fromkeys(min(one, most) for one in wanted if least <= most))
    return found if problem.sorted else [*found[:2], 0]


def usual_capacity(config: RadixConfig, problem: Problem, device: Device) -> int | None:
    """The capacity to begin with: of those worth measuring the least, or less where that would spill registers."""
    first = next(iter(capacities(config, problem, device)), None)
    if first and problem.cols <= held(config) and first * registers(problem) > 4 * config.threads:
        return min(first, power_of_two(problem.k))
    return first


def _most_sorted(config: RadixConfig, problem: Problem, device: Device) -> int:
    """The largest k that is sorted."""
    most = most_capacity(config, problem, device)
    return most if problem.cols <= held(config) else min(most, sampled(config))


def most_capacity(config: RadixConfig, problem: Problem, device: Device) -> int:
    """The largest capacity that a block's threads and shared memory allow; 0 for none."""
    sizes = (one for one in reversed(KNOBS["capacity"]) if one <= MAX_OWNED * config.threads)
    return next(one for one in sizes if not one or shared_bytes(config, one, problem) <= device.shared_bytes)


def suits_cluster(problem: Problem, device: Device) -> bool:
    """Whether rows are so few and long that one block each would leave most of the device idle."""
    few = 4 * problem.rows <= device.processors and problem.cols * problem.itemsize > 64 << 10
    long = 2 * problem.rows <= device.processors and problem.cols > THREADS[-1] * most_items(problem)
    return most_blocks(device) > 1 and (few or long)


def source(config: RadixConfig, problem: Problem) -> TileLangSource:
    """The kernel of a configuration for the problem's dtype, order and alignment."""
    return TileLangSource(
        function="autotopk.strategies._radix.kernel:radix_topk",
        constants=(
            ("element_bits", 8 * problem.itemsize),
            ("float_inf", FLOAT_INF.get(problem.dtype, 0)),
            ("signed", problem.dtype.startswith("int")),
            ("largest", problem.largest),
            ("threads", config.threads),
            ("blocks", config.blocks),
            ("radix_bits", config.radix_bits),
            ("vector", min(config.vector, problem.vector)),
            ("items", config.items),
            ("streams", problem.cols > held(config)),
            ("capacity", config.capacity),
            ("indices_only", problem.indices_only),
        ),
    )


def power_of_two(value: int) -> int:
    """The power of two at or above."""
    return 1 << (value - 1).bit_length()
