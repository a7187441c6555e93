"""Who is faster, from samples taken in rounds: pure statistics and decisions, no clock.

In a round every contender and torch.topk are sampled once, in a new shuffled order, so that what disturbs a round
disturbs them alike. A contender stands by the median over rounds of its time as a multiple of torch.topk's.
"""

import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from math import comb, hypot
from statistics import median
from typing import Generic, TypeVar

TIE = 0.02
"""A difference, as a fraction, that makes no winner."""

DROP = 2.0
"""A candidate screened this many times slower than the best is not raced."""

Contender = TypeVar("Contender", bound=Hashable)


Times = tuple[tuple[float, ...], tuple[float, ...]]
"""Microseconds of a contender, and of torch.topk in the same rounds."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A time as a multiple of torch.topk's."""

    ratio: float
    margin: float
    """How far the farther end of the 95 % interval is, as a fraction of the ratio."""


def estimate(samples: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """The median of per-round ratios, with an interval between two order statistics.

    That interval holds the true median with at least 95 % probability whatever the noise looks like; from fewer than
    6 rounds there is no such interval, and all ratios lie in the one given. Raises ValueError without samples.
    """
    ratios = sorted(a / b for a, b in zip(samples, baseline, strict=True))
    if not ratios:
        raise ValueError("no rounds, no estimate")
    middle, rank = median(ratios), _rank(len(ratios))
    return Estimate(middle, max(ratios[-1 - rank] - middle, middle - ratios[rank]) / middle)


def together(results: Sequence[Mapping[Contender, Times]]) -> dict[Contender, Times]:
    """What several races say as one, of those who finished all."""
    found = {}
    for one in [one for one in results[0] if all(one in result for result in results)]:
        mine, baseline = zip(*(result[one] for result in results), strict=True)
        found[one] = tuple(chain(*mine)), tuple(chain(*baseline))
    return found


def separated(fast: Estimate, slow: Estimate) -> bool:
    """Whether the second is slower by more than chance and the tie band explain."""
    return slow.ratio / fast.ratio - 1 > max(TIE, hypot(fast.margin, slow.margin))


def tied(a: Estimate, b: Estimate) -> bool:
    """Whether both are known well enough to say that there is no difference worth another round."""
    return abs(a.ratio / b.ratio - 1) <= TIE and hypot(a.margin, b.margin) <= TIE


def survivors(
    screened: Mapping[Contender, float],
    *,
    keep: Iterable[Contender] = (),
    within: float = DROP,
    limit: int | None = None,
) -> list[Contender]:
    """The best by screened ratio, at most `limit` of them, and those of `keep` that were screened at all."""
    ranked = sorted(screened, key=screened.__getitem__)
    near = [one for one in ranked if screened[one] <= within * screened[ranked[0]]][:limit]
    return near + [one for one in keep if one in screened and one not in near]


@dataclass
class Race(Generic[Contender]):
    """Rounds between contenders until the leader is separated from, or tied with, everyone else.

    A contender that the leader is separated from retires, not before `min_rounds`; its times stay in the results.
    """

    contenders: Sequence[Contender]
    min_rounds: int
    max_rounds: int
    retire: bool = True
    """False: everyone runs every round."""
    seed: int = 0
    rounds: int = 0
    _running: list[Contender] = field(init=False)
    _times: dict[Contender, list[tuple[float, float]]] = field(init=False)
    """Microseconds of the contender and of torch.topk, round by round."""

    def __post_init__(self) -> None:
        self._running = list(self.contenders)
        self._times = {contender: [] for contender in self.contenders}
        self._random = random.Random(self.seed)

    def next_round(self) -> list[Contender | None]:
        """Whom to sample in which order, None standing for torch.topk; empty when the race is over."""
        if not self._running or self.rounds >= self.max_rounds or self._decided():
            return []
        order: list[Contender | None] = [None, *self._running]
        self._random.shuffle(order)
        return order

    def record(self, times: Mapping[Contender | None, float]) -> None:
        """Microseconds of one whole round; those who were dropped meanwhile may be missing."""
        self.rounds += 1
        baseline = times[None]
        for contender in self._running:
            self._times[contender].append((times[contender], baseline))
        if self.retire and self.rounds >= self.min_rounds and self._running:
            standing = self._standing()
            leader = min(standing.values(), key=lambda one: one.ratio)
            self._running = [one for one in self._running if not separated(leader, standing[one])]

    def drop(self, contender: Contender) -> None:
        """Take out who failed: it has no result."""
        self._running.remove(contender)
        del self._times[contender]

    def results(self) -> dict[Contender, Times]:
        """Samples and torch.topk's in the same rounds, of everyone who ran at least one."""
        return {
            one: (tuple(a for a, _ in pairs), tuple(b for _, b in pairs)) for one, pairs in self._times.items() if pairs
        }

    def _standing(self) -> dict[Contender, Estimate]:
        results = self.results()
        return {one: estimate(*results[one]) for one in self._running}

    def _decided(self) -> bool:
        if not self.retire or self.rounds < self.min_rounds:
            return False
        standing = list(self._standing().values())
        leader = min(standing, key=lambda one: one.ratio)
        return all(one is leader or tied(leader, one) for one in standing)


@cache
def _rank(rounds: int) -> int:
    """How many ratios may be cut off at either end so that 95 % coverage of the median is left (sign test)."""
    rank, tail = 0, 1  # tail: sum of comb(rounds, i) for i <= rank
    while 2 * (tail + comb(rounds, rank + 1)) <= 0.05 * 2**rounds:
        rank += 1
        tail += comb(rounds, rank)
    return rank
