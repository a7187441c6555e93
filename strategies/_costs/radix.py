"""Of the radix families: blocks that hold a row, or a sample of it, and narrow it digit by digit."""

from functools import lru_cache
from math import erfc, exp, floor, frexp, ldexp, sqrt
from statistics import NormalDist

from autotopk.device import Device
from autotopk.problem import DTYPE_BYTES, FLOAT_INF, Problem
from autotopk.strategies._costs import at_once, load, reading, sorting
from autotopk.strategies._radix.config import ITEM_REGISTERS, RadixConfig
from autotopk.strategies._radix.limits import shared_bytes


def terms(config: RadixConfig, problem: Problem, device: Device) -> tuple[float, ...]:
    """A launch, bytes; of a round its latency, its digits, the sort, barriers; of a processor elements and digits.

    Floats are sorted by intervals of keys, most of which are of numbers near 0: where these are among the best, the
    others are crowded. A digit is counted again by all slots of a block, also those without an element.
    """
    rows, cols, k, itemsize, capacity = problem.rows, problem.cols, problem.k, problem.itemsize, config.capacity
    blocks, threads, room, together, sorted_, bins, streams = _fixed(config, itemsize, device)
    parts = rows * blocks
    times, busy, everything = -(-parts // together), load(parts, device), cols / blocks
    each, thousand, vector = times / threads, busy * 1e-3, min(config.vector, problem.layout.vector)
    stream = streamed = again = more = 0.0
    passes = repeated(cols, k, problem.dtype, config.radix_bits, capacity)
    inside = min(everything, room)
    if everything > room:
        streamed = everything - room
        expected = 2 * k * cols / (room * blocks)
        again, more = streamed * (expected > 8 * threads), streamed * (expected >= capacity > 0)
        stream = reading(everything * itemsize, parts, times)
        if capacity:
            passes = 0.0
    crowded = float(2 * k > cols and capacity > 0 and problem.dtype in FLOAT_INF)
    each_inside, each_bins, inside_of_all, repeats = each * inside, each * bins, thousand * inside, times * passes
    return (
        1.0,
        rows * cols * itemsize * 1e-6,
        rows * k * 1e-6,
        stream,
        times,
        each_inside,
        each_inside * (itemsize == 2),
        each_inside / vector,
        each * streamed,
        each * streamed / vector,
        each * again,
        each * more,
        each_bins,
        each * sorted_,
        each * k,
        each * k if streamed else 0.0,
        each * k * crowded,
        *((times, each * k) if capacity else NONE[:2]),
        *((times / vector, inside_of_all) if streams else NONE[:2]),
        each * passes * streamed,
        thousand * passes * streamed,
        times * (blocks - 1),
        *((repeats, repeats * config.items, each_bins * passes, inside_of_all * passes) if passes else NONE),
        inside_of_all,
        inside_of_all / vector,
        thousand * streamed,
        thousand * again,
        thousand * threads,
        thousand * room,
        thousand * bins,
        thousand * sorted_,
        thousand * k,
    )


NONE = (0.0, 0.0, 0.0, 0.0)

NORMAL = NormalDist()


@lru_cache(1 << 12)  # what no row has a say in
def _fixed(config: RadixConfig, itemsize: int, device: Device) -> tuple[int, int, int, int, float, int, bool]:
    """Of a block threads and elements in registers, of the device blocks that run at once; comparisons, bins.

    The last says whether it is a kernel for rows of any length.
    """
    blocks, threads = config.blocks_per_row, config.threads
    words = 2 if itemsize == 8 else 1
    taken = 32 + config.items * words
    together = at_once(threads, device, shared_bytes(config, config.capacity, itemsize), taken, blocks)
    sorted_ = sorting(config.capacity) if config.capacity else 0.0
    streams = config.items == ITEM_REGISTERS // words
    return blocks, threads, threads * config.items, together, sorted_, 1 << config.radix_bits, streams


@lru_cache(1 << 12)
def repeated(cols: int, k: int, dtype: str, radix_bits: int, capacity: int) -> float:
    """How many digits of a random row are counted after the first: until what is left fits, or all of it is chosen."""
    bits, found = 8 * DTYPE_BYTES[dtype], 0.0
    for known in range(radix_bits, bits, radix_bits):
        left = min(float(cols), survivors(cols, k, dtype, known))
        if left <= capacity:
            break
        found += 1.0 - exp(k - left)
    return found


@lru_cache(1 << 12)
def survivors(cols: int, k: int, dtype: str, bits: int) -> float:
    """Elements of a random row in the bin of the k-th or above, where so many leading bits tell bins apart.

    Rows are normally distributed where dtypes are floating, else evenly.
    """
    if dtype not in FLOAT_INF:
        return k + cols / (1 << min(bits, 8 * DTYPE_BYTES[dtype]))
    exponent_bits = {"float16": 5, "float64": 11}.get(dtype, 8)
    mantissa = max(0, bits - 1 - exponent_bits)
    share = min(max(k / (cols + 1), 1e-12), 1 - 1e-12)
    threshold = NORMAL.inv_cdf(1 - share)
    fraction, exponent = frexp(abs(threshold))  # in [0.5, 1)
    coarse = 1 << max(0, 1 + exponent_bits - bits)  # exponents that share a bin
    if coarse > 1:
        low = ldexp(0.5, exponent // coarse * coarse)
        high = ldexp(low, coarse)
    else:
        low = ldexp(floor(ldexp(fraction, mantissa + 1)), exponent - mantissa - 1)
        high = low + ldexp(0.5, exponent - mantissa)
    edge = low if threshold > 0 else -high
    return max(float(k), cols * 0.5 * erfc(edge / sqrt(2)))
