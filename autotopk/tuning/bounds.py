"""How far from the best a choice by predicted times may be: regrets at points that were left out of the fit.

A point's regret is the measured time of what is predicted to be the quickest there, over that of the quickest; as a
logarithm. Around a place they have a scale, a weighted mean; the bound is some times that, and as much more as all
points but one in a hundred need, each by the scale of the others. So it is narrow where all choices around were good,
and wide where some were bad. What levels of doubt tell beside that is in `tuning.doubts`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import ceil, floor, inf, log
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotopk.device import Device
from autotopk.errors import ArtifactError
from autotopk.fitted import Fitted, rows_of
from autotopk.key import TuningKey
from autotopk.nearby import Place
from autotopk.prediction import (
    CELL,
    OTHER_ORDER,
    OTHER_WIDTH,
    Cell,
    Model,
    Region,
    cell_of,
    far_behind,
    kind_of,
    place_of,
)
from autotopk.runtime import predicting
from autotopk.tuning import doubts
from autotopk.tuning.boosting import Array
from autotopk.tuning.fitting import Fit, Sample, Times, by_point, samples_of, times_of
from autotopk.tuning_db import artifact
from autotopk.tuning_db.store import Store
from autotopk.tuning_db.winners import Evidence
from autotopk.workloads import Workload

FOLDS, FEWEST_FOLDS, FOLDED = 64, 8, 3200
"""Most and fewest fits that leave points out, of few points each alone; together they are fitted to about so many."""

LEAST_POINTS = 3
"""Of a region, and of a kind of problems that is predicted."""

RADIUS = 4.0
"""Doublings from the middle of a region to the points that it rests on."""

REACH = 2.0
"""Doublings to where a regret's weight is down to exp(-1)."""

