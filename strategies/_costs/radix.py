"""Of the radix families: blocks that hold a row, or a sample of it, and narrow it digit by digit."""

from functools import lru_cache
from math import erfc, floor, frexp, ldexp, sqrt
from statistics import NormalDist

from autotopk.device import Device
from autotopk.problem import DTYPE_BYTES, FLOAT_INF, Problem
from autotopk.strategies._costs import load, reading, rounds, sorting
from autotopk.strategies._radix.config import RadixConfig
from autotopk.strategies._radix.limits import held, most_items, registers, shared_bytes


def terms(config: RadixConfig, problem: Problem, device: Device) -> tuple[float, ...]:
    """A launch, bytes; of a round its latency, its digits, the sort, barriers; of a processor elements and digits."""
    blocks, threads = config.blocks_per_row, config.threads
    shared = shared_bytes(config, config.capacity, problem.itemsize)
    taken = 32 + config.items * registers(problem)
    times = rounds(problem.rows * blocks, threads, device, shared, taken, blocks)
    busy = load(problem.rows * blocks, device)
    everything, room = problem.cols / blocks, threads * config.items
    inside = min(everything, room)
    streamed = everything - inside
    bins, longer = 1 << config.radix_bits, problem.cols / held(config)
    several, resampled, overflown = 0.0, 0.0, 0.0
    if streamed:
        expected = 2 * problem.k * longer
        resampled = streamed * (expected > 8 * threads)
        overflown = streamed * (expected >= config.capacity > 0)
    else:
        several = float(survivors(problem.cols, problem.k, problem.dtype, config.radix_bits) > config.capacity > 0)
    vector, any_order = min(config.vector, problem.layout.vector), float(config.capacity == 0)
    streams = float(config.items == most_items(problem))  # kernels for rows of any length
    digits = any_order * -(-8 * problem.itemsize // config.radix_bits)  # without a list, as long as keys are alike
    sorted_ = sorting(config.capacity) if config.capacity else 0.0
    return (
        1.0,
        problem.rows * problem.cols * problem.itemsize * 1e-6,
        problem.rows * problem.k * 1e-6,
        reading(everything * problem.itemsize, problem.rows * blocks, times) if streamed else 0.0,
        times,
        times * inside / threads,
        times * inside / (threads * vector),
        times * streamed / threads,
        times * resampled / threads,
        times * overflown / threads,
        times * bins / threads,
        times * sorted_ / threads,
        times * problem.k / threads,
        times * problem.k / threads * (streamed > 0),
        times * any_order,
        times * any_order * inside / threads,
        times * any_order * bins / threads,
        busy * any_order * inside * 1e-3,
        times * streams,
        times * streams * inside / threads,
        busy * streams * inside * 1e-3,
        times * digits * streamed / threads,
        busy * digits * streamed * 1e-3,
        times * (blocks - 1),
        times * several,
        times * several * inside / threads,
        times * several * bins / threads,
        busy * inside * 1e-3,
        busy * streamed * 1e-3,
        busy * resampled * 1e-3,
        busy * overflown * 1e-3,
        busy * threads * 1e-3,
        busy * bins * 1e-3,
        busy * sorted_ * 1e-3,
        busy * problem.k * 1e-3,
    )


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
    threshold = NormalDist().inv_cdf(1 - share)
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
