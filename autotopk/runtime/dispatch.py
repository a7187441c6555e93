"""Which kernel serves a problem: the measured winner where there is one, else the best substitute.

The order of choice, followed line by line in `choices`:

1. forced     the strategy that the caller or AUTOTOPK_STRATEGY names, where it is able;
2. exact      the winner measured for this very (dtype, rows, cols, k, order);
3. predicted  what takes the least time by the measurements around, where there are any; torch.topk where they say
              too little: see `predicting`;
4. bucket     the nearest winner whose rows, cols and k round to the same powers of two;
5. neighbour  the nearest able winner within `key.NEIGHBOUR_RADIUS` doublings; for 2 to 5, GPUs alike lend theirs,
              see `borrowing`;
6. heuristic  the able strategy of the highest preference that has a rule of its own for the problem;
7. torch      torch.topk.

   ladder     in place of a choice of steps 1, 2 and 4 to 6 whose kernels are not there: a rung of its strategy's
              ladder whose kernels are. Where no rung's are either, the order goes on.

Whether kernels that are not there count is the caller's to say, by `ready`: without it they do, and are compiled when
the choice is bound; calls say it by `readiness.Readiness`. Kernels that cannot be compiled here never do.

Winners are measured on rows whose columns are adjacent. Rows side by side know only the steps forced and heuristic, of
strategies that read them; the caller's next way is to copy them. Merges of lists, which nobody measures, know heuristic
alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

from autotopk import doubt, registry, settings
from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import UnknownStrategyError, warn
from autotopk.key import TuningKey
from autotopk.prediction import Region
from autotopk.problem import MERGED, Answer, Problem
from autotopk.program import Program
from autotopk.runtime import borrowing, predicting
from autotopk.runtime.state import Runtime, default
from autotopk.runtime.winners import NONE, Winners
from autotopk.strategies.torch_fallback import strategy as torch_fallback
from autotopk.strategy import Config, Strategy
from autotopk.tuning_db.records import Winner

MOST_PREDICTED = 40
"""Choices by predicted times that are tried one after the other: the first rung may come behind two dozen others."""

Step = Literal["forced", "exact", "predicted", "bucket", "neighbour", "heuristic", "ladder", "torch"]


@dataclass(frozen=True)
class Prediction:
    """A time that nobody measured."""

    time_us: float
    points: int
    """At which the configuration itself was measured."""
    region: Region
    """What is known around the problem, and how far from the best choices may be there."""
    told: Callable[[], float] | None = field(default=None, compare=False, repr=False)
    """Finds out how far from the best this choice may be, for who asks; that of the region by default."""

    @property
    def bound(self) -> float:
        """Time of the choice over that of the best, at most."""
        return self.region.bound if self.told is None else self.told()

    def to_dict(self) -> dict[str, float]:
        """As plain data."""
        around = self.region.points
        return {"time_us": self.time_us, "points": self.points, "bound": self.bound, "points_around": around}

    def __str__(self) -> str:
        own = f"{self.points} of its own" if self.points else "none of its own"
        return f"predicted {self.time_us:.1f} us from {self.region.points} points around, {own}"


@dataclass(frozen=True)
class Choice:
    """What would run, and why."""

    step: Step
    strategy: Strategy
    config: Config
    winner: Winner | None = None
    """The measurement that the choice rests on; none for the steps forced, predicted, heuristic, ladder and torch."""
    prediction: Prediction | None = None
    """Of the step predicted; none where a call does not wait for it."""
    rejected: tuple[str, ...] = ()
    """What came first and could not serve, with the reason."""

    @cached_property
    def candidate(self) -> Candidate:
        """The same by name."""
        return self.strategy.candidate(self.config)

    def asked(self, problem: Problem, answer: Answer) -> Problem:
        """The problem with that form of answer, where the strategy can write it; else with pairs, to be converted.

        One of routing stays as it is.
        """
        written = answer if answer in self.strategy.features.answers else "pairs"
        if problem.routing is not None or problem.answer == written:
            return problem
        return replace(problem, answer=written)

    def program(self, problem: Problem, device: Device) -> Program:
        """What to run; made once, for it is asked whether it is there, and then bound."""
        if self._made is not None and self._made[:2] == (problem, device):
            return self._made[2]
        found = self.strategy.program(self.config, problem, device)
        object.__setattr__(self, "_made", (problem, device, found))
        return found

    _made: tuple[Problem, Device, Program] | None = field(default=None, init=False, repr=False, compare=False)


Ready = Callable[[Choice, Problem], str]
"""Why a choice cannot answer as long as its kernels are not there; empty where they are."""


def choose(
    problem: Problem,
    device: Device,
    *,
    force: str | None = None,
    runtime: Runtime = default,
    ready: Ready | None = None,
) -> Choice:
    """The first of the `choices`, see the module's numbered order."""
    return next(choices(problem, device, force=force, runtime=runtime, ready=ready))


