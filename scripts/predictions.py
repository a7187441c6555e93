"""Compare ways to predict times where nothing was measured: `python -m scripts.predictions [DATABASE] [--json FILE]`.

Of every point that was measured, without it: the time of what each way would choose there, over the best. By default of
the points that the repository has, all of an H200: docs/figures/predictions is what tuning runs measured, the other
table is of docs/figures/sweep and docs/figures/radix; else of all devices in a tuning database. `--json` adds what the
database has of its first device to a file like docs/figures/predictions/h200.json, in place of older times.
"""

import json
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from math import exp, fsum, log
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

import numpy as np

from autotopk import registry
from autotopk.candidate import TORCH_TOPK, Candidate, knobs_json
from autotopk.device import Device
from autotopk.errors import AutotopkError
from autotopk.key import TuningKey
from autotopk.nearby import Place
from autotopk.prediction import Model, Near, place_of, sizes_of
from autotopk.runtime import predicting
from autotopk.tuning import bounds
from autotopk.tuning.boosting import Array
from autotopk.tuning.fitting import Fit, Sample, Times, by_point, nonnegative, samples_of, times_of
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload
from scripts.drawn import UNMET, drawn_bounds, host_us
from scripts.sweep import device_in, from_json

FIGURES = Path(__file__).parent.parent / "docs" / "figures"

FOLDS = 16
"""Parts of the points that are left out in turn."""

Samples = Sequence[Sample]
Predict = Callable[[Sample], float]
"""A time, or whatever orders the candidates of a point."""


class Left(NamedTuple):
    """What is left of the points, and the model that is fitted to it."""

    samples: Samples
    model: Model
    bare: Model
    """Without trees."""


def recorded() -> tuple[Times, Device]:
    """Microseconds on an H200: 14 whole lattices, and what a few kernels took at 56 points where rules change."""
    swept = json.loads((FIGURES / "sweep" / "h200.json").read_text())
    device, times = device_in(swept), defaultdict[TuningKey, dict[Candidate, float]](dict)
    unit = dict[tuple[int, int, int, str], float]()
    for name in ("h200-serving", "h200-seeds"):
        for row in json.loads((FIGURES / f"{name}.json").read_text())["rows"]:
            if row["sorted"]:
                unit.setdefault((row["rows"], row["cols"], row["k"], row["dtype"]), row["torch_gpu_us"])
    for workload, points in map(from_json, swept["workloads"]):
        torch_us = unit[workload.rows, workload.cols, workload.k, workload.dtype]
        its = {one: ratio * torch_us for one, ratio in points.items() if ratio and _serves(one, workload, device)}
        times[workload.key] = its
    for name in ("h200", "h200-sorted"):
        for row in json.loads((FIGURES / "radix" / f"{name}.json").read_text())["rows"]:
            workload = Workload(row["rows"], row["cols"], row["k"], row["dtype"])
            for label, time_us in row["us"]["random"].items():
                made = row["kernels"].get(label)
                if made and time_us and row["dtype"] == "float32":
                    one = Candidate(made["strategy"], knobs_json(made["config"]))
                    if _serves(one, workload, device):
                        times[workload.key].setdefault(one, time_us)
    return dict(times), device


def tuned(file: Path = FIGURES / "predictions" / "h200.json") -> tuple[Times, Device]:
    """Microseconds on an H200: what one `autotopk tune` measured, named workloads and the grid."""
    found = json.loads(file.read_text())
    candidates, times = [Candidate(*one) for one in found["candidates"]], {}
    for *told, pairs in found["points"]:
        key = TuningKey(*told)
        times[key] = {candidates[at]: us for at, us in zip(pairs[::2], pairs[1::2], strict=True)}
    return times, device_in(found)


def thinned(times: Times, every: int) -> Times:
    """One point of so many."""
    return {key: times[key] for key in sorted(times, key=str)[::every]}


