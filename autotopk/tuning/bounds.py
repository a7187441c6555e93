"""How far from the best a choice by predicted times may be: regrets at points that were left out of the fit.

A point's regret is the measured time of what is predicted to be the quickest there, over that of the quickest; as a
logarithm. Around a place they have a scale, a weighted root mean square; the bound is as many times that as all points
but one in a hundred stay within, each by the scale of the others.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import ceil, exp, floor, inf, log
from typing import NamedTuple

import numpy as np

from autotopk.device import Device
from autotopk.key import TuningKey
from autotopk.prediction import CELL, Cell, Fitted, Model, Region, kind_of, place_of, rows_of
from autotopk.problem import Problem
from autotopk.tuning.fitting import Array, Fit, Sample, Times, samples_of, times_of
from autotopk.tuning_db.store import Store
from autotopk.tuning_db.winners import Evidence

FOLDS = 16
"""Fits that leave points out, each a sixteenth of them; of fewer points each is left out alone."""

LEAST_POINTS = 3
"""Of a region, and of a kind of problems that is predicted."""

RADIUS = 4.0
"""Doublings from the middle of a region to the points that it rests on."""

REACH = 3.0
"""Doublings to where a regret's weight is down to exp(-1)."""

USUAL = 0.01
"""A scale that is believed as much as one point at the very place."""

COVERED = 0.99
"""Share of the points that are within their bounds."""


class Regret(NamedTuple):
    """At a point that was left out."""

    key: TuningKey
    place: tuple[float, float, float]
    """Doublings of rows, cols, k."""
    logarithm: float
    """Of the time of the choice over that of the best."""


def fit(times: Times, device: Device) -> dict[str, Model]:
    """By kind, with regions; of kinds with too few points none."""
    found = {}
    for samples in samples_of(times, device).values():
        for kind in dict.fromkeys(kind_of(one.key) for one in samples):
            fitted = Fit(samples, kind)
            if len(fitted.keys) >= LEAST_POINTS:
                model = found[kind] = fitted.model()
                model.regions = regions(regrets(fitted, samples))
    return found


def bound(models: Mapping[str, Model], problem: Problem) -> float:
    """How many times the best time a choice may take, by what was fitted; infinite where nothing was measured."""
    key = TuningKey.of(problem)
    model = models.get(kind_of(key))
    return inf if model is None else model.bound(key)


def fitted(store: Store) -> list[Fitted]:
    """What is published beside the winners of a tuning database."""
    evidence: defaultdict[Device, defaultdict[TuningKey, list[Evidence]]] = defaultdict(lambda: defaultdict(list))
    for one in store.evidence():
        evidence[one.measurement.device][one.measurement.key].append(one)
    return [
        row
        for device, its in evidence.items()
        for kind, model in fit({key: times_of(found) for key, found in its.items()}, device).items()
        for row in rows_of(model, device.fingerprint, kind)
    ]


def regrets(fitted: Fit, samples: Sequence[Sample]) -> list[Regret]:
    """At every point of a kind, by fits without it."""
    keys = sorted(fitted.keys, key=str)
    at: dict[TuningKey, list[Sample]] = {key: [] for key in keys}
    for one in samples:
        if one.key in at:
            at[one.key].append(one)
    found = []
    for fold in range(min(FOLDS, len(keys))):
        held = keys[fold::FOLDS]
        model = fitted.model(frozenset(held))
        found += [Regret(key, place_of(key), regret) for key in held if (regret := regret_of(model, key, at[key])) >= 0]
    return found


def regret_of(model: Model, key: TuningKey, samples: Iterable[Sample]) -> float:
    """Of the choice among all that was measured at a point; negative where the model chooses nothing."""
    near, best, chosen = model.near(key), float("inf"), None
    for one in samples:
        name = str(one.candidate)
        time = model.time_us(one.candidate.strategy, name, one.terms, near)
        best = min(best, one.time_us)
        if time is not None and (chosen is None or (time, name) < chosen[:2]):
            chosen = time, name, one.time_us
    return -1.0 if chosen is None else log(chosen[2] / best)


def regions(regrets: Sequence[Regret]) -> dict[Cell, Region]:
    """Of all cells around the points."""
    if len(regrets) < LEAST_POINTS:
        return {}
    places, squares = np.array([one.place for one in regrets]), np.array([one.logarithm**2 for one in regrets])
    times, found = factor(places, squares), {}
    for cell in sorted({near for place in places for near in _around(place)}):
        middle = (np.array(cell) + 0.5) * CELL
        points = int(np.count_nonzero(np.linalg.norm(places - middle, axis=1) <= RADIUS))
        if points >= LEAST_POINTS:
            found[cell] = Region(exp(times * scale(middle, places, squares)), points)
    return found


def scale(place: Array, places: Array, squares: Array) -> float:
    """Of the regrets around a place."""
    weights = np.exp(-((places - place) ** 2).sum(axis=1) / REACH**2)
    return float(((USUAL**2 + weights @ squares) / (1.0 + weights.sum())) ** 0.5)


def factor(places: Array, squares: Array) -> float:
    """How many times the scale of the others a regret is at most, but for the rarest."""
    others = np.array([np.arange(len(places)) != at for at in range(len(places))])
    times = [
        (square**0.5) / scale(place, places[others[at]], squares[others[at]])
        for at, (place, square) in enumerate(zip(places, squares, strict=True))
    ]
    covered = ceil(COVERED * (len(times) + 1))
    return max(1.0, float(sorted(times)[min(len(times), covered) - 1]))


def _around(place: Array) -> Iterable[Cell]:
    reach = floor(RADIUS / CELL)
    row, col, k = (range(max(0, at - reach), at + reach + 1) for at in (floor(one / CELL) for one in map(float, place)))
    return product(row, col, k)
