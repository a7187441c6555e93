"""What is measured for a problem: the ladders, shortlists, lattices and heuristics of the strategies that are able."""

import random
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice, zip_longest

from autotopk import registry
from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import UnknownStrategyError, UnsupportedProblemError
from autotopk.problem import Problem
from autotopk.program import Program
from autotopk.strategy import Config, Strategy

NEAR = 4
"""Rungs of a ladder that are measured, the likeliest ones."""


def candidates(problem: Problem, device: Device, strategies: Collection[str] | None = None) -> list[Candidate]:
    """The first rungs, then the shortlists of all able strategies, or of those named, as far as they run here."""
    shortlist = _in_turns(
        [
            strategy.candidate(config)
            for config in _runnable(strategy.shortlist(problem, device), strategy, problem, device)
        ]
        for strategy in _able(problem, device, strategies)
    )
    return list(dict.fromkeys([*rungs(problem, device, strategies), *shortlist]))


def rungs(problem: Problem, device: Device, strategies: Collection[str] | None = None) -> list[Candidate]:
    """The first `NEAR` rungs of the ladders of all able strategies, as far as they run here: most are compiled."""
    return _in_turns(
        [
            strategy.candidate(config)
            for config in _runnable(islice(strategy.ladder(problem, device), NEAR), strategy, problem, device)
        ]
        for strategy in _able(problem, device, strategies)
    )


def _in_turns(families: Iterable[list[Candidate]]) -> list[Candidate]:
    """The first of each, then the second: who has time for some alone has one of every family."""
    return [one for one in chain.from_iterable(zip_longest(*families)) if one is not None]


def lattice(problem: Problem, device: Device, strategies: Collection[str] | None = None) -> list[Candidate]:
    """The `candidates`, then the rest of the strategies' lattices, shuffled: always in the same order."""
    shortlist = candidates(problem, device, strategies)
    points = {
        strategy.candidate(config): None
        for strategy in _able(problem, device, strategies)
        for config in _runnable(strategy.lattice(problem, device), strategy, problem, device)
    }
    rest = [one for one in points if one not in {*shortlist}]
    random.Random(0).shuffle(rest)
    return shortlist + rest


def serves(candidate: Candidate, problem: Problem, device: Device, strategies: Collection[str] | None = None) -> bool:
    """Whether a candidate that was measured somewhere can be measured here."""
    try:
        strategy = registry.get(candidate.strategy)
        config = strategy.parse_config(candidate.config)
    except (UnknownStrategyError, UnsupportedProblemError):
        return False
    return (
        strategy in _able(problem, device, strategies)
        and strategy.valid(config, problem, device)
        and any(_runnable([config], strategy, problem, device))
    )


def heuristics(problem: Problem, device: Device, strategies: Collection[str] | None = None) -> list[Candidate]:
    """What each able strategy would run where nothing was measured, as far as it runs here."""
    chosen = [(one, one.heuristic(problem, device)) for one in _able(problem, device, strategies)]
    return [
        strategy.candidate(config)
        for strategy, found in chosen
        if found is not None
        for config in _runnable([found], strategy, problem, device)
    ]


def program_of(candidate: Candidate, problem: Problem, device: Device) -> Program:
    """What runs for the problem. Raises UnknownStrategyError or UnsupportedProblemError."""
    strategy = registry.get(candidate.strategy)
    return strategy.program(strategy.parse_config(candidate.config), problem, device)


def source_of(candidate: Candidate, problem: Problem, device: Device) -> str | None:
    """What the candidate's program is made from today; None where it makes none."""
    try:
        return program_of(candidate, problem, device).source_digest(problem, device.arch)
    except Exception:  # a strategy may be anyone's code: building it again records what it raises
        return None


def unbuildable(
    problems: Iterable[Problem], device: Device, strategies: Collection[str] | None = None
) -> dict[str, list[str]]:
    """Strategies that serve one of the problems, but cannot compile their kernels here, and why."""
    able = {strategy for problem in dict.fromkeys(problems) for strategy in _able(problem, device, strategies)}
    reasons = {strategy.name: strategy.reasons_unbuildable() for strategy in able}
    return {name: why for name, why in sorted(reasons.items()) if why}


def _runnable(configs: Iterable[Config], strategy: Strategy, problem: Problem, device: Device) -> Iterator[Config]:
    """All of them, or where the strategy cannot compile, those in the cache."""
    cached_alone = bool(strategy.reasons_unbuildable())
    for config in configs:
        if not cached_alone or strategy.program(config, problem, device).is_cached(device.arch):
            yield config


def _able(problem: Problem, device: Device, strategies: Collection[str] | None) -> list[Strategy]:
    return [
        strategy
        for strategy in registry.available()
        if (strategies is None or strategy.name in strategies) and not strategy.reasons_unable(problem, device)
    ]
