"""How many elements reach the cut that a sample of a row tells (`split_radix/sample.cuh`), before it is taken."""

from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil, erfc, exp, log, sqrt

from autotopk.problem import VECTOR_BYTES, Problem, power_below

MOST_PIECES, MOST_LOADS = 128, 8
"""Of a row; of a piece, each time."""

MOST_TIME_BITS, SPARED = 2, 1 << 19
"""Of how many times as many loads are looked at; elements of a row for each time."""

WARP = 32
"""Lanes."""

DEVIATIONS, MORE = 4.5, 6
"""That a guess is made for beyond what is wanted, and elements; also in `block_buckets/elements.cuh`."""

ROUNDED = 6
"""Tenths of a power of two of lines from which on a thread has about as many; also there."""


@dataclass(frozen=True, slots=True)
class SampledCut:
    """The best element of a piece of a row, of which `rank - 1` pieces have a better one."""

    cols: int
    pieces: int
    elements: int
    """Of a piece."""
    rank: int
    """From 1; above `pieces` where nothing can be told and everything passes."""

    @property
    def passing(self) -> float:
        """Elements that reach it, on average."""
        if self.rank > self.pieces:
            return float(self.cols)
        return min(1.0, -log(1 - self.rank / (self.pieces + 1)) / self.elements) * self.cols

    def exceeding(self, room: int) -> float:
        """How likely it is that more than `room` elements reach it: few pieces have one of so many best."""
        if self.rank > self.pieces or room >= self.cols:
            return float(room < self.cols)
        return _less_than(self.rank, self.pieces, 1 - exp(-self.elements * room / self.cols))[0]


@dataclass(frozen=True, slots=True)
class GuessedCut:
    """What lanes of a block tell by their best (`block_buckets/elements.cuh`): a rank of every warp, then the middle.

    As the elements are of one row in any order, how many reach it is a matter of chance alone.
    """

    cols: int
    elements: float
    """Of which a lane tells the best, in the mean."""
    in_warp: int
    """Rank, from 1, of the best of a warp's lanes."""
    above: int
    """Warps, the last ones, that take one rank more."""
    warps: int
    """Whose lanes all have one."""
    lanes: int
    """Of a warp."""

    @property
    def in_block(self) -> int:
        """Rank of what the warps tell."""
        return self.warps // 2 + 1

    def exceeding(self, room: int) -> float:
        """How likely it is that more than `room` elements reach it: few warps have enough lanes with one of these."""
        likely = 1.0 - (1.0 - min(room / self.cols, 1.0)) ** self.elements
        fewer, as_many = _less_than(self.in_warp, self.lanes, likely)
        few = fewer + as_many * self.above / self.warps
        return _less_than(self.in_block, self.warps, max(1.0 - few, 0.0))[0]


@lru_cache(1 << 12)
def _less_than(rank: int, count: int, likely: float) -> tuple[float, float]:
    """How likely fewer than `rank` of `count` are it, each as `likely`; and as many."""
    if likely >= 1:
        return 0.0, float(rank == count)
    its, odds, found = (1 - likely) ** count, likely / (1 - likely), 0.0
    for ratio in _ratios(count)[:rank]:
        found += its
        its *= ratio * odds
    return min(found, 1.0), its


@cache
def _ratios(count: int) -> list[float]:
    """Of each way to choose one more of `count`, from none on, to the ways before."""
    return [(count - number) / (number + 1) for number in range(count + 1)]


def aimed_at(want: float) -> float:
    """Entries for which a cut is made by maxima (`cluster_lists/holding.cuh`): four deviations more than `want`."""
    return want + 4 * sqrt(want) + 4


def crowding(want: float, room: int) -> float:
    """How likely a list of so many entries overflows that is to hold `want` on average, by a cut that maxima tell.

    What reaches it was found to scatter so, by drawing rows.
    """
    aim = aimed_at(want)
    return 0.5 * erfc((room - 1.05 * aim - 2) / (0.9 * sqrt(aim)) / sqrt(2))


def lacking(problem: Problem, maxima: float) -> float:
    """How likely so many maxima, of 16 bytes each, are all among the best k: fewer than k reach what they tell."""
    others = 1.0 - problem.k / problem.cols
    return float((1.0 - others ** (VECTOR_BYTES // problem.itemsize)) ** maxima)


def cut_of(problem: Problem) -> SampledCut:
    """Of each row of a problem."""
    return _cut(problem.cols, problem.k, problem.itemsize)


@lru_cache(1 << 10)
def guessed(cols: int, k: int, itemsize: int, threads: int, lines: int) -> GuessedCut:
    """The cut of a block of so many threads, of so many lines each, for rows of which at most half is wanted."""
    vector = VECTOR_BYTES // itemsize
    loads, group = cols // vector, 1
    while 4 * group <= lines * vector and 4 * group * k <= cols:
        group *= 4
    deals = next(
        more for more in (8, 4, 2, 1) if more == 1 or (more <= lines and 10 * loads > ROUNDED * more * threads)
    )
    held = max(loads / threads, 1.0)  # lines of a thread, in the mean
    elements = held * min(max(group // deals, 1), vector) / max(deals // group, 1)
    looked_at = elements * max(min(loads, threads), 1)
    aim = (k + MORE) / cols + DEVIATIONS * sqrt(k / (cols * looked_at))  # of all
    lanes, warps, whole = max(min(loads, WARP), 1), threads // WARP, max(min(threads, loads) // WARP, 1)
    rank = (lanes + 1) * (1.0 - max(1.0 - aim, 0.0) ** elements)
    least = min(max(int(rank + 0.5 / warps), 1), lanes)
    above = max(whole - max(ceil(warps * (least + 1 - rank) - 0.5), 0), 0) if least < lanes else 0
    return GuessedCut(cols, elements, least, above, whole, lanes)


def overflowing(capacity: int, blocks: int, problem: Problem) -> float:
    """How likely it is that some list has no room for what the sample lets pass of its part of a row."""
    return of_any(cut_of(problem).exceeding(capacity * blocks), problem.rows)


def of_any(likely: float, rows: int) -> float:
    """How likely it is of any of so many rows, each as `likely`."""
    return 1.0 - (1.0 - likely) ** rows


@lru_cache(1 << 10)  # a call where nothing was tuned asks for dozens of configurations
def _cut(cols: int, k: int, itemsize: int) -> SampledCut:
    vector = VECTOR_BYTES // itemsize
    loads = cols // vector
    if loads < MOST_LOADS:
        return SampledCut(cols, 0, 1, 1)
    pieces = power_below(min(loads // MOST_LOADS, MOST_PIECES))
    times = min(power_below(cols // SPARED | 1), 1 << MOST_TIME_BITS)
    whole = vector < VECTOR_BYTES or vector * k <= cols
    elements = (vector if whole else 1) * min(power_below(max(cols // (vector * k), 1)), MOST_LOADS) * times
    holds = 1 - exp(-elements * k / cols)
    mean = pieces * holds
    rank = int(mean + 4 * sqrt(mean * (1 - holds) + 1e-9)) + 4
    return SampledCut(cols, pieces, elements, rank if rank < pieces else pieces + 1)
