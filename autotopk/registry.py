"""Names to strategies: the folders of `autotopk.strategies` and the entry-point group `autotopk.strategies`."""

import importlib
import pkgutil
import warnings
from functools import cache
from importlib.metadata import entry_points

from autotopk.errors import AutotopkWarning, UnknownStrategyError
from autotopk.strategy import Strategy

GROUP = "autotopk.strategies"

_added: dict[str, Strategy] = {}


def register(strategy: Strategy) -> None:
    """Add a strategy for this process. Raises ValueError where the name is taken by another one."""
    if strategy.name in _targets() or strategy.name in _added:
        raise ValueError(f"a strategy named {strategy.name!r} is registered already")
    _added[strategy.name] = strategy


def unregister(name: str) -> None:
    """Take back what `register` added."""
    _added.pop(name, None)


def names() -> list[str]:
    """Every installed strategy, importable or not."""
    return sorted({*_targets(), *_added})


def get(name: str) -> Strategy:
    """The strategy of that name, imported on first use. Raises UnknownStrategyError."""
    strategy = _added.get(name) or _import(name)
    if strategy is None:
        raise UnknownStrategyError(f"no strategy {name!r}; installed: {', '.join(names())}")
    return strategy


def available() -> list[Strategy]:
    """Every strategy that imports, the preferred first."""
    found = [_added.get(name) or _import(name) for name in names()]
    return sorted((strategy for strategy in found if strategy is not None), key=lambda s: (-s.preference, s.name))


@cache
def _built_in() -> dict[str, str]:
    """Strategy name to "module:attribute" of the folders in this package."""
    package = importlib.import_module(GROUP)
    return {
        module.name: f"{GROUP}.{module.name}:strategy"
        for module in pkgutil.iter_modules(package.__path__)
        if module.ispkg and not module.name.startswith("_")
    }


@cache
def _targets() -> dict[str, str]:
    """The same with those of other distributions: reads the metadata of everything installed."""
    targets = dict(_built_in())
    for point in entry_points(group=GROUP):
        if point.name in targets:
            _warn(f"strategy {point.name!r} of {point.value} is ignored: the name is taken")
        else:
            targets[point.name] = point.value
    return targets


@cache
def _import(name: str) -> Strategy | None:
    target = _built_in().get(name) or _targets().get(name)
    if target is None:
        return None
    module, _, attribute = target.partition(":")
    try:
        strategy = getattr(importlib.import_module(module), attribute)
        if not isinstance(strategy, Strategy) or strategy.name != name:
            raise TypeError(f"{target} is {strategy!r}, not a Strategy named {name!r}")
    except Exception as error:  # whatever a plugin's import raises costs that plugin alone
        _warn(f"strategy {name!r} is left out: {type(error).__name__}: {error}")
        return None
    return strategy


def _warn(message: str) -> None:
    warnings.warn(message, AutotopkWarning, stacklevel=3)