def choices(
    problem: Problem,
    device: Device,
    *,
    force: str | None = None,
    runtime: Runtime = default,
    ready: Ready | None = None,
    hurry: Ready | None = None,
) -> Iterator[Choice]:
    """Everything that could serve, best first; the last one is torch.topk, but for rows side by side.

    Args:
        problem: what is asked.
        device: where.
        force: name of a strategy to prefer; AUTOTOPK_STRATEGY by default.
        runtime: whose winners, failures and misses count.
        ready: what may answer before it is compiled; everything by default.
        hurry: take what is first at the points around and may answer by this, before anything is weighed.
    """
    asked = _Asked(problem, device, runtime, ready)
    force = None if problem.answer == MERGED else force or settings.forced_strategy()
    if problem.layout.side_by_side or problem.answer == MERGED:
        for strategy in registry.available():
            if force in (None, strategy.name):
                yield from asked.heuristic("forced" if force else "heuristic", strategy)
        return
    key, known = TuningKey.of(problem), runtime.known()
    own, lenders = borrowing.holders(device, known)
    measured = own.exact(key)
    # 1. forced
    if force:
        yield from asked.forced(force, measured)
    # 2. exact
    for winner in borrowing.exact(key, own, lenders):
        yield from asked.measured("exact", winner)
    # 3. predicted
    yield from asked.predicted(key, (own, *lenders[0]), hurry)
    # 4. bucket, 5. neighbour
    for step, winner in borrowing.around(key, own, lenders):
        yield from asked.measured(step, winner)
    # 6. heuristic
    runtime.misses.note(key, device, tuned=measured is not None)
    for strategy in registry.available():
        if strategy is torch_fallback:
            break
        yield from asked.heuristic("heuristic", strategy)
    # 7. torch
    yield Choice("torch", torch_fallback, torch_fallback.heuristic(problem, device), rejected=tuple(asked.rejected))


def settle_cpu(device: Device, runtime: Runtime = default) -> None:
    """Find out whether torch.topk serves everything on the CPU, with any number of threads, and nobody counts it."""
    known = runtime.known()
    try:
        torchs = (
            not any(fingerprint.startswith(device.model) for fingerprint in known)
            and settings.forced_strategy() is None
            and settings.misses_path() is None
            and not any("cpu" in one.features.device_types for one in registry.available() if one != torch_fallback)
        )
    except Exception:  # odd features of a third party's strategy
        torchs = False
    runtime.settle_cpu(known, torchs)


