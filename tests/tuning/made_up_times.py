"""Times that nobody measured: a GPU of a few sentences, whose formulas are not those that are fitted.

A launch takes 1.2 us, a block reads 235 GB/s and all of them 4.5 TB/s; blocks that do not fit wait for the next round;
the slower of reading and computing is what a round takes. Every configuration has a quirk of its own, a few percent.
"""

import random
from functools import cache
from math import ceil, log2

from autotopk import registry
from autotopk.candidate import Candidate
from autotopk.device import H100
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.strategies import lane_merge, masked_argmax
from autotopk.strategy import Config
from autotopk.tuning.candidates import candidates
from autotopk.workloads import Workload

FAMILIES = (
    "lane_merge",
    "masked_argmax",
    "block_radix",
    "cluster_radix",
    "split_radix",
    "load_maxima",
    "torch_fallback",
)
LAUNCH_US, BLOCK_BYTES, BYTES = 1.2, 0.235e6, 4.5e6
"""Microseconds; bytes a microsecond of one block, and of all."""
LANES = 512
"""Threads that a processor runs without any waiting for others."""

QUIRK = 0.02
"""Standard deviation of what nothing explains, as a fraction."""


def shapes(seed: int, count: int) -> list[Workload]:
    """Sorted float32 of up to 64 MiB, evenly by doublings."""
    draw, found = random.Random(seed), list[Workload]()
    while len(found) < count:
        rows, cols, k = (round(2 ** draw.uniform(0, most)) for most in (13, 22, 11))
        cols = max(16, cols - cols % draw.choice((1, 4, 16)))
        if rows * cols <= 1 << 24 and k <= cols // 2:
            found.append(Workload(rows, cols, k))
    return found


def measured(workload: Workload) -> dict[Candidate, float]:
    """Microseconds of what a quick run would try."""
    problem = workload.problem("cuda")
    return {one: time_us(one, problem) for one in candidates(problem, H100, FAMILIES)}


def times(workloads: list[Workload]) -> dict[TuningKey, dict[Candidate, float]]:
    """Of all of them."""
    return {one.key: measured(one) for one in workloads}


def time_us(candidate: Candidate, problem: Problem) -> float:
    """Of one call."""
    config = registry.get(candidate.strategy).parse_config(candidate.config)
    if candidate.strategy == "torch_fallback":
        exact = 8.0 + problem.rows * problem.cols * 4 / (0.12 * BYTES) + 0.004 * problem.k
        exact += 15.0 if problem.cols > 4096 else 0.0
        exact *= 1.3 if config.method == "chunked" else 1.0
    else:
        threads, blocks, work, registers = _geometry(candidate.strategy, config, problem)
        held = max(1, min(32, 2048 // threads, 65536 // (threads * registers))) * H100.processors
        per_block = problem.rows * problem.cols * 4 / blocks
        at_once = min(blocks, held)
        reading = max(per_block / BLOCK_BYTES, per_block * at_once / BYTES)
        crowd = ceil(at_once / H100.processors) * threads / LANES
        exact = LAUNCH_US + ceil(blocks / held) * max(reading, work * max(1.0, crowd))
    return exact * _quirk(candidate)


def _geometry(strategy: str, config: Config, problem: Problem) -> tuple[int, int, float, int]:
    """Threads, blocks, microseconds of a block that has its processor to itself, registers of a thread."""
    rows, cols, k = problem.rows, problem.cols, problem.k
    if strategy == "lane_merge":
        per_block = 32 * config.warps // config.lanes
        kernel = lane_merge._kernel(config, problem)
        share = kernel.vectors * kernel.width
        rounds = k * (log2(config.lanes) + 2) * (0.5 if config.tree else 1.0)
        return 32 * config.warps, ceil(rows / per_block), 0.2 + 0.004 * share * log2(config.depth) + 0.012 * rounds, 48
    if strategy == "masked_argmax":
        each = config.rows_per_program * masked_argmax._kernel(config, problem).longest / (32 * config.warps)
        return 32 * config.warps, ceil(rows / config.rows_per_program), 0.3 + 0.004 * k * (each + 12), 64
    if strategy == "split_radix":
        list_us = 0.0004 * config.capacity * 1024 / config.threads + 0.0001 * k * config.blocks
        return config.threads, rows * config.blocks, 2.0 + 0.9 * (config.blocks > 1) + list_us, 48
    if strategy == "load_maxima":
        list_us = 0.0005 * config.capacity * 512 / config.threads + 0.5 * (3 * k > config.capacity)
        own_us = 0.0006 * cols / config.blocks * 512 / config.threads + 0.02 * config.lines
        return (
            config.threads,
            rows * config.blocks,
            1.6 + own_us + list_us + 0.3 * log2(config.blocks),
            32 + 2 * config.lines,
        )
    blocks = config.blocks_per_row
    part = cols / blocks
    room = config.threads * config.items
    work = 1.4 + 0.0012 * min(part, room) * 512 / config.threads + (1 << config.radix_bits) * 0.3 / config.threads
    if config.capacity:
        work += 2.5e-4 * config.capacity * log2(config.capacity) ** 1.5 * 256 / config.threads
    if part > room:
        again = 2 * k * part * blocks / (room * blocks) > 8 * config.threads
        work += part / BLOCK_BYTES * 4 * (1 + again)
    return config.threads, rows * blocks, work + 0.25 * (blocks - 1) ** 0.5, 32 + config.items


@cache
def _quirk(candidate: Candidate) -> float:
    return 1 + random.Random(str(candidate)).gauss(0, QUIRK)
