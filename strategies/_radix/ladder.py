"""The ladder: configurations whose kernels are compiled ahead, and in what order they are likely to be fast."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain
from math import log2
from operator import itemgetter
from typing import Any, NamedTuple, get_type_hints

from autotopk.device import Device, shared_bytes_of
from autotopk.problem import FLOAT_INF, Problem, power_of_two
from autotopk.strategies._radix.config import RadixConfig
from autotopk.strategies._radix.limits import capacity_fits, fits, held, layout_fits, most_items, radix_widths, sampled
from autotopk.strategies._radix.shortlists import wanted_of_held, wanted_of_streamed

CLASSES = ("int8", "int16", "int32", "int64", "float16", "float32", "float64")
"""One dtype of each class that shares kernels."""

FULL = 0
"""Items: as many as registers hold, which makes kernels for rows of any length."""

Shapes = tuple[tuple[int, int, int, int, tuple[int, ...]], ...]
"""(blocks, threads, items, bits of a digit, capacities) of some rungs."""

# Each table ends with what serves everything: any k in any order, and the largest k that is sorted with 227 KiB of
# shared memory a block, with 163 and, by digits of 8 bits, with 99.

ALIGNED: Shapes = (
    (1, 32, 8, 8, (256,)),
    (1, 32, 16, 8, (0,)),
    (1, 64, 4, 8, (0,)),
    (1, 64, 8, 8, (128,)),
    (1, 64, 16, 8, (0, 128, 256)),
    (1, 128, 4, 8, (0,)),
    (1, 128, 8, 8, (512, 1024)),
    (1, 128, 16, 8, (0, 256, 512)),
    (1, 128, FULL, 8, (256,)),
    (1, 128, FULL, 11, (256,)),
    (1, 256, 8, 11, (0,)),
    (1, 256, 16, 8, (256,)),
    (1, 512, 8, 11, (0, 1024)),
    (1, 512, 16, 11, (0, 256, 1024, 2048)),
    (1, 1024, 8, 11, (0,)),
    (1, 1024, 16, 11, (0, 2048)),
    (1, 1024, FULL, 11, (0, 2048, 4096, 8192)),
    (2, 1024, FULL, 11, (0, 8192)),
    (8, 512, FULL, 11, (0,)),
    (8, 1024, 16, 11, (0,)),
    (8, 1024, FULL, 11, (0,)),
    (16, 512, FULL, 11, (0,)),
    (16, 1024, FULL, 11, (0, 4096)),
)
"""Of floats of 16 and 32 bits, whose rows are aligned to 16 bytes."""

UNALIGNED: Shapes = (
    (1, 64, 2, 8, (0, 128)),
    (1, 64, 4, 8, (0,)),
    (1, 64, 16, 8, (0, 256)),
    (1, 128, 8, 8, (1024,)),
    (1, 256, 1, 8, (0,)),
    (1, 256, 2, 8, (0, 256)),
    (1, 256, 8, 11, (0, 256, 2048)),
    (1, 512, 2, 11, (0,)),
    (1, 512, 16, 11, (0, 256, 1024, 4096)),
    (1, 512, FULL, 11, (2048,)),
    (1, 1024, FULL, 11, (0, 1024, 2048, 8192)),
    (1, 1024, FULL, 8, (4096,)),
    (2, 1024, FULL, 11, (0, 8192)),
    (2, 1024, FULL, 8, (4096,)),
    (8, 512, 4, 11, (0,)),
    (8, 1024, 4, 11, (0,)),
    (16, 1024, 16, 11, (8192,)),
    (16, 1024, FULL, 11, (0,)),
)
"""The same, one element a load."""

OTHERS_ALIGNED: Shapes = (
    (1, 32, 2, 8, (0,)),
    (1, 32, 4, 8, (128,)),
    (1, 32, 8, 8, (0, 64)),
    (1, 64, 16, 8, (0, 256)),
    (1, 64, FULL, 8, (64,)),
    (1, 128, 4, 8, (0,)),
    (1, 128, 16, 8, (256,)),
    (1, 256, 8, 8, (0,)),
    (1, 256, 16, 8, (256,)),
    (1, 256, 16, 11, (1024,)),
    (1, 512, 16, 11, (0, 2048)),
    (1, 512, FULL, 11, (256,)),
    (1, 1024, 16, 11, (0,)),
    (1, 1024, FULL, 11, (0, 2048)),
    (1, 1024, FULL, 8, (4096,)),
    (8, 512, 16, 11, (512,)),
    (8, 1024, FULL, 11, (0, 1024)),
    (8, 1024, FULL, 8, (4096,)),
)
"""Of integers and 64-bit floats."""

OTHERS_UNALIGNED: Shapes = (
    (1, 64, 8, 8, (64,)),
    (1, 64, 16, 8, (256,)),
    (1, 128, 2, 8, (0,)),
    (1, 256, 8, 8, (256,)),
    (1, 256, 16, 11, (1024,)),
    (1, 512, 8, 11, (0,)),
    (1, 512, 16, 11, (0, 64)),
    (1, 1024, 16, 11, (512,)),
    (1, 1024, FULL, 11, (0, 2048, 8192)),
    (1, 1024, FULL, 8, (4096,)),
    (2, 1024, FULL, 11, (0, 2048, 8192)),
    (2, 1024, FULL, 8, (4096,)),
    (8, 1024, 8, 11, (0,)),
    (8, 1024, FULL, 11, (1024,)),
)
"""The same, one element a load."""


class Layout(NamedTuple):
    """Rungs that differ in capacity alone."""

    blocks: int
    vector: int
    bits: int
    """Of a digit."""
    full: bool
    """They serve rows of any length."""
    held: int
    sampled: int
    threads_log: int
    """Doublings of the threads of a row, and of its blocks, of `held` and `vector`."""
    blocks_log: int
    held_log: float
    vector_log: int
    rungs: tuple[tuple[int, int, Any], ...]
    """(capacity, the doublings of it, rung) of what a block has room for."""


THREADS, BLOCKS, VECTOR, BITS, EMPTY, MORE, LESS, SAMPLED = 1.5, 0.2, 1.0, 0.1, 2.0, 1.0, 0.5, 0.9
"""What a doubling costs: of a row's threads and blocks beside what is wanted, of narrower loads, of registers that a
row leaves empty, of a list longer or shorter than wanted, of what is sampled of a longer row; digits of another width.

