"""Which candidates to measure next, by Optuna: every one of a small space, samples of a large one.

Of a large one, half the samples are steps from the best that is known, of one of the best strategies: TPE finds the
strategies and the directions, steps reach the bottom.

Parameters are categorical: `strategy`, and the knobs of each strategy under names of their own. A knob combination
that is no candidate (spaces are lists of valid points, not boxes) is snapped to the nearest untried candidate of its
strategy: rejection would draw for long in a sparse space, and telling a made-up value would teach something false.
"""

import random
import warnings
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotopk.candidate import Candidate

if TYPE_CHECKING:
    from optuna.distributions import CategoricalDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial

ENUMERATE = 100
"""Below this many candidates all are measured: cheaper than any sampler is good."""

FAR = 0.1
"""Share of untried candidates drawn blindly, so that a warm start cannot trap the search."""

NEAR = 0.5
"""Share of untried candidates that are the nearest to the best of a strategy."""

LEADERS = 3
"""Strategies whose best is stepped from: those whose best is fastest."""


def left(candidates: Sequence[Candidate], known: Container[Candidate], limit: int) -> int:
    """How many of a space are to be measured yet; see `Search`."""
    untried = sum(one not in known for one in candidates)
    if is_exhaustive(len(candidates), limit):
        return untried
    return max(0, min(untried, limit - len(candidates) + untried))


def is_exhaustive(candidates: int, limit: int) -> bool:
    """Whether all of so many candidates are measured."""
    return candidates < ENUMERATE or limit >= candidates


class Search:
    """An Optuna study in memory over the candidates of one problem, rebuilt from what was measured before."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        known: Mapping[Candidate, float | None],
        first: Sequence[Candidate] = (),
        limit: int,
        seed: int = 0,
    ) -> None:
        """Set up the study.

        Args:
            candidates: the space.
            known: what was measured before, as a ratio to torch.topk; None where it failed.
            first: candidates to begin with: winners of neighbours, strategies' own rules. Others are ignored.
            limit: most candidates measured in a space too large to enumerate, the known ones included.
            seed: of everything random.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._random = random.Random(seed)
        self._parameters = _parameters(candidates)
        self._candidates = {_point(parameters): one for one, parameters in self._parameters.items()}
        self._distributions = _distributions(list(self._parameters.values()))
        self._untried = dict.fromkeys(one for one in candidates if one not in known)
        self._asked: dict[Candidate, Trial] = {}
        self._ratios: dict[Candidate, float] = {}
        self._first = [one for one in dict.fromkeys(first) if one in self._untried]

        self.exhaustive = is_exhaustive(len(candidates), limit)
        self.left = left(candidates, known, limit)
        """How many candidates are still to be asked for."""
        self._study = optuna.create_study(sampler=_sampler(self.exhaustive, seed))
        for candidate in candidates:
            if candidate in known:
                self._add(candidate, known[candidate])

    def ask(self, count: int) -> list[Candidate]:
        """Up to `count` candidates to measure next, none twice; empty when the search is over."""
        return [self._next() for _ in range(min(count, self.left))]

    def tell(self, candidate: Candidate, ratio: float | None) -> None:
        """The outcome of a candidate that was asked for; None where it failed."""
        from optuna.trial import TrialState

        self._note(candidate, ratio)
        state = TrialState.FAIL if ratio is None else TrialState.COMPLETE
        self._study.tell(self._asked.pop(candidate), ratio, state=state)

    def _next(self) -> Candidate:
        self.left -= 1
        if self._first:
            return self._take(self._first.pop(0))
        draw = self._random.random()
        if self.exhaustive or draw < FAR:
            return self._take(self._random.choice(list(self._untried)))
        if draw < FAR + NEAR and (leaders := self._leaders()):
            return self._take(self._nearest(self._parameters[self._random.choice(leaders)]))
        return self._sampled()

    def _leaders(self) -> list[Candidate]:
        """The best of each of the best strategies that have untried candidates."""
        open_ = {one.strategy for one in self._untried}
        best: dict[str, Candidate] = {}
        for one in sorted(self._ratios, key=self._ratios.__getitem__):
            if one.strategy in open_:
                best.setdefault(one.strategy, one)
        return list(best.values())[:LEADERS]

    def _note(self, candidate: Candidate, ratio: float | None) -> None:
        if ratio is not None:
            self._ratios[candidate] = ratio

    def _take(self, candidate: Candidate) -> Candidate:
        """Ask for this very candidate."""
        self._study.enqueue_trial(self._parameters[candidate])
        trial = self._study.ask()
        self._suggest(trial)
        return self._give(candidate, trial)

    def _sampled(self) -> Candidate:
        from optuna.trial import TrialState

        trial = self._study.ask()
        wanted = self._suggest(trial)
        candidate = self._candidates.get(_point(wanted))
        if candidate in self._untried:
            return self._give(candidate, trial)
        self._study.tell(trial, state=TrialState.FAIL)  # a failed trial teaches TPE nothing
        return self._take(self._nearest(wanted))

    def _give(self, candidate: Candidate, trial: "Trial") -> Candidate:
        del self._untried[candidate]
        if candidate in self._first:
            self._first.remove(candidate)
        self._asked[candidate] = trial
        return candidate

    def _suggest(self, trial: "Trial") -> dict[str, Any]:
        """The trial's strategy and the knobs of that strategy alone."""
        strategy = trial.suggest_categorical("strategy", self._distributions["strategy"].choices)
        knobs = [name for name in self._distributions if name.startswith(f"{strategy}.")]
        return {
            "strategy": strategy,
            **{name: trial.suggest_categorical(name, self._distributions[name].choices) for name in knobs},
        }

    def _nearest(self, wanted: Mapping[str, Any]) -> Candidate:
        """The untried candidate with the fewest other knobs, then the fewest steps on them; of equals, any."""

        def distance(candidate: Candidate) -> tuple[int, int, float]:
            parameters = self._parameters[candidate]
            if parameters["strategy"] != wanted["strategy"]:
                return (len(self._distributions), 0, self._random.random())
            steps = [self._steps(name, value, wanted[name]) for name, value in parameters.items()]
            return (sum(step > 0 for step in steps), sum(steps), self._random.random())

        return min(self._untried, key=distance)

    def _steps(self, name: str, one: Any, other: Any) -> int:
        choices = self._distributions[name].choices
        return abs(choices.index(one) - choices.index(other))

    def _add(self, candidate: Candidate, ratio: float | None) -> None:
        from optuna.trial import TrialState, create_trial

        self._note(candidate, ratio)
        parameters = self._parameters[candidate]
        trial = create_trial(
            state=TrialState.FAIL if ratio is None else TrialState.COMPLETE,
            value=ratio,
            params=parameters,
            distributions={name: self._distributions[name] for name in parameters},
        )
        self._study.add_trial(trial)


