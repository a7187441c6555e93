"""What a report is about: what a file holds, and whether each of its winners would be served as it was measured."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autotopk import settings
from autotopk.cli import transfer
from autotopk.errors import AutotopkError, warn
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


def read(path: Path) -> Source:
    """A tuning database, a winners file or a bundle. Raises ArtifactError or DatabaseError."""
    from autotopk.tuning_db.store import Store

    if ownership.holds_winners(path):
        found, bundle = artifact.opened(path)
        if found.loss:
            warn(f"{path}: {found.loss}")
        return Source(path.name, "winners file" if bundle is None else "bundle", tuple(found.winners()))
    with Store.open(path, read_only=True) as store:
        return Source(
            path.name, "tuning database", tuple(store.winners()), tuple(store.tried()), tuple(store.software())
        )


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
