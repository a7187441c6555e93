"""What is installed, what it can do on the devices here, and which winners would be served."""

import importlib.util
import os
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from autotopk import __version__, kernel_cache, packs, registry, settings
from autotopk.cli.arguments import devices_here
from autotopk.cli.wording import counted
from autotopk.compilers import nvcc
from autotopk.compilers.tilelang import reasons_unbuildable
from autotopk.database import Database
from autotopk.device import Device, device_of
from autotopk.errors import ArtifactError, AutotopkError, AutotopkWarning, DatabaseError
from autotopk.kernel import distribution_version
from autotopk.runtime import self_check
from autotopk.runtime.borrowing import holders
from autotopk.runtime.state import default
from autotopk.runtime.winners import contents, is_current, layers
from autotopk.strategy import Strategy
from autotopk.tuning_db.records import Winner
from autotopk.workloads import tagged

Level = Literal["ok", "note", "warning", "broken"]
"""A note needs nothing done, a warning costs speed, something broken needs a hand."""

TESTED = {"torch": ("2.10", "2.13"), "triton": ("3.6", "3.7"), "tilelang": ("0.1.15", "0.1.15")}
"""Oldest and newest release that the tests were run with; the oldest is the bound in pyproject.toml, which has no upper
ones: they would keep autotopk out of environments that need a newer torch for something else."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    section: str
    level: Level
    text: str


def examine() -> Iterator[Finding]:
    """Every finding, in the order in which they are read best. Never raises for what it finds."""
    devices = devices_here()
    yield from _software()
    yield from _devices(devices)
    yield from _strategies(devices)
    yield from _kernels(devices)
    yield from _winners(devices)
    yield from _storage()


def check_kernels(step: Callable[[str, int, int], None]) -> None:
    """Try the shipped kernels on every kind of GPU here. Raises MeasurementError as `self_check.run`."""
    indices = {device_of(torch.device("cuda", at)).arch: at for at in range(torch.cuda.device_count())}
    for index in indices.values():
        self_check.run(index, lambda done, total, what: step(f"checking shipped kernels: {what}", done, total))


def _software() -> Iterator[Finding]:
    section = "software"
    yield Finding(section, "ok", f"autotopk {__version__}")
    for name in TESTED:
        yield _version(name, str(torch.__version__) if name == "torch" else distribution_version(name))
    for tool, path, purpose in (
        ("nvcc", nvcc.find(), "compiles the kernels of TileLang and of CUDA C++"),
        ("cc", shutil.which("cc"), "builds the C extensions"),
    ):
        yield Finding(section, "ok" if path else "note", f"{tool}: {path or f'not found ({purpose})'}")
    for reason in reasons_unbuildable():
        yield Finding(section, "note", f"TileLang kernels cannot be compiled here: {reason}")
    for name, purpose in (("runtime._launcher", "calls kernels"), ("_predict", "predicts times")):
        built = importlib.util.find_spec(f"autotopk.{name}") is not None
        yield Finding(
            section, "ok" if built else "note", f"C extension that {purpose} {'built' if built else 'not built'}"
        )


def _version(name: str, version: str) -> Finding:
    """A release against those that were tested."""
    oldest, newest = TESTED[name]
    if version == "absent":
        return Finding("software", "note", f"{name} is not installed")
    if _release(version, newest) > _release(newest, newest):
        return Finding("software", "note", f"{name} {version} is newer than the newest tested, {newest}")
    if _release(version, oldest) < _release(oldest, oldest):
        return Finding("software", "warning", f"{name} {version} is older than the oldest supported, {oldest}")
    return Finding("software", "ok", f"{name} {version}")


def _release(version: str, like: str) -> list[int]:
    """The numbers of a version, as many as another one has."""
    return [int(number) for number in re.findall("[0-9]+", version)[: like.count(".") + 1]]


def _devices(devices: list[Device]) -> Iterator[Finding]:
    for device in devices:
        yield Finding("devices", "ok", device.fingerprint)
    if len(devices) == 1:
        yield Finding("devices", "note", "no CUDA device: torch.topk's CPU operators are all that can be tuned here")


def _strategies(devices: list[Device]) -> Iterator[Finding]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AutotopkWarning)
        available = registry.available()
    for warning in caught:
        yield Finding("strategies", "warning", str(warning.message))
    for device in dict.fromkeys(devices):
        for strategy in available:
            yield _ability(strategy, device)


def _ability(strategy: Strategy, device: Device) -> Finding:
    """How many of the device's usual workloads the strategy serves, and its commonest reasons not to."""
    tag = "seeds" if device.type == "cuda" else "ci"
    answers = [strategy.reasons_unable(w.problem(device.type), device) for w in tagged(tag)]
    reasons = Counter(reason for answer in answers for reason in answer)
    able = sum(not answer for answer in answers)
    text = f"{strategy.name} on {device.name}: able for {able} of {len(answers)} {tag} workloads"
    if reasons:
        text += "; not: " + "; ".join(reason for reason, _ in reasons.most_common(3))
    unbuildable = strategy.reasons_unbuildable() if able else []
    if unbuildable:
        text += "; only with kernels compiled before: " + "; ".join(unbuildable)
    return Finding("strategies", "ok" if able and not unbuildable else "note", text)


