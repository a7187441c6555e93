"""From what was measured to predicted times: coefficients by least squares, and what they are off by at every point.

Every candidate that was measured is evidence, not the winners alone. The same evidence fits the same numbers.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autotopk import registry
from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.device import Device
from autotopk.errors import UnknownStrategyError, UnsupportedProblemError
from autotopk.key import TuningKey
from autotopk.prediction import Model, Point, kind_of, place_of
from autotopk.tuning.log import Log
from autotopk.tuning_db.winners import Evidence
from autotopk.workloads import Workload

EXTRAPOLATED, ANYTHING = 8.0, 1e30
"""How many times the largest that was measured a term may be that seemed to cost nothing: beyond, nothing is said."""

RIDGE = 1e-3
"""Pull of coefficients towards zero, beside one of a normalised least squares problem."""

SMALL_SLOPE, TINY = 1e-9, 1e-14
"""Slopes that are none, and coefficients."""

Times = Mapping[TuningKey, Mapping[Candidate, float]]
"""Microseconds."""

Array = NDArray[np.float64]


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
    terms: tuple[float, ...]


def samples_of(times: Times, device: Device) -> dict[str, list[Sample]]:
    """By operation, what today's strategies can say the terms of."""
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    for key in sorted(times, key=str):
        problem = Workload.of(key).problem(device.type)
        for candidate in sorted(times[key]):
            try:
                strategy = registry.get(candidate.strategy)
                config = strategy.parse_config(candidate.config)
                terms = tuple(map(float, strategy.terms(config, problem, device)))
            except (UnknownStrategyError, UnsupportedProblemError):
                continue
            except Exception:  # a strategy may be anyone's code
                continue
            if all(0 <= one < float("inf") for one in terms):
                found[key.routing].append(Sample(key, candidate, times[key][candidate], terms))
    return dict(found)


def models(times: Times, device: Device) -> dict[str, Model]:
    """By kind, fitted to all of its points."""
    found = {}
    for samples in samples_of(times, device).values():
        for kind in dict.fromkeys(kind_of(one.key) for one in samples):
            found[kind] = Fit(samples, kind).model()
    return found


class Fit:
    """Of one kind, to all points or some."""

    def __init__(self, samples: Sequence[Sample], kind: str) -> None:
        self.kind = kind
        self._own: defaultdict[str, list[Sample]] = defaultdict(list)
        self._moments: defaultdict[str, dict[TuningKey, tuple[Array, Array, float]]] = defaultdict(dict)
        """Sums of the products of terms, and of the terms, of a strategy at a point."""
        grouped: defaultdict[tuple[str, TuningKey], list[Sample]] = defaultdict(list)
        for one in samples:
            grouped[one.candidate.strategy, one.key].append(one)
            if kind_of(one.key) == kind:
                self._own[one.candidate.strategy].append(one)
        for (strategy, key), group in grouped.items():
            if strategy not in self._own or len({len(one.terms) for one in group}) > 1:
                continue
            relative = np.array([one.terms for one in group]) / np.array([[one.time_us] for one in group])
            least = min(one.time_us for one in group)
            weights = np.array([least / one.time_us for one in group]) / len(group) ** 0.5
            self._moments[strategy][key] = (
                relative.T @ (relative * weights[:, None]),
                relative.T @ weights,
                float(weights.sum()),
            )

    @property
    def keys(self) -> list[TuningKey]:
        """The points of the kind."""
        return list(dict.fromkeys(one.key for group in self._own.values() for one in group))

    def model(self, without: frozenset[TuningKey] = frozenset()) -> Model:
        """Fitted to all points but some."""
        model = Model()
        points: dict[TuningKey, Point] = {}
        for strategy, group in self._own.items():
            at = [moments for key, moments in self._moments[strategy].items() if key not in without]
            left = [one for one in group if one.key not in without]
            if left:
                products, sums = np.sum([one[0] for one in at], axis=0), np.sum([one[1] for one in at], axis=0)
                coefficients = nonnegative(products, sums, sum(one[2] for one in at))
                largest = EXTRAPOLATED * np.max([one.terms for one in left], axis=0)
                largest = np.where((coefficients > 0) | (largest <= 0), ANYTHING, largest)
                model.strategies[strategy] = (*map(float, coefficients), *map(float, largest))
                _take_residuals(model, points, left, coefficients)
        model.points = [points[key] for key in sorted(points, key=place_of)]
        return model


def _take_residuals(model: Model, points: dict[TuningKey, Point], samples: Sequence[Sample], found: Array) -> None:
    """What a strategy is off by at every point, in the mean, and then each of its configurations."""
    predicted = np.array([one.terms for one in samples]) @ found
    samples = [one for one, time in zip(samples, predicted, strict=True) if time > 0]
    off = {one: log(one.time_us / time) for one, time in zip(samples, predicted[predicted > 0], strict=True)}
    by_key = defaultdict(list)
    for one in samples:
        model.candidates[str(one.candidate)] = model.candidates.get(str(one.candidate), 0) + 1
        by_key[one.key].append(one)
    for key, group in by_key.items():
        least = min(one.time_us for one in group)
        weights = [least / one.time_us for one in group]
        mean = sum(weight * off[one] for weight, one in zip(weights, group, strict=True)) / sum(weights)
        point = points.setdefault(key, Point(place_of(key), {}, {}))
        point.strategies[group[0].candidate.strategy] = mean
        point.candidates.update({str(one.candidate): off[one] - mean for one in group})


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