def write(file: Path, times: Times, device: Device) -> None:
    """The inverse."""
    candidates = sorted({one for its in times.values() for one in its})
    places = {one: at for at, one in enumerate(candidates)}
    document = {
        "device": {**asdict(device), "fingerprint": device.fingerprint},
        "candidates": [[one.strategy, one.config] for one in candidates],
        "points": [
            [*asdict(key).values(), [told for one in sorted(its) for told in (places[one], float(f"{its[one]:.4g}"))]]
            for key, its in sorted(times.items(), key=str)
        ],
    }
    lines = json.dumps(document).replace('], ["', '],\n["')
    file.write_text(f"{lines}\n")


def _serves(candidate: Candidate, workload: Workload, device: Device) -> bool:
    """Today; the files are older than some knobs."""
    problem = workload.problem(device.type)
    try:
        strategy = registry.get(candidate.strategy)
        config = strategy.parse_config(candidate.config)
    except AutotopkError:
        return False
    return not strategy.reasons_unable(problem, device) and strategy.valid(config, problem, device)


# Ways, each from the points that are left to what it says of a sample -------------------------------------------------


def nearest_point(left: Left) -> Callable[[TuningKey], Predict]:
    """As it was at the nearest point where it was measured, beside the best there; what was measured nowhere last."""
    best = _best(left.samples)
    by_candidate = defaultdict(list)
    for one in left.samples:
        by_candidate[one.candidate].append((one.key, one.time_us / best[one.key]))

    def at(key: TuningKey) -> Predict:
        def predict(sample: Sample) -> float:
            near = min(((key.distance(other), ratio) for other, ratio in by_candidate[sample.candidate]), default=None)
            return float("inf") if near is None else near[0] * 1e3 + near[1]

        return predict

    return at


def around(left: Left) -> Callable[[TuningKey], Predict]:
    """A mean of logarithms over the points around, weighted by nearness: no physics."""
    by_candidate, everywhere = defaultdict(list), [log(one.time_us) for one in left.samples]
    for one in left.samples:
        by_candidate[one.candidate].append((one.key, log(one.time_us)))
    usual = fsum(everywhere) / max(1, len(everywhere))

    def at(key: TuningKey) -> Predict:
        def predict(sample: Sample) -> float:
            found = [(exp(-((key.distance(other) / 3) ** 2)), told) for other, told in by_candidate[sample.candidate]]
            return (fsum(weight * told for weight, told in found) + 0.01 * usual) / (sum(w for w, _ in found) + 0.01)

        return predict

    return at


def own_curves(left: Left) -> Callable[[TuningKey], Predict]:
    """Each candidate's own coefficients of launch, bytes, rounds of rows, their elements, and k log k."""
    curves = {}
    by_candidate = defaultdict(list)
    for one in left.samples:
        by_candidate[one.candidate].append(one)
    for candidate, group in by_candidate.items():
        relative = np.array([_plain(one.key) for one in group]) / np.array([[one.time_us] for one in group])
        curves[candidate] = nonnegative(relative.T @ relative, relative.sum(axis=0), len(group))

    def predict(sample: Sample) -> float:
        curve = curves.get(sample.candidate)
        return float("inf") if curve is None else float(curve @ np.array(_plain(sample.key)))

    return lambda key: predict


