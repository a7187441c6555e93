"""Winners on their way between files: where they are found, exported to and imported from."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from autotopk import kernel, settings
from autotopk.cli.arguments import SelectionError, device_named
from autotopk.database import Database
from autotopk.device import Device
from autotopk.errors import ArtifactError, DatabaseError, inert, warn
from autotopk.fitted import Fitted
from autotopk.key import TuningKey
from autotopk.runtime.state import default
from autotopk.runtime.winners import layers
from autotopk.tuning_db import artifact, ownership
from autotopk.tuning_db.records import Measurement, Winner

if TYPE_CHECKING:
    from autotopk.tuning_db.store import Store


def known_devices() -> list[Device]:
    """All devices that run time has winners for."""
    found: dict[str, Device] = {}
    for _, path in layers():
        if path is not None and os.path.exists(path):
            with suppress(ArtifactError):
                found |= {winner.device.fingerprint: winner.device for winner in artifact.contents(path).winners()}
    return [found[fingerprint] for fingerprint in sorted(found)]


def served() -> list[Winner]:
    """What run time would serve on every device: the layers merged key by key."""
    return [winner for device in known_devices() for winner in default.winners(device)]


def winners(database: Database | None, device: str | None) -> tuple[list[Winner], str]:
    """Winners, and where they are from.

    That is the named tuning database or winners file, else the user's tuning database, else, where there is none,
    what run time serves. Raises DatabaseError, SelectionError.
    """
    path = database or settings.database()
    if database is None and isinstance(path, Path) and not path.exists():
        found, source = served(), "the winners that run time serves"
    else:
        found, source = _read(path), str(path)
    if device is not None:
        wanted = device_named(device, (winner.device for winner in found)).fingerprint
        found = [winner for winner in found if winner.device.fingerprint == wanted]
    return found, source


def measurements(database: Database | None, device: str | None) -> tuple[list[Measurement], str]:
    """Everything measured, and where it is stored. Raises DatabaseError, SelectionError."""
    from autotopk.tuning_db.store import Store

    path = database or settings.database()
    if isinstance(path, Path) and ownership.holds_winners(path):
        raise DatabaseError(f"{path} holds winners, not the measurements behind them")
    with Store.open(path, read_only=True) as store:
        wanted = device and device_named(device, store.devices()).fingerprint
        return store.measurements(device=wanted), str(path)


def fitted(database: Database | None) -> list[Fitted]:
    """What was fitted beside `winners`, from the same place. Raises ArtifactError, DatabaseError."""
    from autotopk.tuning_db.store import Store

    path = database or settings.database()
    try:
        if database is None and isinstance(path, Path) and not path.exists():
            return [Fitted.of(row) for winners in default.known().values() for row in winners.fitted()]
        if isinstance(path, Path) and ownership.holds_winners(path):
            return [Fitted.of(row) for row in artifact.contents(path).fitted]
    except ValueError as error:
        raise ArtifactError(f"what was fitted in {path} cannot be used: {inert(error)}") from error
    with Store.open(path, read_only=True) as store:
        return _fitted(store)


def _fitted(store: "Store") -> list[Fitted]:
    from autotopk.tuning import bounds

    return bounds.fitted(store)


def export(winners: Sequence[Winner], path: Path, fitted: Iterable[Fitted] = (), *, force: bool = False) -> list[Path]:
    """Publish winners. Returns the files written, the artifact first. Raises ArtifactError."""
    check_any(winners, path)
    artifact.publish(winners, path, fitted, force=force)
    return [path, path.with_suffix(".json"), path.with_name(f"{path.name}.sha256")]


def check_any(winners: Sequence[Winner], path: Path) -> None:
    """Raise ArtifactError where there is nothing to write to a file."""
    if not winners:
        raise ArtifactError(f"there are no winners to write to {path}; `autotopk tune` makes some")


def import_measurements(other: Database, database: Database | None) -> tuple[int, list[Winner], Path]:
    """Merge another tuning database into ours, or into a named one, and publish its winners again.

    Returns how many measurements were new, the winners, and where they are. Raises DatabaseError, ArtifactError.
    """
    from autotopk.tuning_db.store import Store

    if isinstance(other, Path) and ownership.holds_winners(other):
        raise DatabaseError(
            f"{other} holds winners, not the measurements behind them: serve from it with AUTOTOPK_DB={other}, "
            "or import the tuning database that it was exported from"
        )
    with Store.open(database or settings.database()) as store, _publishing(store) as published:
        new = store.merge(other)
        found = store.winners()
    return new, found, published


def drop(keys: Sequence[TuningKey], device: str | None, database: Database | None) -> tuple[list[TuningKey], Path]:
    """Let what was measured for keys on a device count no more, and publish the winners that are left.

    Returns the keys for which anything counted, and where the winners are. Raises DatabaseError, ArtifactError, and
    SelectionError where nothing counted.
    """
    from autotopk.tuning_db.store import Store

    path = database or settings.database()
    if isinstance(path, Path) and not path.exists():
        raise DatabaseError(f"there is no tuning database at {path}; `autotopk tune` makes one")
    with Store.open(path) as store, _publishing(store) as published:
        fingerprint = device_named(device, store.devices()).fingerprint
        dropped = [key for key in keys if store.discard(fingerprint, key)]
        if not dropped:
            told = ", ".join(map(str, keys))
            raise SelectionError(f"nothing that counts was measured for {inert(told)} on {inert(fingerprint)}")
        store.derive_winners(fingerprint)
    return dropped, published


@contextmanager
def _publishing(store: "Store") -> Iterator[Path]:
    """Where a database's winners go when the caller has changed it. Raises ArtifactError, if it can before that."""
    published = settings.published_path(store.place)
    ownership.refuse_to_overwrite(published)
    yield published
    artifact.publish(store.winners(), published, _fitted(store))
    default.reload()


def _read(path: Database) -> list[Winner]:
    """The winners of a tuning database, or of an artifact."""
    from autotopk.tuning_db.store import Store

    if isinstance(path, Path) and ownership.holds_winners(path):
        found, bundle = artifact.opened(path)
        kernel.deploy(bundle)  # for who exports it anew
        if found.loss:
            warn(f"{path}: {found.loss}")
        return list(found.winners())
    with Store.open(path, read_only=True) as store:
        return store.winners()
