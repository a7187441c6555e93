"""From what was measured to predicted times: coefficients by least squares, trees, and what is left at every point.

Every candidate that was measured is evidence, not the winners alone. The same evidence fits the same numbers.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autotopk import registry
from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.device import Device
from autotopk.key import TuningKey
from autotopk.prediction import Example, Model, Point, far_behind, kind_of, place_of, sizes_of
from autotopk.strategy import numbers
from autotopk.tuning.boosting import Array, Binned, boosted
from autotopk.tuning.log import Log
from autotopk.tuning_db.winners import Evidence
from autotopk.workloads import Workload

EXTRAPOLATED, ANYTHING = 8.0, 1e30
"""How many times the largest that was measured a term may be that seemed to cost nothing: beyond, nothing is said."""

RIDGE = 1e-3
"""Pull of terms towards equal shares of the time, beside one of a normalised least squares problem."""

SMALL_SLOPE, TINY = 1e-9, 1e-14
"""Slopes that are none, and coefficients."""

LEAST_GROWN = 80
"""Points of a strategy that has trees: those of fewer, however many candidates were measured there, mislead."""

Times = Mapping[TuningKey, Mapping[Candidate, float]]
"""Microseconds."""


def times_of(evidence: Iterable[Evidence]) -> dict[Candidate, float]:
    """Of one key, from the oldest measurement to the last: microseconds, as raced where they were, else as screened.

    As multiples of torch.topk's in the same rounds, and so comparable, times its time over all of them.
    """
    evidence = list(evidence)
    if not evidence:
        return {}
    found = Log.of(evidence, evidence[-1].baseline)
    good = {one: found.raced.get(one, last) for one, last in found.latest.items() if last.status == "ok"}
    baselines = [time for one in good.values() for time in one.baseline_us]
    if not baselines:
        return {}
    unit = median(baselines)
    return {one: unit * (1.0 if one == TORCH_TOPK else last.ratio) for one, last in good.items() if last.ratio}


@dataclass(frozen=True, slots=True)
class Sample:
    """One candidate's time at one point, and what it is made of."""

    key: TuningKey
    candidate: Candidate
    time_us: float
    knobs: tuple[float, ...]
    terms: tuple[float, ...]


def samples_of(times: Times, device: Device) -> dict[str, list[Sample]]:
    """By kind, what today's strategies can say the terms of."""
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    for key in sorted(times, key=str):
        problem = Workload.of(key).problem(device.type)
        for candidate in sorted(times[key]):
            try:
                strategy = registry.get(candidate.strategy)
                config = strategy.parse_config(candidate.config)
                knobs, terms = numbers(config), tuple(map(float, strategy.terms(config, problem, device)))
            except Exception:  # not installed, of another version, or anyone's code
                continue
            if all(0 <= one < inf for one in terms):
                found[kind_of(key, device.type)].append(Sample(key, candidate, times[key][candidate], knobs, terms))
    return dict(found)


def by_point(samples: Iterable[Sample]) -> dict[TuningKey, list[Sample]]:
    """The same, those of a point together."""
    found: defaultdict[TuningKey, list[Sample]] = defaultdict(list)
    for one in samples:
        found[one.key].append(one)
    return dict(found)


@dataclass(frozen=True)
class _Group:
    """A strategy's samples at one point."""

    names: list[str]
    """Of the candidates."""
    numbers: NDArray[np.intp]
    """Which these are of all samples of the strategy."""
    times_us: Array
    terms: Array
    """A row of each."""
    weights: Array
    """What the quickest of all strategies takes there, over what they take."""
    products: Array
    """Means over the samples of the products of relative terms, and of these: points count alike in coefficients."""
    sums: Array

    @classmethod
    def of(cls, samples: Sequence[Sample], first: int, least_us: float) -> "_Group":
        times, terms = np.array([one.time_us for one in samples]), np.array([one.terms for one in samples])
        weights = least_us / times
        relative, share = terms / times[:, None], weights / len(samples)
        products, sums = relative.T @ (relative * share[:, None]), relative.T @ share
        numbers, names = np.arange(first, first + len(samples)), [str(one.candidate) for one in samples]
        return cls(names, numbers, times, terms, weights, products, sums)

    def off(self, coefficients: Array) -> Array:
        """Logarithms of what the times are of those that coefficients predict; empty where these say nothing."""
        predicted = self.terms @ coefficients
        return np.log(self.times_us / predicted) if (predicted > 0).all() else np.empty(0)


