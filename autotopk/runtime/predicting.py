"""What could serve a problem by predicted times, quickest first: rungs of the able strategies, and their shortlists."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from math import inf, isclose
from operator import itemgetter
from typing import NamedTuple

from autotopk import registry
from autotopk.candidate import TORCH_TOPK
from autotopk.device import Device
from autotopk.doubt import Rival
from autotopk.key import TuningKey
from autotopk.prediction import Model, Near, kind_of, sizes_of
from autotopk.problem import Problem
from autotopk.runtime.borrowing import holders
from autotopk.runtime.winners import Winners
from autotopk.strategies.torch_fallback import strategy as torch_fallback
from autotopk.strategy import Config, Strategy, numbers, written
from autotopk.workloads import Workload

RUNGS = 8
"""Of a ladder that are asked for their time: the likeliest."""

SLOW = 2.0
"""Strategies whose first rung is predicted to take so many times the least are not asked for their other rungs."""

COMPILED = 0.005
"""How much faster than a rung, as a fraction, something has to be that is to be compiled."""

DOUBTFUL = 3.0
"""Choices that may take so many times the best are not made for a gain over torch.topk that is less than that."""

ALIKE = 1.1
"""Nor others for a smaller gain than this: of torch.topk most is known, and nobody is to be slower than it."""


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
    at_once: bool
    """Whether no compiler is needed: one of the `RUNGS`, or of a strategy without a ladder."""

    @property
    def rival(self) -> Rival:
        """What others are compared with, and it with others."""
        return self.strategy.name, self.name, self.time_us


def model_for(key: TuningKey, device: Device, known: Mapping[str, Winners]) -> Model | None:
    """What was fitted for the key's kind on the device, else on a twin of it.

    Of several layers' the one with the least bound around the key: who tuned a few shapes knows less of all others than
    what is shipped.
    """
    own, (twins, _) = holders(device, known)
    return model_among(key, device.type, (own, *twins))


def model_among(key: TuningKey, device_type: str, layers: Iterable[Winners]) -> Model | None:
    """The same of a device's own winners and its twins'."""
    kind = kind_of(key, device_type)
    for winners in layers:
        if models := winners.models(kind):
            model = models[0] if len(models) == 1 else min(models, key=lambda one: one.bound(key))
            if model.examples and winners.device is not None:
                _leave_out_changed(model, winners.device)
            return model
    return None


def _leave_out_changed(model: Model, device: Device) -> None:
    """Without strategies whose terms are others today than were fitted, or whose trees ask others; looked at once."""
    examples, model.examples = model.examples, []
    for key, candidate, terms in examples:
        try:
            strategy = registry.get(candidate.strategy)
            problem = Workload.of(key).problem(device.type)
            config = strategy.parse_config(candidate.config)
            today = strategy.terms(config, problem, device)
            same = len(today) == len(terms) and all(map(partial(isclose, rel_tol=1e-3, abs_tol=1e-9), today, terms))
            forest, traits = model.forests.get(strategy.name), len((*sizes_of(key), *numbers(config), *today))
            same = same and (forest is None or forest.traits == traits)
        except Exception:  # not installed, of another version, or anyone's code
            same = False
        if not same:
            model.leave_out(candidate.strategy)


def unfitted(problem: Problem, device: Device, model: Model) -> str:
    """A strategy that would serve by its own rule and of which nothing was fitted: who knows whether it is the best."""
    serving = registry.serving(problem, device)
    if model.whole.get(id(serving)) is serving:  # as nearly always
        return ""
    strange = [one for one in serving if one.name not in model.strategies and one is not torch_fallback]
    if not strange:
        model.whole[id(serving)] = serving
    able = (one for one in strange if not one.reasons_unsupported(problem, device))
    return next((one.name for one in able if one.heuristic(problem, device) is not None), "")


def at_points(problem: Problem, device: Device, model: Model) -> Iterator[tuple[Strategy, Config]]:
    """What is first at the points around, where it serves the problem, too, the nearest first: nothing is predicted.

    For a call that does not wait. Of drawn shapes it takes 8 % more time than the best rung in geometric mean.
    """
    able: dict[str, Strategy | None] = {}
    tried = {""}
    for point in model.nearest(TuningKey.of(problem)):
        if point.first in tried:
            continue
        tried.add(point.first)
        of, _, written_ = point.first.partition(" ")
        if of not in able:
            able[of] = _able(of, problem, device) if of in model.strategies else None
        strategy = able[of]
        if strategy is not None and (config := strategy.fitting(written_, problem, device)) is not None:
            yield strategy, config


def _able(name: str, problem: Problem, device: Device) -> Strategy | None:
    """The strategy of that name, where it can serve the problem."""
    for one in registry.serving(problem, device):
        if one.name == name:
            return None if one.reasons_unsupported(problem, device) else one
    return None


def proposals(problem: Problem, device: Device, model: Model) -> list[Proposal]:
    """All that have a prediction, the best first; of equal times in the order of their names.

    A call may wait for this: families that were far behind at all points around are not asked, nor the other rungs
    where the first is far behind, and nothing is worked out twice.
    """
    near, known = model.near(TuningKey.of(problem)), model.strategies.keys()
    slow = near.slow
    return _asked(known - slow, problem, device, model, near) or _asked(known & slow, problem, device, model, near)


def all_proposals(problem: Problem, device: Device, model: Model) -> list[Proposal]:
    """The same of all able strategies, whatever is far behind around."""
    return _asked(model.strategies.keys(), problem, device, model, model.near(TuningKey.of(problem)))


def _asked(names: Set[str], problem: Problem, device: Device, model: Model, near: Near) -> list[Proposal]:
    """`proposals` of some strategies."""
    found: list[Proposal] = []
    asked = [
        _Family(one, problem, device, model, near)
        for one in registry.serving(problem, device)
        if one.name in names and not one.reasons_unsupported(problem, device)
    ]
    for family in asked:
        family.ask(family.ladder[:1], 0.0, found)
        if family.best == inf:  # torch's operators have no rungs
            family.ask(family.shortlist[:1], COMPILED, found)
    least = min([family.best for family in asked], default=inf)
    for family in asked:
        if family.best <= SLOW * least:
            family.ask(family.ladder[1:], 0.0, found)
    for family in asked:  # also of those whose rungs are far behind, which may have none for such a row
        family.ask(family.shortlist, COMPILED, found)
    found.sort(key=itemgetter(0, 1))
    return found


def bests(found: Iterable[Proposal]) -> dict[str, float]:
    """Of every strategy the least rank of its proposals, which are in order."""
    least: dict[str, float] = {}
    for one in found:
        least.setdefault(one.strategy.name, one.rank)
    return least


def careful(found: list[Proposal], bound: float) -> list[Proposal]:
    """The same, where choices may take `bound` times the best: torch.topk before what may be slower than it is."""
    sure = next((one for one in found if one.name == str(TORCH_TOPK)), None)
    if sure is None:
        return found
    least = bound if bound >= DOUBTFUL else ALIKE
    faster = [one for one in found if one.time_us * least < sure.time_us]
    return [*faster, sure, *(one for one in found if one.time_us * least >= sure.time_us and one is not sure)]


class _Family:
    """What a strategy is predicted to take in some of its configurations."""

    def __init__(self, strategy: Strategy, problem: Problem, device: Device, model: Model, near: Near) -> None:
        self.strategy, self.problem, self.device = strategy, problem, device
        self.ladder = strategy.ladder(problem, device)[:RUNGS]
        self.asked: set[str] = set()
        self.best = inf
        self.name, self.times, self.points = f"{strategy.name} ", model.of(strategy.name, near), model.candidates

    @property
    def shortlist(self) -> Sequence[Config]:
        return self.strategy.shortlist(self.problem, self.device)

    def ask(self, configs: Iterable[Config], handicap: float, found: list[Proposal]) -> None:
        """Add to what was found those that were not asked yet and have a prediction."""
        strategy, problem, device, asked = self.strategy, self.problem, self.device, self.asked
        terms, times, points = strategy.terms, self.times, self.points
        at_once, handicap = not handicap or not self.ladder, 1.0 + handicap
        for config in configs:
            name = self.name + written(config)
            if name not in asked:
                asked.add(name)
                time_us = times(name, numbers(config), terms(config, problem, device))
                if time_us is not None:
                    if time_us < self.best:
                        self.best = time_us
                    its = points.get(name, 0)
                    found.append(Proposal(time_us * handicap, name, time_us, its, strategy, config, at_once))
