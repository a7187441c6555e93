"""Which kernel answers a problem: the measured winner where there is one, else the best substitute.

The order of choice, followed line by line in `candidates`:

1. forced     the strategy that the caller or AUTOTOPK_STRATEGY names, where it is able;
2. exact      the winner measured for this very (dtype, rows, cols, k, order);
3. bucket     the nearest winner whose rows, cols and k round to the same powers of two;
4. neighbour  the nearest able winner within `key.NEIGHBOUR_RADIUS` doublings;
5. default    the able strategy of the highest preference that has a rule of its own for the problem;
6. torch      torch.topk.

Winners are measured on rows whose columns are adjacent. Rows side by side know only the steps forced and default, of
strategies that read them; the caller's next way is to copy them.
"""

import atexit
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Literal

from autotopk import registry, settings
from autotopk.device import Device
from autotopk.errors import ArtifactError, AutotopkWarning, UnknownStrategyError, UnsupportedProblemError
from autotopk.key import NEIGHBOUR_RADIUS, TuningKey
from autotopk.problem import Problem
from autotopk.strategy import Config, Strategy, config_json
from autotopk.tuning_db.records import Winner

Step = Literal["forced", "exact", "bucket", "neighbour", "default", "torch"]


@dataclass(frozen=True)
class Choice:
    """What would run, and why."""

    step: Step
    strategy: Strategy
    config: Config
    winner: Winner | None = None
    """The measurement that the choice rests on; none for the steps forced, default and torch."""
    rejected: tuple[str, ...] = ()
    """What came first and could not serve, with the reason."""

    @property
    def stale(self) -> bool:
        """Whether the winner was measured with other code of its strategy."""
        return self.winner is not None and self.winner.version != self.strategy.version


def choose(problem: Problem, device: Device, *, force: str | None = None) -> Choice:
    """The first candidate, see the module's numbered order."""
    return next(candidates(problem, device, force=force))


def candidates(problem: Problem, device: Device, *, force: str | None = None) -> Iterator[Choice]:
    """Everything that could answer, best first; the last one is torch.topk, but for rows side by side.

    Args:
        problem: what is asked.
        device: where.
        force: name of a strategy to prefer; AUTOTOPK_STRATEGY by default.
    """
    rejected: list[str] = []
    if problem.side_by_side:
        yield from _beside(problem, device, force or settings.forced_strategy())
        return
    key, winners = TuningKey.of(problem), winners_for(device)
    # 1. forced
    if name := force or settings.forced_strategy():
        yield from _forced(name, problem, device, winners.by_key.get(key), rejected)
    # 2. exact
    if winner := winners.by_key.get(key):
        yield from _measured("exact", winner, problem, device, rejected)
    # 3. bucket
    bucket = winners.by_bucket.get(key.bucket(), ())
    for winner in sorted(bucket, key=lambda winner: key.distance(winner.key)):
        if winner.key != key:
            yield from _measured("bucket", winner, problem, device, rejected)
    # 4. neighbour
    near = ((key.distance(winner.key), winner) for winner in winners.by_key.values())
    for distance, winner in sorted(near, key=lambda pair: pair[0]):
        if distance > NEIGHBOUR_RADIUS:
            break
        if winner.key != key and winner not in bucket:
            yield from _measured("neighbour", winner, problem, device, rejected)
    # 5. default
    _note_miss(key, device)
    for strategy in registry.available():
        if reasons := strategy.reasons_unsupported(problem, device):
            rejected.append(f"{strategy.name}: {'; '.join(reasons)}")
        elif (config := strategy.heuristic(problem, device)) is not None and not blocked(strategy, config, device):
            step: Step = "torch" if strategy.name == "torch_fallback" else "default"
            yield Choice(step, strategy, config, rejected=tuple(rejected))
    # 6. torch
    fallback = registry.get("torch_fallback")
    yield Choice("torch", fallback, fallback.heuristic(problem, device), rejected=tuple(rejected))


def _beside(problem: Problem, device: Device, force: str | None) -> Iterator[Choice]:
    for strategy in registry.available():
        if not strategy.side_by_side or strategy.reasons_unsupported(problem, device):
            continue
        config = strategy.heuristic(problem, device)
        if force in (None, strategy.name) and config is not None and not blocked(strategy, config, device):
            yield Choice("forced" if force else "default", strategy, config)


def _forced(
    name: str, problem: Problem, device: Device, winner: Winner | None, rejected: list[str]
) -> Iterator[Choice]:
    try:
        strategy = registry.get(name)
    except UnknownStrategyError as error:
        warnings.warn(str(error), AutotopkWarning, stacklevel=2)
        return
    if reasons := strategy.reasons_unsupported(problem, device):
        rejected.append(f"{name}: {'; '.join(reasons)}")
        return
    config = strategy.heuristic(problem, device)
    if winner is not None and winner.strategy == name:
        config = _config(strategy, winner.config, problem, device) or config
    if config is None:
        config = next(iter(strategy.shortlist(problem, device)), None)
    if config is not None and not blocked(strategy, config, device):
        yield Choice("forced", strategy, config, rejected=tuple(rejected))