def _parameters(candidates: Sequence[Candidate]) -> dict[Candidate, dict[str, Any]]:
    """The same knobs for all of a strategy, None where one is not written: see `strategy.later`."""
    knobs = {
        candidate: {f"{candidate.strategy}.{name}": value for name, value in candidate.knobs.items()}
        for candidate in candidates
    }
    every: dict[str, dict[str, None]] = {}
    for candidate, told in knobs.items():
        every.setdefault(candidate.strategy, {}).update(dict.fromkeys(told))
    return {one: {"strategy": one.strategy, **every[one.strategy], **told} for one, told in knobs.items()}


def _point(parameters: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(parameters.items())


def _distributions(points: Sequence[Mapping[str, Any]]) -> "dict[str, CategoricalDistribution]":
    """Every value that occurs, in order: also what is a number is a category to Optuna, which finds it faster so."""
    from optuna.distributions import CategoricalDistribution

    values: dict[str, set[Any]] = {}
    for point in points:
        for name, value in point.items():
            values.setdefault(name, set()).add(value)
    order = {name: sorted(found, key=lambda value: (type(value).__name__, value)) for name, found in values.items()}
    return {name: CategoricalDistribution(choices) for name, choices in order.items()}


def _sampler(exhaustive: bool, seed: int) -> "BaseSampler":
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import RandomSampler, TPESampler

    if exhaustive:
        return RandomSampler(seed)  # never consulted: every trial is enqueued whole
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # `group`, which models each strategy's knobs jointly
        return TPESampler(multivariate=True, group=True, constant_liar=True, seed=seed)