class _Asked:
    """What strategies say to one problem, and why those that came first cannot serve it."""

    def __init__(self, problem: Problem, device: Device, runtime: Runtime, ready: Ready | None) -> None:
        self.problem, self.device, self.runtime, self.ready = problem, device, runtime, ready
        self.rejected: list[str] = []
        self.bare: set[str] = set()
        """Strategies whose ladder was looked through in vain."""

    def forced(self, name: str, winner: Winner | None) -> Iterator[Choice]:
        """The strategy of that name, as it was measured where it was."""
        try:
            strategy = registry.get(name)
        except UnknownStrategyError as error:
            warn(str(error))
            return

        def config() -> Config | None:
            found = None
            if winner is not None and winner.candidate.strategy == name:
                found = strategy.fitting(winner.candidate.config, self.problem, self.device)
            if found is None:
                found = strategy.heuristic(self.problem, self.device)
            return next(iter(strategy.shortlist(self.problem, self.device)), None) if found is None else found

        yield from self._answer("forced", name, strategy, config)

    def measured(self, step: Step, winner: Winner) -> Iterator[Choice]:
        """What a winner was measured with."""
        lender = "" if winner.device.fingerprint == self.device.fingerprint else f" on {winner.device.name}"
        label = f"{winner.candidate} measured at {winner.key}{lender}"
        try:
            strategy = registry.get(winner.candidate.strategy)
        except UnknownStrategyError:
            self.rejected.append(f"{label}: the strategy is not installed")
            return
        fitting = partial(strategy.fitting, winner.candidate.config, self.problem, self.device)
        for choice in self._answer(step, label, strategy, fitting, winner, "the configuration does not fit"):
            if lender and self.runtime.winners(self.device) is NONE:
                self.runtime.warn_once(
                    f"borrowed for {self.device.fingerprint}",
                    f"nothing was tuned on {self.device.name}: winners of {winner.device.name} are borrowed; "
                    "`autotopk tune` measures here",
                )
            yield choice

    def predicted(self, key: TuningKey, layers: Sequence[Winners], hurry: Ready | None) -> Iterator[Choice]:
        """What takes the least time by what was measured around; nothing where nothing was."""
        model = predicting.model_among(key, self.device.type, layers)
        region = None if model is None else model.region(key)
        if model is None or region is None:
            if model is not None:
                self.rejected.append("predicted: nothing was measured around")
            return
        try:
            if name := predicting.unfitted(self.problem, self.device, model):
                self.rejected.append(f"predicted: {name} may be faster, and was measured nowhere")
                return
            if hurry is not None:
                for strategy, config in predicting.at_points(self.problem, self.device, model):
                    choice = Choice("predicted", strategy, config, rejected=tuple(self.rejected))
                    if self._may_answer(choice, hurry):
                        yield choice
            found = predicting.careful(predicting.proposals(self.problem, self.device, model), region.bound)
        except Exception as error:  # of anyone's strategy: the other steps name it
            self.rejected.append(f"times cannot be predicted: {type(error).__name__}: {error}")
            return
        near = doubt.rivals(one.rival for one in found)
        for one in found[:MOST_PREDICTED]:
            told = partial(model.bound_among, key, near, one.time_us)
            prediction = Prediction(one.time_us, one.points, region, told)
            choice = Choice("predicted", one.strategy, one.config, None, prediction, tuple(self.rejected))
            if self._may_answer(choice):
                yield choice

    def _may_answer(self, choice: Choice, ready: Ready | None = None) -> bool:
        """Whether what was predicted can run now, by `ready` where that is given; else why not is noted."""
        try:
            if self.runtime.blocks and self.runtime.is_blocked(choice.candidate, self.device):
                reason = "failed earlier in this process"
            else:
                reason = ready(choice, self.problem) if ready else self._absent(choice)
        except Exception as error:
            reason = self._raised(choice.strategy, error)
        if reason:
            predicted = choice.prediction
            told = "first nearby" if predicted is None else f"predicted to take {predicted.time_us:.1f} us"
            self.rejected.append(f"{choice.candidate} {told}: {reason}")
        return not reason

    def heuristic(self, step: Step, strategy: Strategy) -> Iterator[Choice]:
        """What a strategy does by a rule of its own."""
        yield from self._answer(step, strategy.name, strategy, partial(strategy.heuristic, self.problem, self.device))

    def _answer(
        self,
        step: Step,
        label: str,
        strategy: Strategy,
        config: Callable[[], Config | None],
        winner: Winner | None = None,
        without: str = "",
    ) -> Iterator[Choice]:
        """The choice, or a rung in its place, or none and why.

        What a third party's strategy raises costs its place and one warning.
        """
        choice, absent = None, ""
        try:
            reason = "; ".join(strategy.reasons_unable(self.problem, self.device))
            if not reason and (found := config()) is None:
                reason = without
            elif not reason:
                choice = Choice(step, strategy, found, winner, rejected=tuple(self.rejected))
                if self.runtime.is_blocked(choice.candidate, self.device):
                    choice, reason = None, "failed earlier in this process"
                elif absent := self._absent(choice):
                    choice, reason = None, absent
        except Exception as error:
            choice, reason = None, self._raised(strategy, error)
        if choice is not None:
            yield choice
        elif reason:
            self.rejected.append(f"{label}: {reason}")
        if absent:
            rung = None
            for rung in self._rungs(strategy):
                yield rung
            if rung is None and (why := self.runtime.reason_unbuildable(strategy)):
                message = f"{strategy.name} cannot be built here, and something slower runs: {why}"
                self.runtime.warn_once(f"{strategy.name} unbuilt", message)

    def _rungs(self, strategy: Strategy) -> Iterator[Choice]:
        """What of a strategy's ladder can answer now, the likeliest first."""
        if strategy.name in self.bare:
            return
        found = False
        try:
            for config in strategy.ladder(self.problem, self.device):
                rung = Choice("ladder", strategy, config, rejected=tuple(self.rejected))
                if not self.runtime.is_blocked(rung.candidate, self.device) and not self._absent(rung):
                    found = True
                    yield rung
        except Exception as error:
            self.rejected.append(f"{strategy.name}'s ladder: {self._raised(strategy, error)}")
        if not found:
            self.bare.add(strategy.name)

    def _absent(self, choice: Choice) -> str:
        """Why its kernels are not there to answer; empty where they are, or may be compiled when they are bound."""
        why = self.runtime.reason_unbuildable(choice.strategy)
        if why and not choice.program(self.problem, self.device).is_cached(self.device.arch):
            return f"cannot be built here: {why}"
        return self.ready(choice, self.problem) if self.ready else ""

    def _raised(self, strategy: Strategy, error: Exception) -> str:
        reason = f"{type(error).__name__}: {error}"
        self.runtime.warn_once(strategy.name, f"{strategy.name} is left out where it raises {reason}")
        return reason
