"""Of the families that share a row out over the device."""

from math import log2
from typing import Protocol

from autotopk.device import Device
from autotopk.problem import FLOAT_INF, VECTOR_BYTES, WINDOWS, Problem
from autotopk.strategies._costs import REGISTERS, load, reading, remote, rounds, sorting
from autotopk.strategies._costs.sampling import crowding, cut_of, guessed, lacking, of_any

INDEX_BYTES = 8
"""Of an answer, beside each value."""

STREAMED = 16
"""Maxima of a thread of stream_maxima."""

SORTED_AT_ONCE = 8
"""Entries of a thread that wide_radix sorts in shared memory, of 64 bits 6."""


class Lists(Protocol):
    """Of split_radix, grid_maxima and stream_lists."""

    @property
    def blocks(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def loads(self) -> int: ...
    @property
    def capacity(self) -> int: ...


def lists(config: Lists, problem: Problem, device: Device) -> tuple[float, ...]:
    """Parts of a row whose best go through a list: a launch, bytes; reading, the list, what the last block orders.

    Where a list overflows, its part is read once more.
    """
    blocks, threads, loads, capacity = config.blocks, config.threads, config.loads, config.capacity
    rows, k, itemsize, several = problem.rows, problem.k, problem.itemsize, blocks > 1
    everywhere, part = rows * blocks, problem.cols / blocks
    times, busy = rounds(everywhere, threads, device, 8 * capacity), load(everywhere, device)
    stream = reading(part * itemsize, everywhere, times)
    cut = cut_of(problem)
    again, late = cut.exceeding(capacity * blocks), cut.exceeding(capacity) if several else 0.0
    any_again = of_any(again, rows)
    passing = min(cut.passing, capacity * blocks)
    return (
        1.0,
        rows * problem.cols * itemsize * 1e-6,
        stream,
        stream * again,
        any_again * part * itemsize * 1e-6,
        any_again * part / threads,
        busy * again * part * 1e-3,
        late,
        late * passing / threads,
        times,
        times * part / threads,
        times * part * itemsize / (threads * loads),
        times * sorting(capacity) / threads,
        times * capacity / threads,
        times * sorting(2 * k) / threads,
        times * several,
        times * several * passing / threads,
        times * several * k * blocks / threads,
        busy * part * 1e-3,
        busy * capacity * 1e-3,
        busy * passing * 1e-3,
        busy * passing * 1e-3 * (itemsize == 2),
        busy * k * 1e-3,
    )


class Held(Protocol):
    """Of rows in registers."""

    @property
    def threads(self) -> int: ...
    @property
    def lines(self) -> int: ...
    @property
    def resident(self) -> int: ...


class Buckets(Held, Protocol):
    """Of block_buckets."""

    @property
    def resident_of_windows(self) -> int: ...


class Clusters(Held, Protocol):
    """Of load_maxima, stream_maxima and cluster_lists."""

    @property
    def blocks(self) -> int: ...
    @property
    def capacity(self) -> int: ...


def _common(
    config: Clusters, shared_bytes: int, problem: Problem, device: Device
) -> tuple[int, int, float, tuple[float, ...]]:
    """Rounds, blocks of the busiest multiprocessor, bytes of a block; and of clusters what all take of a row."""
    blocks, threads = config.blocks, config.threads
    bytes_, everywhere = problem.cols * problem.itemsize, problem.rows * blocks
    part = bytes_ / blocks
    times = rounds(everywhere, threads, device, shared_bytes, REGISTERS // (threads * config.resident), blocks)
    terms = (
        1.0,
        problem.rows * bytes_ * 1e-6,
        reading(part, everywhere, times),
        times,
        remote(problem, device),
        times * (blocks > 1),
        times * log2(blocks),
    )
    return times, load(everywhere, device), part, terms


def maxima(config: Clusters, shared_bytes: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """Clusters that keep maxima in registers: a launch, bytes; reading, a list and its order; their sums over rows.

    A list for little more than k overflows more often than in proportion; what it is made of is read again.
    """
    threads, lines, capacity, rows, k = config.threads, config.lines, config.capacity, problem.rows, problem.k
    times, busy, part, common = _common(config, shared_bytes, problem, device)
    return (
        *common,
        times * lines,
        times * threads * 1e-2,
        times * threads * 1e-2 * (problem.itemsize == 2),
        times * part / threads,
        times * k / threads,
        times * capacity / threads,
        times * k / capacity,
        times * (k / capacity) ** 4,
        times * (k / threads) ** 2,
        busy * part * 1e-3,
        busy * k * 1e-3,
        rows * k * 1e-3,
        rows * capacity * 1e-3,
    )


def streams(config: Clusters, shared_bytes: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """Clusters that read rows in a stream: a launch, bytes; reading, a list and its order; their sums over rows.

    Of maxima of many elements more have two of the best: all of their lines are read again.
    """
    threads, lines, k = config.threads, config.lines, problem.k
    times, busy, part, common = _common(config, shared_bytes, problem, device)
    each = lines / STREAMED
    twice = k / config.blocks * min(1.0, VECTOR_BYTES * each * k / (problem.cols * problem.itemsize)) * each  # lines
    empty = threads * lines - part / VECTOR_BYTES
    return (
        *common,
        times * threads * 1e-2,
        times * part / threads,
        times * empty / threads * 1e-2,
        times * config.capacity / threads,
        busy * part * 1e-3,
        busy * part * 1e-3 / each,
        busy * k * 1e-3,
        busy * twice * 1e-3,
        problem.rows * k * 1e-3,
    )


class Listing(Lists, Protocol):
    """Of stream_lists."""

    @property
    def handed_out(self) -> bool: ...
    @property
    def resident(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...


def listed(config: Listing, entries: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """A row that a block streams, of which so many entries are listed: a launch, bytes; reading, a list, its order.

    A list for little more than that overflows more often than in proportion.
    """
    threads, rows, k, capacity = config.threads, problem.rows, problem.k, config.capacity
    part = problem.cols * problem.itemsize
    registers = REGISTERS // (threads * config.resident)
    times, busy = rounds(rows, threads, device, config.shared_bytes, registers), load(rows, device)
    full = min(entries / capacity, 1.0)
    return (
        1.0,
        rows * part * 1e-6,
        reading(part, rows, times),
        float(times),
        times * (problem.itemsize == 2),
        times * threads * 1e-2,
        times * part / (threads * config.loads),
        times * part / threads,
        times * entries / threads,
        times * capacity / threads,
        times * k / threads,
        times * full**4 * part / threads,
        busy * part * 1e-3,
        busy * entries * 1e-3,
        busy * k * 1e-3,
        busy * config.handed_out,
    )


class Grid(Lists, Protocol):
    """Of grid_maxima."""

    @property
    def messages(self) -> int: ...


def grid(config: Grid, problem: Problem, device: Device) -> tuple[float, ...]:
    """Rows that all of the device reads: a launch, bytes; reading, messages of a thread, what one block lists of them.

    Of few messages for k more have three of the best: all that their warps read is read again.
    """
    threads, k, messages = config.threads, problem.k, config.messages
    everywhere, part = problem.rows * config.blocks, problem.cols * problem.itemsize / config.blocks
    times, busy = rounds(everywhere, threads, device, registers=64), load(everywhere, device)
    again = k * (k / messages) ** 2 * problem.rows
    return (
        1.0,
        problem.rows * problem.cols * problem.itemsize * 1e-6,
        reading(part, everywhere, times),
        remote(problem, device),
        times * part / (threads * config.loads),
        busy * part * 1e-3,
        threads * 1e-2,
        messages / threads,
        k / threads,
        k * (problem.itemsize == 2) / threads,
        again,
        again * part / threads,
        float(problem.rows),
    )


def crowded(config: Clusters, shared_bytes: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """The same where every block has a list of its own: also that one overflows in any row, and in how many.

    Or that it has too little, where few maxima tell its cut.
    """
    usual, blocks = maxima(config, shared_bytes, problem, device), config.blocks
    part = problem.cols * problem.itemsize / blocks
    enough = 1.0 - lacking(problem, min(config.threads, part / VECTOR_BYTES))
    fits = (enough * (1.0 - crowding(problem.k / blocks, config.capacity // blocks))) ** blocks
    times = rounds(problem.rows * blocks, config.threads, device, shared_bytes, cluster=blocks)
    return *usual, 1.0 - fits**problem.rows, times * (1.0 - fits) * part / config.threads


def buckets(
    config: Buckets, count: int, shared_bytes: int, room: int, ordered: bool, problem: Problem, device: Device
) -> tuple[float, ...]:
    """A row in the registers of a block, in `count` buckets: latency of rounds, instructions of a processor.

    Unless what reaches a cut is listed, and there is `room` for it, all elements are counted; of less than half of a
    row it is guessed, and once more where too many or too few reach it. Floats of 16 bits are two to a register, and
    looked at as keys; others are numbers but for most of a row in any order. A row that begins within a line has its
    ends read one by one.
    """
    threads = config.threads
    rows, cols, k, itemsize, lines = problem.rows, problem.cols, problem.k, problem.itemsize, config.lines
    resident = config.resident_of_windows if problem.answer == WINDOWS else config.resident
    times = rounds(rows, threads, device, shared_bytes, REGISTERS // (threads * resident))
    busy, vector = load(rows, device), VECTOR_BYTES // itemsize
    each, of_threads = vector * min(lines, -(-cols // (vector * threads))), busy * threads * 1e-3
    half, ragged = itemsize == 2, problem.layout.vector < vector
    guesses, listed = 2 * k <= cols, room > 0
    cut = guessed(cols, k, itemsize, threads, lines) if guesses else None
    many = cut.exceeding(room) if cut and listed else 1.0  # all are counted
    few = 1.0 - cut.exceeding(k - 1) if cut else 0.0
    of_block = (
        1.0,
        not listed,
        lines,
        each,
        each * (not listed),
        each * half,
        each * (not listed) * half,
        each * (not ordered) * (not guesses),
        half,
        guesses,
        threads * 1e-2,
        count / threads,
        ordered,
        ordered * k / threads,
        ordered * k / threads * half,
        k / threads,
        ragged,
    )
    return (
        1.0,
        rows * cols * itemsize * 1e-6,
        reading(cols * itemsize, rows, times),
        rows * k * 1e-3,
        busy,
        *[times * one for one in of_block],
        *[of_threads * one for one in of_block],
        *[likely * one for likely in (of_any(many, rows), of_any(few, rows)) for one in (1.0, each)],
        of_threads * each * many,
        of_threads * each * few,
    )


def steps(
    blocks: int, threads: int, sharing: int, counted: tuple[int, int], problem: Problem, device: Device
) -> tuple[float, ...]:
    """Launches that each read a row, or blocks that go over theirs as often: `counted` to select, and to sort.

    Of the blocks that split a row `sharing` share the sort; 0 of blocks that take one row after another, wait for each
    of their steps once a row, and sort in shared memory what it has room for. Of floats many begin with the same digit.
    """
    selecting, ordering = counted
    split, parts = sharing > 0, blocks if sharing else 1
    everywhere = problem.rows * blocks if split else min(blocks, problem.rows)
    turns = 1 if split else -(-problem.rows // everywhere)
    times, busy = turns * rounds(everywhere, threads, device), turns * load(everywhere, device)
    sorters = problem.rows * sharing
    sorts, sorted_ = (rounds(sorters, threads, device), load(sorters, device)) if split else (times, busy)
    each, chosen = problem.cols / parts, sorted_ * ordering * problem.k / max(sharing, 1) * 1e-3
    digits = times * (selecting > 0)
    return (
        selecting + ordering + 1.0 if split else 1.0,
        float(split),
        problem.rows * problem.k * (problem.itemsize + INDEX_BYTES) * 1e-6,
        reading(each * problem.itemsize, everywhere, times) * (selecting + 1),
        float(digits),
        float(busy) * (not split),
        busy * each * 1e-3 * (problem.itemsize == 8),
        digits * each / threads * (problem.dtype in FLOAT_INF),
        busy * each * 1e-3,
        float(sorts * ordering),
        float(sorts * (ordering > 0)),
        chosen * problem.itemsize,
        chosen * (split or problem.k > SORTED_AT_ONCE * threads),
    )
