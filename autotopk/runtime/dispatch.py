"""Which kernel serves a problem: the measured winner where there is one, else the best substitute.

The order of choice, followed line by line in `choices`:

1. forced     the strategy that the caller or AUTOTOPK_STRATEGY names, where it is able;
2. exact      the winner measured for this very (dtype, rows, cols, k, order);
3. bucket     the nearest winner whose rows, cols and k round to the same powers of two;
4. neighbour  the nearest able winner within `key.NEIGHBOUR_RADIUS` doublings;
5. heuristic  the able strategy of the highest preference that has a rule of its own for the problem;
6. torch      torch.topk.

Winners are measured on rows whose columns are adjacent. Rows side by side know only the steps forced and heuristic, of
strategies that read them; the caller's next way is to copy them.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from autotopk import registry, settings
from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import AutotopkWarning, UnknownStrategyError, UnsupportedProblemError
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.program import Program
from autotopk.runtime.state import Runtime, default
from autotopk.strategy import Config, Strategy
from autotopk.tuning_db.records import Winner

Step = Literal["forced", "exact", "bucket", "neighbour", "heuristic", "torch"]


@dataclass(frozen=True)
class Choice:
    """What would run, and why."""

    step: Step
    strategy: Strategy
    config: Config
    winner: Winner | None = None
    """The measurement that the choice rests on; none for the steps forced, heuristic and torch."""
    rejected: tuple[str, ...] = ()
    """What came first and could not serve, with the reason."""

    @property
    def candidate(self) -> Candidate:
        """The same by name."""
        return self.strategy.candidate(self.config)

    def program(self, problem: Problem, device: Device) -> Program:
        """What to run."""
        return self.strategy.program(self.config, problem, device)


def choose(problem: Problem, device: Device, *, force: str | None = None, runtime: Runtime = default) -> Choice:
    """The first of the `choices`, see the module's numbered order."""
    return next(choices(problem, device, force=force, runtime=runtime))


def choices(
    problem: Problem, device: Device, *, force: str | None = None, runtime: Runtime = default
) -> Iterator[Choice]:
    """Everything that could serve, best first; the last one is torch.topk, but for rows side by side.

    Args:
        problem: what is asked.
        device: where.
        force: name of a strategy to prefer; AUTOTOPK_STRATEGY by default.
        runtime: whose winners, failures and misses count.
    """
    rejected: list[str] = []
    force = force or settings.forced_strategy()
    if problem.layout.side_by_side:
        yield from _side_by_side(problem, device, force, runtime)
        return
    key, winners = TuningKey.of(problem), runtime.winners(device)
    exact = winners.by_key.get(key)
    # 1. forced
    if force:
        yield from _forced(force, problem, device, exact, rejected, runtime)
    # 2. exact
    if exact:
        yield from _measured("exact", exact, problem, device, rejected, runtime)
    # 3. bucket
    for winner in winners.like(key):
        yield from _measured("bucket", winner, problem, device, rejected, runtime)
    # 4. neighbour
    for winner in winners.near(key):
        yield from _measured("neighbour", winner, problem, device, rejected, runtime)
    # 5. heuristic
    runtime.misses.note(key, device)
    for strategy in registry.available():
        if reasons := strategy.reasons_unable(problem, device):
            rejected.append(f"{strategy.name}: {'; '.join(reasons)}")
        elif (config := strategy.heuristic(problem, device)) is not None:
            step: Step = "torch" if strategy.name == "torch_fallback" else "heuristic"
            yield from _ready(Choice(step, strategy, config), problem, device, rejected, runtime)
    # 6. torch
    fallback = registry.get("torch_fallback")
    yield Choice("torch", fallback, fallback.heuristic(problem, device), rejected=tuple(rejected))


def _ready(
    choice: Choice, problem: Problem, device: Device, rejected: list[str], runtime: Runtime, label: str = ""
) -> Iterator[Choice]:
    """The choice, unless it failed earlier in this process, or its kernels are neither kept nor can be compiled."""
    if runtime.is_blocked(choice.strategy, choice.config, device):
        reason = "failed earlier in this process"
    elif (why := runtime.reason_unbuildable(choice.strategy)) and not (
        choice.program(problem, device).is_cached(device.arch)
    ):
        reason = f"cannot be built here: {why}"
        runtime.warn_unbuildable(choice.strategy)
    else:
        yield replace(choice, rejected=tuple(rejected))
        return
    rejected.append(f"{label or choice.strategy.name}: {reason}")


def _side_by_side(problem: Problem, device: Device, force: str | None, runtime: Runtime) -> Iterator[Choice]:
    for strategy in registry.available():
        if force not in (None, strategy.name) or strategy.reasons_unable(problem, device):
            continue
        if (config := strategy.heuristic(problem, device)) is not None:
            yield from _ready(
                Choice("forced" if force else "heuristic", strategy, config), problem, device, [], runtime
            )


def _forced(
    name: str, problem: Problem, device: Device, winner: Winner | None, rejected: list[str], runtime: Runtime
) -> Iterator[Choice]:
    try:
        strategy = registry.get(name)
    except UnknownStrategyError as error:
        warnings.warn(str(error), AutotopkWarning, stacklevel=2)
        return
    if reasons := strategy.reasons_unable(problem, device):
        rejected.append(f"{name}: {'; '.join(reasons)}")
        return
    config = strategy.heuristic(problem, device)
    if winner is not None and winner.candidate.strategy == name:
        config = _config(strategy, winner.candidate, problem, device) or config
    if config is None:
        config = next(iter(strategy.shortlist(problem, device)), None)
    if config is not None:
        yield from _ready(Choice("forced", strategy, config), problem, device, rejected, runtime)


def _measured(
    step: Step, winner: Winner, problem: Problem, device: Device, rejected: list[str], runtime: Runtime
) -> Iterator[Choice]:
    label = f"{winner.candidate} measured at {winner.key}"
    try:
        strategy = registry.get(winner.candidate.strategy)
    except UnknownStrategyError:
        rejected.append(f"{label}: the strategy is not installed")
        return
    if reasons := strategy.reasons_unable(problem, device):
        rejected.append(f"{label}: {'; '.join(reasons)}")
    elif (config := _config(strategy, winner.candidate, problem, device)) is None:
        rejected.append(f"{label}: the configuration does not fit")
    else:
        yield from _ready(Choice(step, strategy, config, winner), problem, device, rejected, runtime, label)


def _config(strategy: Strategy, candidate: Candidate, problem: Problem, device: Device) -> Config | None:
    try:
        config = strategy.parse_config(candidate.config)
    except UnsupportedProblemError:
        return None
    return config if strategy.valid(config, problem, device) else None