def _kernels(devices: list[Device]) -> Iterator[Finding]:
    section, shipped = "kernels", packs.here()
    if shipped is None:
        yield Finding(section, "note", f"off (AUTOTOPK_PACKS={os.environ.get('AUTOTOPK_PACKS')})")
        return
    for device in dict.fromkeys(device for device in devices if device.type == "cuda"):
        pack, check = shipped.pack(device.arch), shipped.check(device.arch)
        if pack is None:
            yield Finding(section, "note", f"none are shipped for {device.name} (sm_{device.arch})")
            continue
        text = f"{pack.path}: {counted(len(pack.kernels), 'kernel')} for {device.name}"
        rungs = [source for strategy in registry.built_in() for source in strategy.rungs(device.arch)]
        outdated = sum(shipped.packed(source, device.arch) is None for source in rungs)
        unused = {code: check.failed[code] for *_, code in pack.kernels.values() if check and code in check.failed}
        if check is None or shipped.untried(device.arch):
            cure = "`autotopk doctor --check` tries them"
            yield Finding(section, "warning", f"{text}; unchecked ones are not used: {cure}")
        elif outdated:
            text += f"; {outdated} of other device files than those here {_is(outdated)} not used: `make kernels`"
            yield Finding(section, "warning", text)
        elif unused:
            reasons = "; ".join(dict.fromkeys(unused.values()))
            yield Finding(
                section,
                "warning",
                f"{text}; {len(unused)} {_is(len(unused))} not used here: {reasons}",
            )
        else:
            yield Finding(section, "ok", f"{text}, checked on {check.device}")


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _winners(devices: list[Device]) -> Iterator[Finding]:
    for layer, path in layers():
        if path is None:
            off = f"off (AUTOTOPK_SHIPPED={os.environ.get('AUTOTOPK_SHIPPED')})"
            yield Finding("winners", "note", f"{layer}: {off if layer == 'shipped' else 'not set'}")
        elif not os.path.exists(path) and layer != "AUTOTOPK_DB":
            yield Finding("winners", "note", f"{layer}: none at {path}")
        else:
            yield _layer(layer, path, devices)
    for device in dict.fromkeys(devices):
        yield from _borrowed(device)


def _borrowed(device: Device) -> Iterator[Finding]:
    """Whose winners serve a GPU, beside or in place of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AutotopkWarning)  # files that cannot be used have findings of their own
        known = default.known()
    _, (twins, kin) = holders(device, known)
    for alike, group in (("as many multiprocessors", twins), ("the same compute capability", kin)):
        for winners in group:
            if winners.device is not None:
                lent = f"{device.name} borrows from {winners.device.name}, which has {alike}"
                yield Finding("winners", "ok", f"{lent}: {counted(sum(1 for _ in winners), 'winner')}")


def _layer(layer: str, path: Path, devices: list[Device]) -> Finding:
    try:
        found, bundle = contents(layer, path)
    except ArtifactError as error:
        return Finding("winners", "broken", f"{layer}: {path}: {error}")
    winners = found.winners()
    here = {device.fingerprint for device in devices}
    ours = [winner for winner in winners if winner.device.fingerprint in here]
    text = f"{layer}: {path}: {counted(len(winners), 'winner')}, {len(ours) or 'none'} for the devices here"
    if bundle is not None:
        text += f", {counted(len(bundle.kernels), 'kernel')}"
    if bundle is not None and bundle.reasons_untrusted:
        return Finding("winners", "warning", f"{text}; kernels are not loaded: {'; '.join(bundle.reasons_untrusted)}")
    if troubles := Counter(filter(None, map(_trouble, ours))):
        text += "; " + ", ".join(f"{count} {trouble}" for trouble, count in troubles.items())
        return Finding("winners", "warning", text + "; `autotopk tune` measures them again")
    if found.loss:
        return Finding("winners", "warning", f"{text}; {found.loss}")
    return Finding("winners", "ok" if ours else "note", text)


def _trouble(winner: Winner) -> str | None:
    """What keeps a winner from being served as it was measured."""
    try:
        current = is_current(winner)
    except AutotopkError:
        return f"not served ({winner.candidate.strategy}, or its configuration, is unknown here)"
    return f"stale ({winner.candidate.strategy} compiles to other code since)" if current is False else None


def _storage() -> Iterator[Finding]:
    yield _database(settings.database())
    folder = settings.cache_dir()
    existing = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        yield Finding("storage", "ok", f"cache folder {folder} is writable")
    else:
        yield Finding("storage", "warning", f"cache folder {folder} is not writable: every process compiles again")
    for reason in kernel_cache.reasons_untrusted(settings.kernel_dir()):
        yield Finding("storage", "warning", f"compiled kernels are not loaded: {reason}, {kernel_cache.OR}")


def _database(path: Database) -> Finding:
    if isinstance(path, Path) and not path.exists():
        return Finding("storage", "note", f"no tuning database at {path} yet; `autotopk tune` makes it")
    from autotopk.tuning_db.store import Store

    try:
        with Store.open(path, read_only=True) as store:
            devices, measurements, winners = len(store.devices()), len(store.measurements()), len(store.winners())
    except DatabaseError as error:
        return Finding("storage", "broken", f"tuning database {path}: {error}")
    counts = ", ".join([counted(measurements, "measurement"), counted(winners, "winner"), counted(devices, "device")])
    text = f"tuning database {path}: {counts}"
    return Finding("storage", "ok", text)
