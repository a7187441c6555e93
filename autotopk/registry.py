"""Names to strategies: the folders of `autotopk.strategies` and the entry-point group `autotopk.strategies`."""

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, distributions

from autotopk.device import Device
from autotopk.errors import UnknownStrategyError, warn
from autotopk.problem import Problem
from autotopk.strategy import Features, Strategy

GROUP = "autotopk.strategies"

_added: dict[str, Strategy] = {}


def register(strategy: Strategy) -> None:
    """Add a strategy for this process; plans that were made stay until `autotopk.reload`.

    Raises ValueError where the name is taken by another one, TypeError where it is no whole strategy.
    """
    name = _checked(strategy).name
    if name in _targets() or name in _added:
        raise ValueError(f"a strategy named {name!r} is registered already")
    _added[name] = strategy
    _forget()


def unregister(name: str) -> None:
    """Take back what `register` added."""
    _added.pop(name, None)
    _forget()


def _forget() -> None:
    _available.cache_clear()
    _serving.cache_clear()


def names() -> list[str]:
    """Every installed strategy, importable or not."""
    return sorted({*_targets(), *_added})


def get(name: str) -> Strategy:
    """The strategy of that name, imported on first use. Raises UnknownStrategyError."""
    strategy = _added.get(name) or _import(name)
    if strategy is None:
        raise UnknownStrategyError(f"no strategy {name!r}; installed: {', '.join(names())}")
    return strategy


def available() -> Sequence[Strategy]:
    """Every strategy that imports, the preferred first."""
    return _available()


def serving(problem: Problem, device: Device) -> Sequence[Strategy]:
    """Those whose features serve a problem, the preferred first. Raises what odd features do."""
    return _serving(problem.answer, problem.dtype, problem.stable, problem.layout.side_by_side, device)


def built_in() -> list[Strategy]:
    """Those of this package that import, by name."""
    found = [_import(name) for name in sorted(_built_in())]
    return [strategy for strategy in found if strategy is not None]


@cache
def _available() -> tuple[Strategy, ...]:
    """Every first call of a shape asks."""
    found = [_added.get(name) or _import(name) for name in names()]
    able = (strategy for strategy in found if strategy is not None)
    return tuple(sorted(able, key=lambda one: (-one.preference, one.name)))


@cache
def _serving(answer: str, dtype: str, stable: bool, side_by_side: bool, device: Device) -> tuple[Strategy, ...]:
    return tuple(one for one in _available() if one.features.serves(answer, dtype, stable, side_by_side, device))


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
    for point in _entry_points():
        if point.name in targets:
            warn(f"strategy {point.name!r} of {point.value} is ignored: the name is taken")
        else:
            targets[point.name] = point.value
    return targets


def _entry_points() -> Iterator[EntryPoint]:
    """As `importlib.metadata.entry_points(group=GROUP)`, but a distribution that cannot be read costs itself alone."""
    seen: set[str] = set()
    try:
        for distribution in distributions():
            try:
                name = getattr(distribution, "_normalized_name", None) or distribution.name  # the first opens no file
                if name not in seen:  # else shadowed by one further ahead on the path
                    seen.add(name)
                    yield from [point for point in distribution.entry_points if point.group == GROUP]
            except Exception as error:
                where = getattr(distribution, "_path", distribution)
                warn(f"strategies of {where} are left out: its metadata cannot be read: {error!r}")
    except Exception as error:  # of a finder that is not Python's own
        warn(f"installed strategies cannot be listed: {error!r}")


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
        return _checked(strategy)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a plugin's import raises, SystemExit too, costs that plugin alone
        warn(f"strategy {name!r} is left out: {type(error).__name__}: {error}")
        return None


def _checked(strategy: object) -> Strategy:
    """The strategy. Raises TypeError where it is none, or lacks what every contract declares."""
    if not isinstance(strategy, Strategy):
        raise TypeError(f"{strategy!r} is no Strategy")
    for attribute, kind in (("name", str), ("preference", int), ("features", Features), ("config_type", type)):
        if not isinstance(value := getattr(strategy, attribute, None), kind):
            raise TypeError(f"{attribute}={value!r} is no {kind.__name__}")
    if not is_dataclass(strategy.config_type):
        raise TypeError(f"config_type={strategy.config_type!r} is no dataclass")
    return strategy
