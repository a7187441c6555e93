"""What a report is about: what a file holds, and whether each of its winners would be served as it was measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from autotopk import settings
from autotopk.cli import transfer
from autotopk.errors import ArtifactError, AutotopkError, warn
from autotopk.fitted import model_of
from autotopk.prediction import Model
from autotopk.runtime.winners import is_current
from autotopk.tuning_db import artifact, ownership
from autotopk.tuning_db.records import Software, Tried, Winner


@dataclass(frozen=True)
class Source:
    """A file, read."""

    name: str
    kind: str
    winners: tuple[Winner, ...]
    tried: tuple[Tried, ...] = ()
    """Empty for files that hold winners alone."""
    software: tuple[Software, ...] = ()
    models: Mapping[str, Mapping[str, Model]] = field(default_factory=dict)
    """What predicts times where nothing was tuned, by device and kind."""


def read(path: Path) -> Source:
    """A tuning database, a winners file or a bundle. Raises ArtifactError or DatabaseError."""
    from autotopk.tuning_db.store import Store

    if ownership.holds_winners(path):
        found, bundle = artifact.opened(path)
        if found.loss:
            warn(f"{path}: {found.loss}")
        kind = "winners file" if bundle is None else "bundle"
        return Source(path.name, kind, tuple(found.winners()), models=_models(found.fitted))
    with Store.open(path, read_only=True) as store:
        return Source(
            path.name,
            "tuning database",
            tuple(store.winners()),
            tuple(store.tried()),
            tuple(store.software()),
            _published(settings.published_path(path)),
        )


def _published(path: Path) -> dict[str, dict[str, Model]]:
    """What was fitted to a tuning database, where it was published."""
    try:
        return _models(artifact.opened(path)[0].fitted)
    except ArtifactError:
        return {}


def _models(fitted: Iterable[Sequence[str]]) -> dict[str, dict[str, Model]]:
    """From the rows of a winners file, which were checked when it was opened."""
    found: dict[str, dict[str, Model]] = {}
    for (device, kind), rows in groupby(sorted(fitted, key=itemgetter(0, 1)), key=itemgetter(0, 1)):
        found.setdefault(device, {})[kind] = model_of(rows)
    return found


def usual() -> Source:
    """The user's tuning database; where there is none, the winners that run time serves."""
    path = settings.database_path()
    if path.exists():
        return read(path)
    return Source("what run time serves", "set of winners files", tuple(transfer.served()))


def states(winners: Iterable[Winner]) -> list[tuple[Winner, str]]:
    """Winners that are not known to be served as they were measured, each with why. Compiles nothing."""
    found = []
    for one in winners:
        try:
            current = is_current(one)
        except AutotopkError as error:
            found.append((one, f"not served: {error}"))
            continue
        if current is False:
            found.append((one, "stale: its code has changed since"))
        elif current is None:
            found.append((one, "unknown: only compiling tells whether its code has changed"))
    return found