class Fit:
    """Of one kind, to all points or some."""

    def __init__(self, samples: Sequence[Sample], *, trees: bool = True) -> None:
        """Set up; without trees it takes a tenth of the time."""
        grouped: defaultdict[str, defaultdict[TuningKey, list[Sample]]] = defaultdict(lambda: defaultdict(list))
        lengths: dict[str, tuple[int, int]] = {}
        for one in samples:
            strategy, length = one.candidate.strategy, (len(one.knobs), len(one.terms))
            if lengths.setdefault(strategy, length) == length:
                grouped[strategy][one.key].append(one)
        bests = defaultdict[TuningKey, dict[str, float]](dict)
        for strategy, at in grouped.items():
            for key, group in at.items():
                bests[key][strategy] = min(one.time_us for one in group)
        self._groups: defaultdict[str, dict[TuningKey, _Group]] = defaultdict(dict)
        self._binned: dict[str, Binned] = {}
        for strategy, at in grouped.items():
            its: list[Sample] = []
            for key, group in at.items():
                self._groups[strategy][key] = _Group.of(group, len(its), min(bests[key].values()))
                its += group
            if trees and len(at) >= LEAST_GROWN:
                traits = [(*sizes_of(one.key), *one.knobs, *one.terms) for one in its]
                self._binned[strategy] = Binned(np.array(traits, dtype=np.float64))
        self._slow = {key: far_behind(best) for key, best in bests.items()}
        self._examples = {one.candidate.strategy: Example(one.key, one.candidate, one.terms) for one in samples}
        self.keys = list(dict.fromkeys(one.key for one in samples))
        """The points."""

    def model(self, without: frozenset[TuningKey] = frozenset()) -> Model:
        """Fitted to all points but some."""
        model, points = Model(), dict[TuningKey, Point]()
        for strategy, groups in self._groups.items():
            left = {key: group for key, group in groups.items() if key not in without}
            if left:
                coefficients = self._coefficients(list(left.values()))
                largest = EXTRAPOLATED * np.max([group.terms.max(axis=0) for group in left.values()], axis=0)
                largest = np.where((coefficients > 0) | (largest <= 0), ANYTHING, largest)
                model.strategies[strategy] = (*coefficients.tolist(), *largest.tolist())
                for group in left.values():
                    for name in group.names:
                        model.candidates[name] = model.candidates.get(name, 0) + 1
                told = {key: off for key, group in left.items() if (off := group.off(coefficients)).size}
                for key in left:
                    points.setdefault(key, Point(place_of(key), {}, self._slow[key]))
                for key, off in self._beside_trees(model, strategy, told).items():
                    _take_residuals(points[key], strategy, left[key], off)
                model.examples.append(self._examples[strategy])
        model.points = [points[key] for key in sorted(points, key=place_of)]
        return model

    def _beside_trees(self, model: Model, strategy: str, told: Mapping[TuningKey, Array]) -> Mapping[TuningKey, Array]:
        """What trees, which the model gets where there are samples enough, leave of what coefficients are off by."""
        binned, groups = self._binned.get(strategy), [self._groups[strategy][key] for key in told]
        if binned is None or len(groups) < LEAST_GROWN:
            return told
        numbers, weights = (
            np.concatenate([one.numbers for one in groups]),
            np.concatenate([one.weights for one in groups]),
        )
        model.forests[strategy], left = boosted(binned, numbers, np.concatenate([*told.values()]), weights, len(told))
        ends = np.cumsum([len(group.names) for group in groups])
        return dict(zip(told, np.split(left, ends[:-1]), strict=True))

    def _coefficients(self, groups: Sequence[_Group]) -> Array:
        products = np.sum([group.products for group in groups], axis=0)
        sums = np.sum([group.sums for group in groups], axis=0)
        return nonnegative(products, sums, float(sum(group.weights.mean() for group in groups)))


def _take_residuals(point: Point, strategy: str, group: _Group, off: Array) -> None:
    """What a strategy is off by at a point, in the mean, and then each of its configurations."""
    mean = float(off @ group.weights / group.weights.sum())
    point.residuals[strategy] = mean
    point.residuals.update(zip(group.names, (off - mean).tolist(), strict=True))


def nonnegative(products: Array, sums: Array, weight: float) -> Array:
    """The x >= 0 of the least |A x - 1|^2, where A^T A and A^T 1 are given; by Lawson and Hanson's active sets."""
    size = np.sqrt(np.maximum(np.diag(products) / weight, 0.0))
    some = size > 0
    scale = np.where(some, size, 1.0)
    gram = products / weight / np.outer(scale, scale) + RIDGE * np.eye(len(scale))
    wanted = np.where(some, sums / weight / scale + RIDGE / len(scale), 0.0)
    found, free = np.zeros(len(scale)), np.zeros(len(scale), dtype=bool)
    for _ in range(3 * len(scale)):
        slope = np.where(free, -np.inf, wanted - gram @ found)
        entering = int(np.argmax(slope))
        if slope[entering] <= SMALL_SLOPE:
            break
        free[entering] = True
        while True:
            tried = np.zeros(len(scale))
            tried[free] = np.linalg.solve(gram[np.ix_(free, free)], wanted[free])
            below = free & (tried <= 0)
            if not below.any():
                found = tried
                break
            step = np.min(found[below] / (found[below] - tried[below]))
            found = np.where(free, found + step * (tried - found), 0.0)
            leaving = free & (found <= TINY)
            free &= ~(leaving | (below & (found <= TINY)))
            found[~free] = 0.0
    return np.asarray(found / scale)
