"""One strategy in one configuration, by name: what is compiled, checked, timed and stored."""

from collections.abc import Collection
from dataclasses import dataclass

from autotopk import registry
from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.strategy import Program, Strategy, config_json


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
    """Every valid configuration of every able strategy, or of those named."""
    return [
        Candidate(strategy.name, config_json(config), strategy.version)
        for strategy in _able(problem, device, strategies)
        for config in strategy.space(problem, device)
    ]


def defaults(problem: Problem, device: Device, strategies: Collection[str] | None = None) -> list[Candidate]:
    """What each able strategy would run where nothing was measured."""
    chosen = ((s, s.default(problem, device)) for s in _able(problem, device, strategies))
    return [Candidate(s.name, config_json(config), s.version) for s, config in chosen if config is not None]


def _able(problem: Problem, device: Device, strategies: Collection[str] | None) -> list[Strategy]:
    return [
        strategy
        for strategy in registry.available()
        if (strategies is None or strategy.name in strategies) and not strategy.reasons_unsupported(problem, device)
    ]