USUAL, WEIGHTS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1), (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Scales that may be believed as much as one point at the very place, and how many of them bounds may be wide: those
that make bounds the narrowest are."""

MOST_DISTANCES = 1 << 24
"""At a time."""

COVERED = 0.99
"""Share of the points that are within their bounds."""


class Regret(NamedTuple):
    """At a point that was left out."""

    key: TuningKey
    place: Place
    logarithm: float
    """Of the time of the choice over that of the best."""


def fit(times: Times, device: Device, *, trees: bool = True) -> dict[str, Model]:
    """By kind, with regions; of kinds with too few points none. See `Fit` for what trees cost."""
    found = {}
    for kind, samples in samples_of(times, device).items():
        fitted = Fit(samples, trees=trees)
        if len(fitted.keys) >= LEAST_POINTS:
            model = found[kind] = fitted.model()
            its, trials = [], list[doubts.Trial]()
            for one in left_out(fitted, samples):
                its += regrets_of(one)
                if trees:
                    trials.append(doubts.trial_of(*one, device))
            model.regions = regions(its)
            if trees:
                look_ahead(model, fitted.keys, device)
                tell_doubts(model, kind, trials, device)
    return found


def tell_doubts(model: Model, kind: str, trials: Sequence[doubts.Trial], device: Device) -> None:
    """Give a model levels of doubt, if there are enough trials, and its points what these ask for."""
    if not doubts.judged(trials):
        return
    offs = {one.place: one.off for one in trials}
    for point in model.points:
        point.off = offs.get(point.place)
    model.levels = doubts.levels(trials, doubts.drawn_doubts(model, kind, device))


def look_ahead(model: Model, keys: Iterable[TuningKey], device: Device) -> None:
    """Predict at every point what calls then need not: who is far behind there and was not measured, and the first."""
    told = {place_of(key): _predicted(model, key, device) for key in keys}
    for point in model.points:
        slow, first = told[point.place]
        point.slow |= slow - point.residuals.keys()
        point.first = first


def _predicted(model: Model, key: TuningKey, device: Device) -> tuple[frozenset[str], str]:
    """Far behind at a point, and the first there; nobody where a strategy raises, which may be anyone's code."""
    try:
        found = predicting.all_proposals(Workload.of(key).problem(device.type), device, model)
        likely = (one.name for one in predicting.careful(found, model.bound(key)) if one.at_once and one.points)
        return far_behind(predicting.bests(found)), next(likely, "")
    except Exception:
        return frozenset(), ""


def bound(models: Mapping[str, Model], device_type: str, key: TuningKey) -> float:
    """How many times the best time a choice may take, by what was fitted; infinite where nothing was measured."""
    model = models.get(kind_of(key, device_type))
    return inf if model is None else model.bound(key)


def fits(store: Store, fingerprint: str | None = None, *, trees: bool = True) -> dict[Device, dict[str, Model]]:
    """What is fitted to all that counts in a tuning database, of one device or all, by kind."""
    evidence: defaultdict[Device, defaultdict[TuningKey, list[Evidence]]] = defaultdict(lambda: defaultdict(list))
    for one in store.evidence(fingerprint):
        evidence[one.measurement.device][one.measurement.key].append(one)
    return {
        device: fit({key: times_of(found) for key, found in its.items()}, device, trees=trees)
        for device, its in evidence.items()
    }


def fitted_again(store: Store, device: Device, published: Path) -> list[Fitted]:
    """What is published when one device was measured: of the others, of which a fleet has many, what was published."""
    try:
        kept = [Fitted.of(row) for row in artifact.contents(published).fitted if row[0] != device.fingerprint]
    except (ArtifactError, ValueError):  # there is none, or it is damaged
        return fitted(store)
    missing = {one.fingerprint for one in store.devices()} - {one.device for one in kept}
    return kept + [row for fingerprint in sorted(missing) for row in fitted(store, fingerprint)]


def fitted(store: Store, fingerprint: str | None = None) -> list[Fitted]:
    """What is published beside the winners of a tuning database, of one device or all."""
    return [
        row
        for device, models in fits(store, fingerprint).items()
        for kind, model in models.items()
        for row in rows_of(model, device.fingerprint, kind)
    ]


def left_out(fitted: Fit, samples: Sequence[Sample]) -> Iterator[tuple[Model, TuningKey, Sequence[Sample]]]:
    """Every point of a kind where there was a choice, behind a model without it."""
    at = by_point(samples)
    for held in folds(sorted((key for key in at if len(at[key]) > 1), key=str)):
        model = fitted.model(frozenset(held))
        yield from ((model, key, at[key]) for key in held)


def regrets(fitted: Fit, samples: Sequence[Sample]) -> list[Regret]:
    """At all of these."""
    return [regret for one in left_out(fitted, samples) for regret in regrets_of(one)]


def regrets_of(one: tuple[Model, TuningKey, Sequence[Sample]]) -> list[Regret]:
    """At one of these; none where the model chooses nothing."""
    model, key, its = one
    regret = regret_of(model, key, its)
    return [] if regret < 0 else [Regret(key, place_of(key), regret)]


def folds(keys: Sequence[TuningKey]) -> list[Sequence[TuningKey]]:
    """Points that are left out together."""
    count = min(FOLDS, max(FEWEST_FOLDS, FOLDED // max(1, len(keys))), len(keys))
    return [keys[fold::count] for fold in range(count)]


def regret_of(model: Model, key: TuningKey, samples: Iterable[Sample]) -> float:
    """Of the choice among all that was measured at a point; negative where the model chooses nothing."""
    near, best, chosen = model.near(key), inf, None
    slow = near.slow
    for one in samples:
        strategy, name = one.candidate.strategy, str(one.candidate)
        time = model.time_us(strategy, name, one.knobs, one.terms, near)
        best = min(best, one.time_us)
        if time is not None:
            rank = strategy in slow, time, name  # as run time does: those far behind where nothing else is able
            if chosen is None or rank < chosen[0]:
                chosen = rank, one.time_us
    return -1.0 if chosen is None else log(chosen[1] / best)


def regions(regrets: Sequence[Regret]) -> dict[Cell, Region]:
    """Of all cells around the points."""
    if len(regrets) < LEAST_POINTS:
        return {}
    places, found = np.array([one.place for one in regrets]), np.array([one.logarithm for one in regrets])
    cells = np.array(sorted({near for one in regrets for near in _around(one)}))
    at_points, at_cells = sums_around(places, places, found), sums_around(_middles(cells), places, found)
    at_points = at_points._replace(weights=at_points.weights - 1.0, weighted=at_points.weighted - found)  # of others
    enough = at_cells.points >= LEAST_POINTS
    told = min(
        (logarithms(at_cells, at_points, found, usual, weight)[enough] for usual in USUAL for weight in WEIGHTS),
        key=lambda bounds: float(np.sum(bounds)),
    )
    rows = zip(cells[enough].tolist(), np.exp(told).tolist(), at_cells.points[enough].tolist(), strict=True)
    return {(row, col, k, width, order): Region(bound, around) for (row, col, k, width, order), bound, around in rows}


class Sums(NamedTuple):
    """Of the regrets around some places."""

    weights: Array
    weighted: Array
    """Regrets times their weights."""
    points: NDArray[np.intp]
    """Within `RADIUS`."""

    def scales(self, usual: float) -> Array:
        """Of the regrets: weighted means, pulled towards what is usual."""
        return (usual + self.weighted) / (1.0 + self.weights)


def sums_around(some: Array, places: Array, regrets: Array) -> Sums:
    """At some places, of the regrets at others; a part at a time, since all distances of a large fit fill memory."""
    found = []
    for part in np.array_split(some, max(1, len(some) * len(places) // MOST_DISTANCES)):
        away = squared_distances(part, places)
        weights = np.exp(-away / REACH**2)
        found.append((weights.sum(axis=1), weights @ regrets, np.count_nonzero(away <= RADIUS**2, axis=1)))
    return Sums(*map(np.concatenate, zip(*found, strict=True)))


def logarithms(there: Sums, at_points: Sums, regrets: Array, usual: float, weight: float) -> Array:
    """Of the bounds there, by the sums at the points, each without its own regret."""
    over = np.sort(regrets - weight * at_points.scales(usual))
    covered = min(len(over), ceil(COVERED * (len(over) + 1)))
    return weight * there.scales(usual) + max(0.0, float(over[covered - 1]))


def squared_distances(some: Array, others: Array) -> Array:
    """In doublings, of each from each."""
    return np.asarray(sum((one[:, None] - other[None, :]) ** 2 for one, other in zip(some.T, others.T, strict=True)))


def _middles(cells: NDArray[np.int64]) -> Array:
    return np.hstack([(cells[:, :3] + 0.5) * CELL, OTHER_WIDTH * cells[:, 3:4], OTHER_ORDER * cells[:, 4:]])


def _around(one: Regret) -> Iterable[Cell]:
    reach = floor(RADIUS / CELL)
    rows, cols, ks, width, order = cell_of(one.key)
    sizes = (range(max(0, at - reach), at + reach + 1) for at in (rows, cols, ks))
    return ((row, col, k, width, order) for row, col, k in product(*sizes) if k <= col)
