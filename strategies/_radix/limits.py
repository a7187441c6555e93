"""What fits: registers, shared memory, and the numbers that the kernels count in."""

from functools import lru_cache

from autotopk.device import Device
from autotopk.problem import VECTOR_BYTES, Problem
from autotopk.strategies._radix.config import ITEM_REGISTERS, KNOBS, RadixConfig

MAX_COLS = (1 << 31) - (1 << 20)
"""Columns are counted in 32 bits, past the end of the row by up to four loads of every thread."""

MAX_OWNED = 16  # 8 a thread 7.0 us, 16 10.4, 32 22.1 with 3 KB spilled (docs/radix.md)
"""Survivors of one thread while they are sorted; more spill registers."""


def reasons_too_large(config: RadixConfig, problem: Problem, device: Device) -> list[str]:
    """What is too large for the configuration that has most room."""
    reasons = []
    if problem.cols > MAX_COLS:
        reasons.append(f"rows of {problem.cols} are longer than {MAX_COLS}")
    if problem.rows * config.blocks_per_row >= 1 << 31:
        reasons.append(f"{problem.rows} rows are more than 32 bits count")
    if problem.sorted and problem.k > (most := _most_sorted(config, problem, device)):
        reasons.append(f"k={problem.k} is above {most}")
    return reasons


def fits(config: RadixConfig, problem: Problem, device: Device) -> bool:
    """Whether a kernel of the configuration answers the problem within the device's registers and shared memory."""
    return layout_fits(config, problem, device) and capacity_fits(config, problem, device)


def layout_fits(config: RadixConfig, problem: Problem, device: Device) -> bool:
    """All of it but the capacity."""
    return (
        problem.rows * config.blocks_per_row < 1 << 31
        and config.blocks_per_row <= most_blocks(device)
        and config.items <= most_items(problem)
        and config.vector * problem.itemsize <= VECTOR_BYTES
        and config.radix_bits in radix_widths(problem)
    )


def capacity_fits(config: RadixConfig, problem: Problem, device: Device) -> bool:
    """The capacity, where the rest fits."""
    capacity, k = config.capacity, problem.k
    return (
        (capacity >= k if capacity else not problem.sorted)
        and capacity <= MAX_OWNED * config.threads
        and (capacity == 0 or problem.cols <= held(config) or k <= sampled(config))
        and shared_bytes(config, capacity, problem.itemsize) <= device.shared_bytes
    )


def held(config: RadixConfig) -> int:
    """Elements of a row in registers; longer rows are streamed past a sample of that size."""
    return config.blocks_per_row * config.threads * config.items


def sampled(config: RadixConfig) -> int:
    """Elements of a longer row that are surely held: one of a thread's loads may lie past the end."""
    return config.blocks_per_row * config.threads * (config.items - config.vector)


def streams(config: RadixConfig, problem: Problem) -> bool:
    """Whether the kernel is made for rows of any length: also where its registers are full, for that costs no more."""
    return config.items == most_items(problem) or problem.cols > held(config)


def registers(problem: Problem) -> int:
    """32-bit registers of one element."""
    return 2 if problem.itemsize == 8 else 1


def most_items(problem: Problem) -> int:
    """Elements that a thread's registers can hold."""
    return ITEM_REGISTERS // registers(problem)


def most_blocks(device: Device) -> int:
    """Blocks of the largest cluster; 16 only where a processor group is known to have as many, 1 before clusters."""
    if device.arch < 90:
        return 1
    return 16 if device.capability[0] in (9, 10) else 8


def radix_widths(problem: Problem) -> tuple[int, ...]:
    """Bits of a digit."""
    return (8, 11) if problem.itemsize > 1 else (8,)


def shared_bytes(config: RadixConfig, capacity: int, itemsize: int) -> int:
    """Shared memory of a block that sorts so many survivors, or a little more; for buffers see `device/state.py`."""
    word = 8 if itemsize == 8 else 4
    bins, warps = 1 << config.radix_bits, config.threads // 32
    total = 4096 + 2 * 4 * bins
    if config.blocks_per_row > 1:
        total += 4 * config.blocks_per_row * max(warps, bins // warps)
    if capacity:
        total += 4 * capacity + (2 * word + 8) * max(capacity, config.threads)
    return total


def most_capacity(config: RadixConfig, problem: Problem, device: Device) -> int:
    """The largest capacity that a block's threads and shared memory allow; 0 for none."""
    return _most_capacity(config, problem.itemsize, device.shared_bytes)


@lru_cache(1 << 12)
def _most_capacity(config: RadixConfig, itemsize: int, shared: int) -> int:
    sizes = (one for one in reversed(KNOBS["capacity"]) if one <= MAX_OWNED * config.threads)
    return next(one for one in sizes if not one or shared_bytes(config, one, itemsize) <= shared)


def _most_sorted(config: RadixConfig, problem: Problem, device: Device) -> int:
    """The largest k that is sorted."""
    most = most_capacity(config, problem, device)
    return most if problem.cols <= held(config) else min(most, sampled(config))