These and the next are such that the first, the first four and the first eight rungs lose least beside all others, by
the times that are predicted of an H200 at 3,000 drawn shapes: 2 %, 0.1 % and nothing.
"""

MANY, MOST_MANY = 0.4, 5
"""Doublings of threads fewer for each of rows beyond one a multiprocessor, and for how many of these at most."""

SHORT, OF_SHORT = 512, 0.4
"""Columns up to which the width of loads counts so much of that."""

MORE_SAMPLED = 0.3
"""Of what is sampled more, so much of what it costs to sample less."""

UNLISTED, UNLISTED_HELD = 5.0, -0.3
"""What it costs to do without a wanted list, and where a row is held."""


@lru_cache(64)  # whoever asks about a problem does so several times
def ladder(config_type: Any, preferred: RadixConfig, problem: Problem, device: Device) -> tuple[Any, ...]:
    """The rungs of a family that serve an able problem, those likely to be the quickest first.

    Of few rows all that a row's threads do is waited for; of many, threads that wait take the place of others.
    """
    rows, cols, k, sorted_ = problem.rows, problem.cols, problem.k, problem.sorted
    # a first call waits for this: of sizes it takes logarithms once, and nothing of a rung that is known before
    cols_log, k_log, vector_log = log2(cols), power_of_two(k).bit_length(), problem.layout.vector.bit_length()
    of_held = wanted_of_held(preferred.blocks_per_row, problem, device)
    few, narrow = rows <= device.processors, VECTOR * (OF_SHORT if cols <= SHORT else 1.0)
    threads_log = float((preferred.threads * preferred.blocks_per_row).bit_length())
    if not few:
        threads_log -= MANY * min(MOST_MANY, log2(rows / device.processors))
    costs: list[tuple[float, Any]] = []
    for one, beside, by_room in _beside(config_type, preferred, problem.dtype, problem.layout.vector, device):
        longer = cols > one.held
        if (longer and not one.full) or rows * one.blocks >= 1 << 31:
            continue
        apart = threads_log - one.threads_log
        cost = beside + narrow * (vector_log - one.vector_log) + THREADS * (apart if few else abs(apart))
        if longer:
            cost += by_room
            wanted = wanted_of_streamed(one.held, problem)
        else:
            cost += EMPTY * (one.held_log - cols_log)
            wanted = of_held
        wanted_log = wanted.bit_length() if wanted else k_log
        for capacity, capacity_log, rung in one.rungs:
            if not capacity:
                if not sorted_:
                    costs.append((cost + (0.0 if not wanted else UNLISTED if longer else UNLISTED_HELD), rung))
            elif capacity >= k and (not longer or k <= one.sampled):
                apart = capacity_log - wanted_log
                costs.append((cost + (MORE * apart if apart > 0 else -LESS * apart), rung))
    costs.sort(key=itemgetter(0))
    return tuple([rung for _, rung in costs])


@lru_cache(1 << 10)
def _beside(
    config_type: Any, preferred: RadixConfig, dtype: str, vector: int, device: Device
) -> tuple[tuple[Layout, float, float], ...]:
    """Layouts of loads no wider than `vector`, with what blocks and digits cost, and what is sampled of longer rows."""
    blocks_log, bits, room_log = preferred.blocks_per_row.bit_length(), preferred.radix_bits, log2(held(preferred))
    found = []
    for one in _layouts(config_type, dtype, device):
        if one.vector <= vector:
            beside = BLOCKS * abs(one.blocks_log - blocks_log) + (BITS if one.bits != bits else 0.0)
            more = one.held_log - room_log
            found.append((one, beside, SAMPLED * (MORE_SAMPLED * more if more > 0 else -more)))
    return tuple(found)


@cache
def _layouts(config_type: Any, dtype: str, device: Device) -> tuple[Layout, ...]:
    """The rungs of a family that a device has room for, before anything is known of rows but their dtype."""
    problem, device, found = Problem.contiguous(1, 16, 1, dtype, sorted=False), _limited(device), []
    for same in _rungs(config_type, dtype):
        rung = same[0]
        if layout_fits(rung, problem, device):
            fitting = [one for one in same if capacity_fits(one, problem, device)]
            found.append(
                Layout(
                    rung.blocks_per_row,
                    rung.vector,
                    rung.radix_bits,
                    rung.items == most_items(problem),
                    held(rung),
                    sampled(rung),
                    (rung.threads * rung.blocks_per_row).bit_length(),
                    rung.blocks_per_row.bit_length(),
                    log2(held(rung)),
                    rung.vector.bit_length(),
                    tuple((one.capacity, one.capacity.bit_length(), one) for one in fitting),
                )
            )
    return tuple(found)


def rungs(config_type: Any, arch: int, source: Callable[[Any, Problem], Any]) -> Iterator[Any]:
    """The kernel of every rung of a family that a device of the architecture has room for."""
    device = _limited(Device("cuda", f"sm_{arch}", divmod(arch, 10), shared_bytes=1 << 20))
    found: dict[Any, None] = {}
    for dtype in CLASSES:
        problem = Problem.contiguous(1, 16, 1, dtype, sorted=False)  # aligned, and shorter than what any rung holds
        every = chain.from_iterable(_rungs(config_type, dtype))
        found |= dict.fromkeys(source(rung, problem) for rung in every if fits(rung, problem, device))
    yield from found


@cache
def _limited(device: Device) -> Device:
    """With no more shared memory than kernels of its architecture are compiled for."""
    return replace(device, shared_bytes=min(device.shared_bytes, shared_bytes_of(device.arch)))


@cache
def _rungs(config_type: Any, dtype: str) -> list[list[Any]]:
    """All rungs of a family for a dtype, those together that differ in capacity alone."""
    problem = Problem.contiguous(1, 16, 1, dtype)
    favoured = dtype in FLOAT_INF and problem.itemsize <= 4
    aligned, unaligned = (ALIGNED, UNALIGNED) if favoured else (OTHERS_ALIGNED, OTHERS_UNALIGNED)
    clusters = "blocks" in get_type_hints(config_type)
    found: dict[Any, list[Any]] = {}
    for vector, shapes in ((problem.layout.vector, aligned), (1, unaligned)):
        for blocks, threads, items, bits, capacities in shapes:
            if (blocks > 1) == clusters:
                knobs = {"blocks": blocks} if clusters else {}
                held = max(items, vector) if items else most_items(problem)  # at least a load
                knobs |= {"threads": threads, "items": held, "vector": vector}
                knobs |= {"radix_bits": min(bits, max(radix_widths(problem)))}
                same = found.setdefault(tuple(knobs.items()), [])
                same += [config_type(capacity=capacity, **knobs) for capacity in capacities]
    return [list(dict.fromkeys(same)) for same in found.values()]
