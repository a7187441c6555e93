"""More evidence for predictions: `python -m scripts.evidence FILE [--again NAME ...] [--worst N] [--drawn N] ...`.

FILE is like docs/figures/predictions/h200.json, and is written anew. With `--again` what strategies took near the
best, at the points that it has, is timed again: after a kernel has changed, its times from before make predictions
wrong. With `--add` what new strategies shortlist is timed at the points that have no times of them. With `--worst` all
that took about the best is, at so many points whose choice by all others was the worst: one of a thousand times that
was wrong looks like that. With `--drawn` what is predicted to be near the best is timed at new
shapes, drawn as the tag `grid` draws them, with `--doubted` at those of them, one in ten, whose choices are the most in
doubt; with `--beside` at one shape beside each of the worst points. All of a point are timed by turns, without
torch.topk, and nothing is compiled that few points ask for: a race tells more of one point, this a little of hundreds a
minute. What one GPU takes is told as the GPU of the file would, by what the best of all others at a point took before.
"""

import random
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import torch

from autotopk import registry
from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.device import Device, device_of
from autotopk.doubt import RIVAL
from autotopk.key import TuningKey
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.runtime import launch, predicting
from autotopk.runtime.winners import layers, read_layers
from autotopk.tuning import bounds, doubts, timing
from autotopk.tuning.candidates import program_of
from autotopk.tuning.compile_pool import CompilePool
from autotopk.tuning.fitting import Fit, Times, samples_of
from autotopk.workloads import Workload, spread
from scripts.predictions import tuned, write

DOUBTED = 10
"""Shapes of which the one whose choice is the most in doubt is asked for."""

NEAR, LEAST_ASKING = 1.5, 4
"""Times the best that is near it; points that ask for a kernel that is to be compiled, so many at least."""

AWAY = 0.7
"""Doublings of a size, at most, to what is beside a point."""

MOST_BYTES = 600_000_000
"""Of an input."""

SAMPLES, ENOUGH_US = 7, 20_000.0
"""Of each candidate, and microseconds that one is to fill."""

MOST_DIFFERENT = 1.1
"""How many times as long the other GPU may take; beyond, a point's measurement is at fault."""

ALL = frozenset(one.name for one in registry.available())

Asked = Mapping[TuningKey, Collection[Candidate]]


def again(times: Times, strategies: Collection[str]) -> dict[TuningKey, list[Candidate]]:
    """What they took near the best where they did, and the best of all others there."""
    found = {}
    for key, its in times.items():
        near = [one for one, us in its.items() if one.strategy in strategies and us <= NEAR * min(its.values())]
        if near and not key.routing and bytes_of(key) <= MOST_BYTES:
            found[key] = near + best_other(its, strategies)
    return found


def best_other(its: Mapping[Candidate, float], strategies: Collection[str]) -> list[Candidate]:
    """The best that is of none of the strategies, nor torch.topk; none where there is none."""
    others = [one for one in its if one.strategy not in strategies and one != TORCH_TOPK]
    return sorted(others, key=lambda one: (its[one], one))[:1]


def added(times: Times, strategies: Collection[str], device: Device) -> dict[TuningKey, list[Candidate]]:
    """What strategies that have no times at a point ask for there, and the best of the others."""
    found = {}
    for key, its in times.items():
        best = best_other(its, strategies)
        if key.routing or bytes_of(key) > MOST_BYTES or not best:
            continue
        problem, known = problem_of(key, device.type), {one.strategy for one in its}
        new = [
            strategy.candidate(config)
            for strategy in map(registry.get, strategies)
            if strategy.name not in known and not strategy.reasons_unable(problem, device)
            for config in dict.fromkeys((*strategy.ladder(problem, device), *strategy.shortlist(problem, device)))
        ]
        if new:
            found[key] = new + best
    return found


def worst(times: Times, device: Device, count: int) -> list[TuningKey]:
    """Where what is chosen by a fit without the point takes the most times the best."""
    regrets = list[bounds.Regret]()
    for samples in samples_of(times, device).values():
        regrets += bounds.regrets(Fit(samples), samples)
    regrets.sort(key=lambda one: (-one.logarithm, str(one.key)))
    return [one.key for one in regrets[:count]]


def doubted(count: int, device: Device, seed: int) -> list[Workload]:
    """Of drawn shapes those whose choices are the most in doubt, these first."""
    layered, found = read_layers(layers()), list[tuple[float, Workload]]()
    for workload in spread(DOUBTED * count, seed=seed):
        model = predicting.model_for(workload.key, device, layered)
        doubt = None if model is None else doubts.doubt_at(model, workload, device)
        if doubt is not None:
            found.append((doubt, workload))
    found.sort(key=lambda one: -one[0])
    return [workload for _, workload in found[:count]]


def beside(keys: Iterable[TuningKey], seed: int) -> Iterator[Workload]:
    """One of every size a little larger or smaller; of all columns all again."""
    chance = random.Random(seed)
    for key in keys:
        rows, cols, k = (max(1, round(one * 2 ** chance.uniform(-AWAY, AWAY))) for one in (key.rows, key.cols, key.k))
        yield Workload(rows, cols, cols if key.k == key.cols else min(k, cols), key.dtype, key.sorted)