def _measured(step: Step, winner: Winner, problem: Problem, device: Device, rejected: list[str]) -> Iterator[Choice]:
    label = f"{winner.strategy} {winner.config} measured at {winner.key}"
    try:
        strategy = registry.get(winner.strategy)
    except UnknownStrategyError:
        rejected.append(f"{label}: the strategy is not installed")
        return
    if reasons := strategy.reasons_unsupported(problem, device):
        rejected.append(f"{label}: {'; '.join(reasons)}")
    elif (config := _config(strategy, winner.config, problem, device)) is None:
        rejected.append(f"{label}: the configuration does not fit")
    elif blocked(strategy, config, device):
        rejected.append(f"{label}: failed earlier in this process")
    else:
        yield Choice(step, strategy, config, winner, tuple(rejected))


def _config(strategy: Strategy, text: str, problem: Problem, device: Device) -> Config | None:
    try:
        config = strategy.parse_config(text)
    except UnsupportedProblemError:
        return None
    return config if strategy.valid(config, problem, device) else None


# What failed in this process ---------------------------------------------------------------------------------------

_blocked: set[tuple[str, str, str]] = set()


def block(choice: Choice, device: Device, error: Exception) -> None:
    """Leave a configuration out for the rest of the process, with a warning."""
    _blocked.add((choice.strategy.name, config_json(choice.config), device.fingerprint))
    message = f"{choice.strategy.name} {config_json(choice.config)} failed and is left out: {error}"
    warnings.warn(message, AutotopkWarning, stacklevel=4)


def blocked(strategy: Strategy, config: Config, device: Device) -> bool:
    """Whether `block` was called for it."""
    return bool(_blocked) and (strategy.name, config_json(config), device.fingerprint) in _blocked


# Winners -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Winners:
    """The winners of one device, by key and by bucket."""

    by_key: Mapping[TuningKey, Winner] = field(default_factory=dict)
    by_bucket: Mapping[TuningKey, tuple[Winner, ...]] = field(default_factory=dict)


def winners_for(device: Device) -> Winners:
    """The merged layers: AUTOTOPK_DB, then the user's, then the shipped winners, key by key."""
    return _by_device().get(device.fingerprint, _NO_WINNERS)


_NO_WINNERS = Winners()


@cache
def _by_device() -> dict[str, Winners]:
    """Read once per process; a layer that cannot be read costs a warning."""
    from autotopk.tuning_db import artifact  # brings sqlite3, which plans already made do without

    merged: dict[str, dict[TuningKey, Winner]] = {}
    user, shipped = settings.user_winners_path(), settings.shipped_winners_path()
    layers = [
        (settings.deployed_winners_path(), "AUTOTOPK_DB"),
        (user if os.path.exists(user) else None, "the user's winners"),
        (shipped if shipped and os.path.exists(shipped) else None, "the shipped winners"),
    ]
    for path, label in layers:
        if path is None:
            continue
        try:
            for winner in artifact.read(path):
                merged.setdefault(winner.device, {}).setdefault(winner.key, winner)
        except ArtifactError as error:
            warnings.warn(f"{label} cannot be used: {error}", AutotopkWarning, stacklevel=2)
    return {fingerprint: Winners(by_key, _buckets(by_key)) for fingerprint, by_key in merged.items()}


def _buckets(by_key: Mapping[TuningKey, Winner]) -> dict[TuningKey, tuple[Winner, ...]]:
    buckets: dict[TuningKey, tuple[Winner, ...]] = {}
    for key, winner in by_key.items():
        buckets[key.bucket()] = (*buckets.get(key.bucket(), ()), winner)
    return buckets


# Misses ------------------------------------------------------------------------------------------------------------

misses: Counter[tuple[str, TuningKey]] = Counter()
"""How often plans were made without a measured winner, by device fingerprint and key."""

_warned: set[str] = set()


def _note_miss(key: TuningKey, device: Device) -> None:
    misses[device.fingerprint, key] += 1
    if device.fingerprint not in _warned:
        _warned.add(device.fingerprint)
        message = f"nothing like {key} was tuned on {device.name}; `autotopk tune` measures what is fastest here"
        warnings.warn(message, AutotopkWarning, stacklevel=2)


@atexit.register
def _write_misses() -> None:
    """Append the misses of this process to AUTOTOPK_MISSES, one JSON object a line."""
    path = settings.misses_path()
    if path is None or not misses:
        return
    lines = [json.dumps({"device": device, "count": count, **asdict(key)}) for (device, key), count in misses.items()]
    try:
        with path.open("a") as file:
            file.write("\n".join(lines) + "\n")
    except OSError as error:
        warnings.warn(f"misses cannot be written to {path}: {error}", AutotopkWarning, stacklevel=2)


def reload() -> None:
    """Forget winners, failures and misses; what is on disk is read again on next use."""
    _by_device.cache_clear()
    _blocked.clear()
    _warned.clear()
    misses.clear()
