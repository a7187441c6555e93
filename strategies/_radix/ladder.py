"""The ladder: configurations whose kernels are compiled ahead, and in what order they are likely to be fast."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain
from math import log2
from operator import itemgetter
from typing import Any, get_type_hints

from autotopk.device import Device, shared_bytes_of
from autotopk.problem import FLOAT_INF, Problem, power_of_two
from autotopk.strategies._radix.config import RadixConfig
from autotopk.strategies._radix.limits import capacity_fits, fits, held, layout_fits, most_items, radix_widths
from autotopk.strategies._radix.shortlists import wanted_capacity

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
    (1, 64, 16, 8, (0, 256)),
    (1, 128, 8, 8, (1024,)),
    (1, 256, 8, 11, (0,)),
    (1, 512, 8, 11, (0, 1024)),
    (1, 512, 16, 11, (0, 256, 1024, 2048)),
    (1, 1024, 16, 11, (0, 2048)),
    (1, 1024, FULL, 11, (0, 2048, 4096, 8192)),
    (2, 1024, FULL, 11, (0, 8192)),
    (8, 1024, FULL, 11, (0,)),
    (16, 1024, FULL, 11, (0, 4096)),
)
"""Of floats of 16 and 32 bits, whose rows are aligned to 16 bytes."""

UNALIGNED: Shapes = (
    (1, 64, 16, 8, (0, 256)),
    (1, 128, 8, 8, (1024,)),
    (1, 256, 8, 11, (0, 256, 2048)),
    (1, 512, 16, 11, (0, 256, 1024, 4096)),
    (1, 512, FULL, 11, (2048,)),
    (1, 1024, FULL, 11, (0, 1024, 2048, 8192)),
    (1, 1024, FULL, 8, (4096,)),
    (2, 1024, FULL, 11, (0, 8192)),
    (2, 1024, FULL, 8, (4096,)),
    (16, 1024, FULL, 11, (0,)),
)
"""The same, one element a load."""

OTHERS_ALIGNED: Shapes = (
    (1, 64, 16, 8, (256,)),
    (1, 256, 16, 11, (1024,)),
    (1, 1024, FULL, 11, (0, 2048)),
    (1, 1024, FULL, 8, (4096,)),
    (8, 1024, FULL, 11, (0, 1024)),
    (8, 1024, FULL, 8, (4096,)),
)
"""Of integers and 64-bit floats."""

OTHERS_UNALIGNED: Shapes = (
    (1, 64, 16, 8, (256,)),
    (1, 256, 16, 11, (1024,)),
    (1, 1024, FULL, 11, (0, 2048, 8192)),
    (1, 1024, FULL, 8, (4096,)),
    (2, 1024, FULL, 11, (0, 2048, 8192)),
    (2, 1024, FULL, 8, (4096,)),
    (8, 1024, FULL, 11, (1024,)),
)
"""The same, one element a load."""


@lru_cache(64)  # whoever asks about a problem does so several times
def ladder(config_type: Any, preferred: RadixConfig, problem: Problem, device: Device) -> tuple[Any, ...]:
    """The rungs of a family that serve an able problem, those nearest to what is preferred first."""
    most, device = most_items(problem), _limited(device)
    costs: list[tuple[float, Any]] = []
    for same in _rungs(config_type, problem.dtype):  # a first call waits for this: what they share is looked at once
        rung = same[0]
        long_enough = rung.items == most or problem.cols <= held(rung)
        if rung.vector > problem.layout.vector or not long_enough or not layout_fits(rung, problem, device):
            continue
        beside, wanted = _layout_cost(rung, preferred, problem), wanted_capacity(rung, problem, device)
        costs += [
            (beside + _capacity_cost(one, wanted, problem), one) for one in same if capacity_fits(one, problem, device)
        ]
    return tuple(rung for _, rung in sorted(costs, key=itemgetter(0)))


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
                knobs |= {"threads": threads, "items": items or most_items(problem), "vector": vector}
                knobs |= {"radix_bits": min(bits, max(radix_widths(problem)))}
                same = found.setdefault(tuple(knobs.items()), [])
                same += [config_type(capacity=capacity, **knobs) for capacity in capacities]
    return [list(dict.fromkeys(same)) for same in found.values()]


def _layout_cost(rung: RadixConfig, preferred: RadixConfig, problem: Problem) -> float:
    """Estimated doublings of the time beside the preferred layout."""
    threads, blocks = rung.threads / preferred.threads, rung.blocks_per_row / preferred.blocks_per_row
    cost = 0.3 * abs(log2(threads * blocks)) + 0.2 * abs(log2(blocks))
    cost += 0.5 * log2(problem.layout.vector / rung.vector) + 0.3 * (rung.radix_bits != preferred.radix_bits)
    if problem.cols > held(rung):
        return cost + (0.3 if problem.cols > held(preferred) else 1) * abs(log2(held(rung) / held(preferred)))
    return cost + 0.1 * log2(held(rung) / problem.cols)


def _capacity_cost(rung: RadixConfig, wanted: int, problem: Problem) -> float:
    """Estimated doublings of the time beside the capacity that is wanted."""
    if not rung.capacity:
        return 0.0 if not wanted else 0.2 if problem.cols <= held(rung) else 1.0
    wanted = wanted or power_of_two(problem.k)
    return (0.15 if rung.capacity > wanted else 0.4) * abs(log2(rung.capacity / wanted))
