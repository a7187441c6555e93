"""One strategy in one configuration, by name: what is compiled, checked, timed and stored."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from autotopk import registry
from autotopk.device import Device
from autotopk.errors import BuildError
from autotopk.problem import Problem
from autotopk.strategy import Config, HostProgram, Program, Strategy, config_json


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """Plain text, so that it travels between processes and into databases."""

    strategy: str
    config: str
    """Canonical JSON, see `autotopk.strategy.config_json`."""
    version: str
    """`Strategy.version`: other code is another candidate."""

    def program(self, problem: Problem, device: Device) -> Program:
        """What runs for the problem. Raises UnknownStrategyError or UnsupportedProblemError."""
        strategy = registry.get(self.strategy)
        return strategy.program(strategy.parse_config(self.config), problem, device)

    def __str__(self) -> str:
        return f"{self.strategy} {self.config}"


def candidates(problem: Problem, device: Device, strategies: Collection[str] | None = None) -> list[Candidate]:
    """Every valid configuration of every able strategy, or of those named, that runs here."""
    return [
        Candidate(strategy.name, config_json(config), strategy.version)
        for strategy in _able(problem, device, strategies)
        for config in _runnable(strategy, problem, device)
    ]


def defaults(problem: Problem, device: Device, strategies: Collection[str] | None = None) -> list[Candidate]:
    """What each able strategy would run where nothing was measured."""
    chosen = ((s, s.heuristic(problem, device)) for s in _able(problem, device, strategies))
    return [Candidate(s.name, config_json(config), s.version) for s, config in chosen if config is not None]


def aside(
    problems: Iterable[Problem], device: Device, strategies: Collection[str] | None = None
) -> dict[str, list[str]]:
    """Strategies that serve one of the problems, but cannot compile their kernels here, and why."""
    able = {strategy for problem in dict.fromkeys(problems) for strategy in _able(problem, device, strategies)}
    reasons = {strategy.name: strategy.reasons_unbuildable() for strategy in able}
    return {name: why for name, why in sorted(reasons.items()) if why}


def _runnable(strategy: Strategy, problem: Problem, device: Device) -> Iterator[Config]:
    """Its space, or where it cannot compile, what of it was compiled before."""
    kept_alone = bool(strategy.reasons_unbuildable())
    for config in strategy.shortlist(problem, device):
        if not kept_alone or _is_kept(strategy.program(config, problem, device), device):
            yield config


def _is_kept(program: Program, device: Device) -> bool:
    try:
        return isinstance(program, HostProgram) or program.source.cache_path(device.arch).exists()
    except BuildError:
        return False


def _able(problem: Problem, device: Device, strategies: Collection[str] | None) -> list[Strategy]:
    return [
        strategy
        for strategy in registry.available()
        if (strategies is None or strategy.name in strategies) and not strategy.reasons_unsupported(problem, device)
    ]