def _plain(key: TuningKey) -> tuple[float, ...]:
    rounds, ordered = -(-key.rows // 132), key.k * np.log2(key.k + 1)
    return 1.0, key.rows * key.cols * 1e-6, rounds, rounds * key.cols * 1e-3, rounds * ordered * 1e-3


def coefficients_alone(left: Left) -> Callable[[TuningKey], Predict]:
    """`Strategy.terms` times a strategy's coefficients."""
    return lambda key: lambda sample: _time(left.bare, sample, Near())


def trees(left: Left) -> Callable[[TuningKey], Predict]:
    """Coefficients, corrected by trees."""
    return lambda key: lambda sample: _time(left.model, sample, Near(sizes=sizes_of(key)))


def _corrected(model: Model, key: TuningKey) -> Predict:
    """By what is left at the points around, too: what run time does. Who is far behind around comes last."""
    near = model.near(key)
    slow = near.slow
    return lambda sample: _time(model, sample, near) * (LAST if sample.candidate.strategy in slow else 1.0)


def gaussian_process(left: Left) -> Callable[[TuningKey], Predict]:
    """Corrected by what Gaussian processes expect there instead: of a strategy, and of a configuration beside it."""
    model = left.model
    measured = defaultdict[str, tuple[list[Place], list[float]]](lambda: ([], []))
    for point in model.points:
        for name, residual in point.residuals.items():
            measured[name][0].append(point.place)
            measured[name][1].append(residual)

    @cache
    def fitted(name: str) -> tuple[Array, Array]:
        places, residuals = map(np.array, measured[name])
        return places, np.linalg.solve(_alike(name, places, places) + NOISE * np.eye(len(places)), residuals)

    def at(key: TuningKey) -> Predict:
        @cache
        def off(name: str) -> float:
            places, weights = fitted(name)
            return float(_alike(name, np.array([place_of(key)]), places)[0] @ weights)

        def predict(sample: Sample) -> float:
            names = sample.candidate.strategy, str(sample.candidate)
            return _time(model, sample, Near(sizes=sizes_of(key))) * exp(
                fsum(off(name) for name in names if name in measured)
            )

        return predict

    return at


LAST = 1e9
"""Times as long as everything else."""

NOISE, LONG, SHORT = 0.3, 8.0, 4.0
"""Of a residual, beside what differs from place to place; doublings to where the residuals of a strategy have nothing
to do with one another, and those of a configuration. Others are no better."""


def _alike(name: str, some: Array, others: Array) -> Array:
    """Wendland's function of the distance."""
    near = 1 - np.minimum(bounds.squared_distances(some, others) ** 0.5 / (SHORT if " " in name else LONG), 1.0)
    return np.asarray(near**4 * (5 - 4 * near))


def _time(model: Model, sample: Sample, near: Near) -> float:
    strategy, name = sample.candidate.strategy, str(sample.candidate)
    found = model.time_us(strategy, name, sample.knobs, sample.terms, near)
    return float("inf") if found is None else found


def _best(samples: Samples) -> Mapping[TuningKey, float]:
    found: dict[TuningKey, float] = {}
    for one in samples:
        found[one.key] = min(one.time_us, found.get(one.key, float("inf")))
    return found


SERVED = "coefficients and trees, corrected around"

WAYS: Mapping[str, Callable[[Left], Callable[[TuningKey], Predict]]] = {
    "the nearest point": nearest_point,
    "means of the points around": around,
    "a curve for each candidate": own_curves,
    "coefficients of terms": coefficients_alone,
    "coefficients, corrected around": lambda left: partial(_corrected, left.bare),
    "coefficients and trees": trees,
    SERVED: lambda left: partial(_corrected, left.model),
    "the same, by Gaussian processes": gaussian_process,
}


class Result(NamedTuple):
    """Of one way: time of the choice over that of the best."""

    points: int
    mean: float
    """Geometric."""
    most_of_20: float
    """At 19 of 20 points it is less."""
    worst: float


def compare(times: Times, device: Device, folds: int = FOLDS) -> dict[str, Result]:
    """Of every way, over all points of all kinds with enough of them; empty where no kind has."""
    regrets = defaultdict[str, list[float]](list)
    for samples in samples_of(times, device).values():
        fit, bare, at = Fit(samples), Fit(samples, trees=False), by_point(samples)
        keys = sorted(at, key=str)
        if len(keys) < bounds.LEAST_POINTS:
            continue
        for held in _parts(keys, folds):
            without = frozenset(held)
            left = Left([one for one in samples if one.key not in without], fit.model(without), bare.model(without))
            for name in WAYS:
                way = WAYS[name](left)
                for key in held:
                    _take(way(key), at[key], regrets[name])
    return {name: _result(regrets[name]) for name in WAYS if regrets[name]}


def _parts(keys: Sequence[TuningKey], folds: int) -> list[Sequence[TuningKey]]:
    """That are left out in turn, none empty."""
    return [keys[fold::folds] for fold in range(min(folds, len(keys)))]


def _take(predict: Predict, samples: Samples, regrets: list[float]) -> None:
    told = [(predict(one), str(one.candidate), one.time_us) for one in samples]
    if len(told) > 1:
        regrets.append(log(min(told)[2] / min(time for _, _, time in told)))


def _result(regrets: list[float]) -> Result:
    most = quantiles(regrets, n=20)[-1] if len(regrets) > 1 else regrets[0]
    return Result(len(regrets), exp(fsum(regrets) / len(regrets)), exp(most), exp(max(regrets)))


def served(times: Times, device: Device, folds: int = FOLDS, least: int = 40) -> dict[TuningKey, float]:
    """Time of what a call would run over that of the best, at left out points where so many candidates were measured.

    Of what run time proposes, the first that was measured there.
    """
    found = {}
    for samples in samples_of(times, device).values():
        fit = Fit(samples)
        lattices = [key for key in fit.keys if len(times[key]) >= least]
        for held in _parts(lattices, folds):
            model = fit.model(frozenset(held))
            for key in held:
                its, problem = times[key], Workload.of(key).problem(device.type)
                proposed = (one.strategy.candidate(one.config) for one in predicting.proposals(problem, device, model))
                chosen = next((one for one in proposed if one in its), TORCH_TOPK)
                found[key] = its[chosen] / min(its.values())
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each device."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("database", nargs="?", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folds", type=int, default=FOLDS, help="parts that are left out in turn: fewer are sooner")
    parser.add_argument("--every", type=int, default=1, help="points for one that is looked at")
    options = parser.parse_args(arguments)
    if options.database is None:
        of_devices = [tuned(), recorded()]
    else:
        with Store.open(options.database, read_only=True) as store:
            of_devices = [
                ({key: times_of(store.evidence(device.fingerprint, key)) for key in keys}, device)
                for device in store.devices()
                if (keys := {one.key for one in store.measurements(device=device.fingerprint)})
            ]
    if options.json:
        times, device = of_devices[0]
        known = tuned(options.json)[0] if options.json.exists() else {}
        write(options.json, {key: {**known.get(key, {}), **times.get(key, {})} for key in {**known, **times}}, device)
    for all_times, device in of_devices:
        times = thinned(all_times, options.every)
        print(f"{device.name}: {len(times)} points, {sum(map(len, times.values()))} times")
        compared = compare(times, device, options.folds)
        if not compared:
            print("too few points to leave any out")
            continue
        print("| chosen by | geometric mean | 19 of 20 | worst |\n|---|--:|--:|--:|")
        for name, its in compared.items():
            print(f"| {name} | {its.mean:.3f} | {its.most_of_20:.3f} | {its.worst:.2f} |")
        if lattices := served(times, device, options.folds):
            mean = exp(fsum(map(log, lattices.values())) / len(lattices))
            print(f"proposed at {len(lattices)} whole lattices: {mean:.3f}, worst {max(lattices.values()):.2f}")
        for kind, model in bounds.fit(times, device).items():
            first, whole = (host_us(find, model, device) for find in (predicting.at_points, predicting.proposals))
            print(f"{kind}: a first call looks {first:.0f} us for what serves it, predictions take {whole:.0f} us")
            told = sorted(region.bound for region in model.regions.values())
            if told:
                counts = f"{len(model.points)} points, {len(told)} regions"
                print(f"{kind}: {counts}, bounds {_middle_and_most(told)}")
            if model.levels:
                drawn = _middle_and_most(drawn_bounds(model, device))
                levels = ", ".join(f"{one.bound:.3f} below a doubt of {one.doubt:.4f}" for one in model.levels)
                print(f"{kind}: bounds {levels}; {drawn} of {UNMET} drawn shapes")


def _middle_and_most(told: Sequence[float]) -> str:
    return f"{told[len(told) // 2]:.3f}, {told[int(0.95 * (len(told) - 1))]:.3f} of 95 %"


if __name__ == "__main__":
    main()