def proposed(
    workloads: Iterable[Workload], count: int, device: Device, known: Times, near: float = NEAR
) -> dict[TuningKey, list[Candidate]]:
    """What is predicted to be near the best at the first of the shapes that are not known."""
    found: dict[TuningKey, list[Candidate]] = {}
    layered = read_layers(layers())
    for workload in workloads:
        key = workload.key
        model = predicting.model_for(key, device, layered)
        if model is None or key.routing or key in known or bytes_of(key) > MOST_BYTES:
            continue
        proposals = predicting.proposals(workload.problem(device.type), device, model)
        least = min((one.time_us for one in proposals), default=0.0)
        found[key] = [one.strategy.candidate(one.config) for one in proposals if one.time_us <= near * least]
        if len(found) == count:
            break
    return found


def bytes_of(key: TuningKey) -> int:
    """Of an input."""
    return key.rows * key.cols * DTYPE_BYTES[key.dtype]


def problem_of(key: TuningKey, device_type: str) -> Problem:
    """Contiguous."""
    return Workload.of(key).problem(device_type)


def without_rare(asked: Asked, device: Device) -> dict[TuningKey, list[Candidate]]:
    """Those that are there, or that enough points ask for."""
    lacking: dict[tuple[TuningKey, Candidate], list[Path]] = {}
    for key, candidates in asked.items():
        for one in candidates:
            sources = program_of(one, problem_of(key, device.type), device).sources
            lacking[key, one] = [
                source.cache_path(device.arch) for source in sources if not source.is_cached(device.arch)
            ]
    asking = Counter(path for paths in lacking.values() for path in paths)
    return {
        key: [one for one in candidates if all(asking[path] >= LEAST_ASKING for path in lacking[key, one])]
        for key, candidates in asked.items()
    }


def timed(
    asked: Asked, device: torch.device, seconds: float = float("inf")
) -> Iterator[tuple[TuningKey, dict[Candidate, float]]]:
    """Microseconds, point by point in an order without a pattern, until time is up; where one fails, without it.

    Those of which all is there come first: the others are compiled meanwhile.
    """
    place, until = device_of(device), time.monotonic() + seconds
    points = sorted(asked.items(), key=str)
    random.Random(0).shuffle(points)
    pool = CompilePool(place)
    try:
        needed = {key: pool.submit(problem_of(key, place.type), candidates) for key, candidates in points}
        points.sort(key=lambda point: not all(kernel.done() for kernel in needed[point[0]]))
        for key, candidates in points:
            problem = problem_of(key, place.type)
            built = [one for one, build in pool.ready(problem, {*candidates}, until) if build.status == "ok"]
            if time.monotonic() > until:
                return
            yield key, by_turns(sorted(built), problem, device)
    finally:
        pool.close()


def by_turns(candidates: Iterable[Candidate], problem: Problem, device: torch.device) -> dict[Candidate, float]:
    """The median of each on the same inputs."""
    place, timer = device_of(device), timing.timer_for(timing.random_inputs(problem, device))
    samples = {}
    for one in candidates:
        try:
            run = launch.bind(program_of(one, problem, place), problem, place, index=device.index, build=True)
            samples[one] = timer.prepare(run, ENOUGH_US)
        except Exception as error:
            print(f"{problem}: {one} is left out: {error!r}", flush=True)
    rounds = [{one: sample() for one, sample in samples.items()} for _ in range(SAMPLES)]
    return {one: median(its[one] for its in rounds) for one in samples}


def merged(times: Times, found: Mapping[TuningKey, Mapping[Candidate, float]], strategies: Collection[str]) -> Times:
    """With what was found: at points that were known, of the strategies alone, as the GPU of before would take it."""
    all_of_it = {key: dict(its) for key, its in times.items()}
    for key, its in found.items():
        known = all_of_it.setdefault(key, {})
        others = [known[one] / us for one, us in its.items() if one.strategy not in strategies and one in known]
        scale = min(max(others[0], 1 / MOST_DIFFERENT), MOST_DIFFERENT) if others else 1.0
        fresh = not known
        known.update({one: us * scale for one, us in its.items() if fresh or one.strategy in strategies})
        if len(known) < 2:  # nothing to choose from
            del all_of_it[key]
    return all_of_it


def main(arguments: Sequence[str] | None = None) -> None:
    """Time, and write."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--again", nargs="+", default=[], metavar="STRATEGY")
    parser.add_argument("--add", nargs="+", default=[], metavar="STRATEGY")
    parser.add_argument("--worst", type=int, default=0, metavar="COUNT")
    parser.add_argument("--beside", type=int, default=0, metavar="COUNT")
    parser.add_argument("--drawn", type=int, default=0, metavar="COUNT")
    parser.add_argument("--doubted", type=int, default=0, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    device = torch.empty(0, device=options.device).device  # with its index
    place = device_of(device)
    times, recorded = tuned(options.file)
    if place.type != recorded.type:
        parser.error(f"{options.file} is of {recorded.name}, not of {place.name}")
    most = max(options.worst, options.beside)
    bad = worst(times, recorded, most) if most else []
    anew = again({key: times[key] for key in bad[: options.worst]}, ALL)
    asked = added(times, options.add, place) | again(times, options.again) | anew
    asked |= proposed(beside(bad[: options.beside], options.seed), options.beside, place, times)
    asked |= proposed(spread(2 * options.drawn, seed=options.seed), options.drawn, place, times)
    asked |= proposed(doubted(options.doubted, place, options.seed), options.doubted, place, times, RIVAL)
    found = dict(timed(without_rare(asked, place), device, options.seconds))
    print(f"{sum(map(len, found.values()))} times at {len(found)} of {len(asked)} points", flush=True)
    times = merged(times, {key: its for key, its in found.items() if key in anew}, ALL)
    write(
        options.file,
        merged(times, {key: its for key, its in found.items() if key not in anew}, {*options.again, *options.add}),
        recorded,
    )


if __name__ == "__main__":
    main()
