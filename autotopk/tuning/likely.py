"""What a quick run measures: not what evidence of the same device predicts to be far behind."""

from collections.abc import Collection, Container, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from autotopk import registry, settings
from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import ArtifactError
from autotopk.key import TuningKey
from autotopk.prediction import Model, Near
from autotopk.problem import Problem
from autotopk.runtime import predicting, winners
from autotopk.strategy import numbers
from autotopk.tuning.candidates import candidates, heuristics, rungs

UNLIKELY = 1.1
"""Times the least predicted time that are too many for a point of a shortlist."""

HOPELESS = 1.25
"""And for a rung, or what a strategy would run by its own rule: a block on 100 million columns takes 500 times."""


def likely(problem: Problem, device: Device, strategies: Collection[str] | None = None) -> list[Candidate]:
    """The candidates, but those that are predicted to be slow.

    By what is shipped of the device or its twins alone, so that no run changes what the next one measures; all of them
    where that has no bound for the problem.
    """
    space, key = candidates(problem, device, strategies), TuningKey.of(problem)
    model = predicting.model_for(key, device, _shipped(settings.shipped_winners_path()))
    if model is None or model.region(key) is None:
        return space
    sure = {*rungs(problem, device, strategies), *heuristics(problem, device, strategies)}
    return quick(space, sure, problem, device, model)


def quick(
    space: Iterable[Candidate], sure: Container[Candidate], problem: Problem, device: Device, model: Model
) -> list[Candidate]:
    """Those that are not predicted to take `UNLIKELY` times as long as the best of them, `HOPELESS` those of `sure`.

    The quickest come first, so that a budget cuts off others; those of which nothing is predicted keep their order.
    """
    near = model.near(TuningKey.of(problem))
    times = {one: _time_us(one, problem, device, model, near) for one in space}
    least = min((time for time in times.values() if time is not None), default=0.0)
    left = [
        one for one, time in times.items() if time is None or time <= (HOPELESS if one in sure else UNLIKELY) * least
    ]
    return sorted(left, key=lambda one: (times[one] is None, times[one] or 0.0))


def _time_us(candidate: Candidate, problem: Problem, device: Device, model: Model, near: Near) -> float | None:
    strategy = registry.get(candidate.strategy)
    if strategy.name not in model.strategies:
        return None
    config = strategy.parse_config(candidate.config)
    terms = strategy.terms(config, problem, device)
    return model.time_us(strategy.name, str(candidate), numbers(config), terms, near)


@cache
def _shipped(path: Path | None) -> Mapping[str, winners.Winners]:
    """What was fitted, by device fingerprint."""
    found = dict[str, winners.Winners]()
    if path is not None:
        with suppress(ArtifactError):
            winners.merge_fitted(winners.contents("shipped", path)[0], found)
    return found
