"""Levels of doubt and their bounds, by choices at points that were left out of the fit.

They count where everything that was predicted to take within a tenth of the least had been measured: where it was not,
nobody knows what a choice loses. Points are not where shapes are: many were measured because they were in doubt. So
each weighs as much as the share of drawn shapes that are in about its doubt. Ordered by doubt, the first have a bound
of 1.05, as many as there are while no more than `SHARES[0]` of all shapes are beyond it; of the others as many have
1.15; and the rest what leaves no more than `BEYOND` of all shapes beyond their bounds.
"""

from collections.abc import Mapping, Sequence
from math import inf, log
from typing import NamedTuple

import numpy as np

from autotopk import nearby
from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.doubt import OFF, Contest, Level, Rival, doubt_of, rivals
from autotopk.key import TuningKey
from autotopk.nearby import Place
from autotopk.prediction import Model, kind_of, place_of
from autotopk.runtime import predicting
from autotopk.tuning.boosting import Array
from autotopk.tuning.fitting import Sample
from autotopk.workloads import Workload, spread

BOUNDS, SHARES = (1.05, 1.15), (0.0045, 0.0045)
"""Of levels, and the share of all shapes, at most, that are of each and beyond its bound."""

BEYOND = 0.0095
"""Share of all shapes that are beyond their bounds."""

NOISE = log(1.02)
"""What points tell too much: of many times that were taken once the least is one that came out short."""

DRAWN, PARTS = 2000, 100
"""Shapes that are drawn for weights, and into how many parts of equal size their doubts are divided."""

LEAST_JUDGED = 1000
"""Points where all that was near had been measured: of fewer, one in a hundred is not known well."""

NEAR = 1.1
"""Times the least predicted time that is near it."""

MOST_OFF = 0.3
"""That two predictions count to differ in, of those that are near."""


class Trial(NamedTuple):
    """Of a choice at a point that was left out."""

    place: Place
    contests: Sequence[Contest]
    regret: float | None
    """Logarithm of the time of the choice over that of the best; None where not all that was near had been measured."""
    off: float | None
    """See `Point.off`."""


def trial_of(model: Model, key: TuningKey, samples: Sequence[Sample], device: Device) -> Trial:
    """By a model without the point; without contests where a strategy raises, which may be anyone's code."""
    times, found = {one.candidate: one.time_us for one in samples}, list[predicting.Proposal]()
    try:
        problem = Workload.of(key).problem(device.type)
        found = predicting.careful(predicting.proposals(problem, device, model), predicting.ALIKE)
    except Exception:  # the others are tried all the same
        pass
    off = off_of(model, key, samples)
    if not found:
        return Trial(place_of(key), (), None, off)
    near = rivals(one.rival for one in found)
    return Trial(place_of(key), model.contests(key, near), _regret(found, times), off)


def _regret(found: Sequence[predicting.Proposal], times: Mapping[Candidate, float]) -> float | None:
    least = NEAR * min(one.time_us for one in found)
    near = [one.strategy.candidate(one.config) for one in found if one.time_us <= least or one is found[0]]
    if not all(one in times for one in near):
        return None
    return log(times[near[0]] / min(times.values()))


def off_of(model: Model, key: TuningKey, samples: Sequence[Sample]) -> float | None:
    """What predictions of all that is near differ in from that of the least, in the mean of squares."""
    near, told = model.near(key), []
    slow = near.slow
    for one in samples:
        if one.candidate.strategy not in slow:
            time = model.time_us(one.candidate.strategy, str(one.candidate), one.knobs, one.terms, near)
            if time is not None:
                told.append((time, log(one.time_us / time)))
    told.sort()
    differing = [min(MOST_OFF, abs(off - told[0][1])) for time, off in told[1:] if time <= NEAR * told[0][0]]
    return float(np.sqrt(np.mean(np.square(differing)))) if differing else None


def judged(trials: Sequence[Trial]) -> list[int]:
    """Which of them tell what a choice loses; none where these are too few."""
    its = [number for number, one in enumerate(trials) if one.regret is not None]
    return its if len(its) >= LEAST_JUDGED else []


