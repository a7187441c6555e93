"""What could serve a problem by predicted times, quickest first: rungs of the able strategies, and their shortlists."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import inf, isclose
from operator import itemgetter
from typing import NamedTuple

from autotopk import registry
from autotopk.device import Device
from autotopk.key import TuningKey
from autotopk.prediction import Model, kind_of
from autotopk.problem import Problem
from autotopk.runtime.borrowing import lenders
from autotopk.runtime.winners import NONE, Winners
from autotopk.strategies.torch_fallback import strategy as torch_fallback
from autotopk.strategy import Config, Strategy, written
from autotopk.workloads import Workload

RUNGS = 4
"""Of a ladder that are asked for their time: the likeliest."""

SLOW = 2.0
"""Strategies whose first rung is predicted to take so many times the least are not asked for the others."""

FAR = 1.25
"""Strategies whose best rung is predicted to take so many times the best have no better point in their shortlists."""

COMPILED = 0.02
"""How much faster than a rung, as a fraction, something has to be that is to be compiled."""


class Proposal(NamedTuple):
    """A configuration and its predicted time."""

    rank: float
    """The time, and something more for what is to be compiled."""
    name: str
    """Of the candidate: the order of those alike."""
    time_us: float
    points: int
    """At which the configuration itself was measured."""
    strategy: Strategy
    config: Config


def model_for(key: TuningKey, device: Device, known: Mapping[str, Winners]) -> Model | None:
    """What was fitted for the key's kind on the device, else on a twin of it."""
    kind, twins = kind_of(key), lenders(device, known)[0]
    for winners in (known.get(device.fingerprint, NONE), *twins):
        if model := winners.model(kind):
            if winners.device is not None:
                _leave_out_changed(model, winners.device)
            return model
    return None


def _leave_out_changed(model: Model, device: Device) -> None:
    """Without strategies whose terms are others today than those that were fitted; looked at once."""
    while model.examples:
        key, candidate, terms = model.examples.pop()
        try:
            strategy = registry.get(candidate.strategy)
            problem = Workload.of(key).problem(device.type)
            today = strategy.terms(strategy.parse_config(candidate.config), problem, device)
            same = len(today) == len(terms) and all(map(partial(isclose, rel_tol=1e-3, abs_tol=1e-9), today, terms))
        except Exception:  # not installed, of another version, or anyone's code
            same = False
        if not same:
            model.leave_out(candidate.strategy)


def unfitted(problem: Problem, device: Device, model: Model) -> str:
    """A strategy that would serve by its own rule and of which nothing was fitted: who knows whether it is the best."""
    strange = (one for one in registry.available() if one.name not in model.strategies and one is not torch_fallback)
    able = (one for one in strange if one.is_able(problem, device))
    return next((one.name for one in able if one.heuristic(problem, device) is not None), "")


def proposals(problem: Problem, device: Device, model: Model) -> list[Proposal]:
    """All that have a prediction, the best first; of equal times in the order of their names."""
    near = model.near(TuningKey.of(problem))
    able = [one for one in registry.available() if one.name in model.strategies and one.is_able(problem, device)]

    def predicted(strategy: Strategy, configs: Iterable[Config], handicap: float) -> Iterator[Proposal]:
        family, terms = strategy.name, strategy.terms
        predict = model.of(family, near)
        for config in configs:
            name = f"{family} {written(config)}"
            time_us = predict(name, terms(config, problem, device))
            if time_us is not None:
                points = model.candidates.get(name, 0)
                yield Proposal(time_us * (1 + handicap), name, time_us, points, strategy, config)

    ladders = {strategy: strategy.ladder(problem, device)[:RUNGS] for strategy in able}
    found = [one for strategy, ladder in ladders.items() for one in predicted(strategy, ladder[:1], 0.0)]
    firsts = {one.strategy: one.time_us for one in found}
    least = min(firsts.values(), default=inf)
    for strategy, ladder in ladders.items():
        if firsts.get(strategy, 0.0) <= SLOW * least:
            found += predicted(strategy, ladder[1:], 0.0)
    best: dict[Strategy, float] = {}
    for one in found:
        best[one.strategy] = min(best.get(one.strategy, inf), one.time_us)
    least = min(best.values(), default=inf)
    known = {one.name for one in found}
    for strategy in able:
        if best.get(strategy, 0.0) <= FAR * least:  # torch's operators have no rungs
            shortlist = predicted(strategy, strategy.shortlist(problem, device), COMPILED)
            found += [one for one in shortlist if one.name not in known]
    return sorted(found, key=itemgetter(0, 1))