def levels(trials: Sequence[Trial], drawn: Array) -> list[Level]:
    """Of doubt, where shapes are in doubt as those that were `drawn`; none by too few trials."""
    its = judged(trials)
    if not its:
        return []
    around = differing_around(trials)
    doubts = np.array([doubt_of(trials[number].contests, float(around[number])) for number in its])
    order = np.argsort(doubts, kind="stable")
    doubts, regrets = doubts[order], np.array([trials[number].regret for number in its])[order] - NOISE
    weights = weights_of(doubts, drawn)
    found, begin, count, beyond = list[Level](), 0, len(its), 0.0
    ends = np.append(np.flatnonzero(np.diff(doubts) > 0) + 1, count)  # those of one doubt are of one level
    for bound, share in zip(BOUNDS, SHARES, strict=True):
        over = np.concatenate([[0.0], np.cumsum(weights[begin:] * (regrets[begin:] > log(bound)))])
        fitting = [end for end in ends if end > begin and over[end - begin] <= share]
        if fitting:
            end = fitting[-1]
            beyond += float(over[end - begin])
            found.append(Level(float(doubts[end]) if end < count else inf, bound))
            begin = end
    if begin < count:
        worst_first = begin + np.argsort(-regrets[begin:], kind="stable")
        more = int(np.searchsorted(np.cumsum(weights[worst_first]), BEYOND - beyond, side="right"))
        most = regrets[worst_first[min(more, count - begin - 1)]]
        found.append(Level(inf, max(float(np.exp(most)), BOUNDS[-1])))
    return found


def weights_of(doubts: Array, drawn: Array) -> Array:
    """Of points by their doubts: together as much as the drawn shapes of each part, 1 in all; alike where none are."""
    if len(drawn):
        limits = np.quantile(drawn, np.arange(1, PARTS) / PARTS)
        parts, shares = np.searchsorted(limits, doubts, side="right"), np.searchsorted(limits, drawn, side="right")
        counts = np.bincount(parts, minlength=PARTS)
        weights: Array = (np.bincount(shares, minlength=PARTS) / np.maximum(counts, 1))[parts]
        if weights.any():
            return np.asarray(weights / weights.sum())
    return np.full(len(doubts), 1.0 / len(doubts))


def drawn_doubts(model: Model, kind: str, device: Device) -> Array:
    """Of choices at shapes of a kind, drawn as the tag `grid` draws its own; of those that are predicted."""
    some = (one for one in spread(DRAWN, seed=5) if kind_of(one.key, device.type) == kind)
    return np.array([doubt for doubt in (doubt_at(model, one, device) for one in some) if doubt is not None])


def doubt_at(model: Model, workload: Workload, device: Device) -> float | None:
    """How much in doubt the choice is; None outside all regions, and where nothing is chosen or a strategy raises."""
    if model.region(workload.key) is None:
        return None
    try:
        found = rivals_at(model, workload, device)
    except Exception:  # it may be anyone's code
        return None
    return model.doubt(workload.key, found) if found else None


def rivals_at(model: Model, workload: Workload, device: Device) -> list[Rival]:
    """The choice and what is near it. Raises what a strategy raises."""
    found = predicting.proposals(workload.problem(device.type), device, model)
    return rivals(one.rival for one in predicting.careful(found, model.bound(workload.key)))


def differing_around(trials: Sequence[Trial]) -> Array:
    """What predictions differ in around each, by the others: as `Model.bound_among` has it."""
    some = [one for one in trials if one.off is not None]
    places, offs = np.array([one.place for one in some]).reshape(-1, 5), np.array([one.off for one in some])
    found = np.empty(len(trials))
    for number, one in enumerate(trials):
        away = np.square(places - np.array(one.place)).sum(axis=1)
        weights = np.where(away < nearby.FARTHEST, np.exp(-away / nearby.REACH**2), 0.0)
        total, weighted = weights.sum(), weights @ offs
        if one.off is not None:  # its own
            total, weighted = total - 1.0, weighted - one.off
        found[number] = (weighted + nearby.DOUBT * OFF) / (total + nearby.DOUBT)
    return found
