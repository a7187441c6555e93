"""The winners as a file that travels: written by `tune` and `export`, read at run time by the standard library alone.

Three files: an SQLite database, the same winners as JSON for people, and `sha256sum -c` lines for both. The database
also holds a digest of its rows, and that alone is what readers verify: two files cannot be replaced in one instant.
"""

import hashlib
import json
import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, astuple
from pathlib import Path
from tempfile import TemporaryDirectory

from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import ArtifactError
from autotopk.identity import Identity
from autotopk.key import TuningKey
from autotopk.tuning_db import format_1
from autotopk.tuning_db.columns import (
    CONFIG,
    COUNT,
    NAME,
    NUMBER,
    SHAPE,
    SIZE,
    TEXT,
    TIME,
    Columns,
    Row,
    check_rows,
    check_shapes,
    create,
    or_nothing,
)
from autotopk.tuning_db.records import Winner

APPLICATION_ID = int.from_bytes(b"atkW")
"""Marks the SQLite file as a winners file."""

FORMAT = 2
"""Layout of the file, its `user_version`; older ones are read too, newer ones refused."""

DEVICE_COLUMNS: Columns = {
    "fingerprint": TEXT,
    "type": TEXT,
    "name": TEXT,
    "major": COUNT,
    "minor": COUNT,
    "processors": SIZE,
    "l2_bytes": COUNT,
    "memory_gib": COUNT,
    "shared_bytes": COUNT,
}
"""Of `Device`, whose compute capability is major and minor."""

COLUMNS: Columns = {
    "device": TEXT,
    **SHAPE,
    "strategy": NAME,
    "config": CONFIG,
    "source": TEXT,
    "code": TEXT,
    "time_us": TIME,
    "baseline_us": TIME,
    "ratio": TIME,
    "baseline": TEXT,
    "measured_at": TEXT,
    "runner_up_strategy": or_nothing(NAME),
    "runner_up_config": or_nothing(CONFIG),
    "gap": or_nothing(NUMBER),
    "adversarial_slowdown": or_nothing(TIME),
}
"""A winner's fields in their order, spelled out; `device` is a fingerprint of the other table."""

KEY = "device, dtype, rows, cols, k, sorted"
"""The columns that no two winners share; also the order of the rows."""

TABLES = {
    "device": create("device", DEVICE_COLUMNS, "fingerprint"),
    "winner": create("winner", COLUMNS, KEY),
    "digest": "CREATE TABLE digest (sha256 TEXT)",
}
"""All that the database holds."""


def publish(winners: Iterable[Winner], path: Path) -> None:
    """Write winners, at most one per device and key, as `path`, its twin in JSON, and checksums; each replaced whole.

    Raises ArtifactError on winners that could not be read back, and where the folder cannot be written.
    """
    twin, checksums = path.with_suffix(".json"), path.with_name(f"{path.name}.sha256")
    if path == twin:
        raise ArtifactError(f"winners cannot be published as {path}: that name is for their JSON twin, try .sqlite")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            new, new_twin, new_checksums = (Path(folder, target.name) for target in (path, twin, checksums))
            _write_database(winners, new)
            new_twin.write_text(_json(read(new)))
            new_checksums.write_text(f"{_sha256(new)}  {path.name}\n{_sha256(new_twin)}  {twin.name}\n")
            for file in (new, new_twin, new_checksums):
                _sync(file)
            with _exclusive(path.parent):
                checksums.unlink(missing_ok=True)  # a publisher killed from here on leaves none rather than a wrong one
                os.replace(new, path)
                os.replace(new_twin, twin)
                os.replace(new_checksums, checksums)
    except (OSError, sqlite3.Error, ArtifactError) as error:
        raise ArtifactError(f"winners cannot be published as {path}: {error}") from error


def read(path: Path) -> tuple[Winner, ...]:
    """The winners of a file, which may be of many devices; nothing in it is executed, and it is never written.

    Raises ArtifactError where it is missing, unreadable, damaged, foreign, newer, or holds anything but winners.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            return (_read_1 if _format(connection) == 1 else _read_2)(connection)
    except (sqlite3.Error, ValueError) as error:
        raise ArtifactError(f"{path}: {error}") from error


def _format(connection: sqlite3.Connection) -> int:
    """The format of a winners file. Raises ValueError where it is none, or of a later autotopk."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID or found < 1:
        raise ValueError("not a winners file of autotopk")
    if found > FORMAT:
        raise ValueError(f"has format {found}; this autotopk reads up to {FORMAT}: upgrade autotopk")
    return int(found)


def _read_1(connection: sqlite3.Connection) -> tuple[Winner, ...]:
    rows = _rows(connection)
    _check(connection, format_1.TABLES, rows)
    check_rows(format_1.COLUMNS, rows)
    check_shapes(list(format_1.COLUMNS), rows)
    return tuple(map(format_1.winner, rows))


def _read_2(connection: sqlite3.Connection) -> tuple[Winner, ...]:
    rows = _rows(connection)
    device_rows = _device_rows(connection)
    _check(connection, TABLES, [*device_rows, *rows])
    check_rows(DEVICE_COLUMNS, device_rows)
    check_rows(COLUMNS, rows)
    check_shapes(list(COLUMNS), rows)
    devices = dict(map(_device, device_rows))
    if unknown := {row[0] for row in rows} - {*devices}:
        raise ValueError(f"device is {unknown.pop()!r}, which its table of devices does not have")
    return tuple(_winner(row, devices) for row in rows)


def _check(connection: sqlite3.Connection, tables: dict[str, str], rows: list[Row]) -> None:
    """Raise ValueError unless the file holds these tables, whole, and the rows that were written."""
    if (result := connection.execute("PRAGMA quick_check").fetchone()) != ("ok",):
        raise ValueError(f"damaged: {result[0].splitlines()[-1]}")
    if dict(connection.execute("SELECT name, sql FROM sqlite_master")) != tables:
        raise ValueError("its tables are not those of a winners file")
    if connection.execute("SELECT sha256 FROM digest").fetchall() != [(_digest(rows),)]:
        raise ValueError("its winners do not match its digest: damaged, or changed by hand")


def _rows(connection: sqlite3.Connection) -> list[Row]:
    return connection.execute(f"SELECT * FROM winner ORDER BY {KEY}").fetchall()


def _device_rows(connection: sqlite3.Connection) -> list[Row]:
    return connection.execute("SELECT * FROM device ORDER BY fingerprint").fetchall()


def _device_row(device: Device) -> Row:
    type_, name, capability, *rest = astuple(device)
    return (device.fingerprint, type_, name, *capability, *rest)


def _device(row: Row) -> tuple[str, Device]:
    """The inverse of `_device_row`, by its fingerprint. Raises ValueError where that is another one."""
    fingerprint, type_, name, major, minor, *rest = row
    device = Device(type_, name, (major, minor), *rest)
    if device.fingerprint != fingerprint:
        raise ValueError(f"device {fingerprint!r} has the columns of {device.fingerprint!r}")
    return fingerprint, device


def _row(winner: Winner) -> Row:
    second = (None, None) if winner.runner_up is None else astuple(winner.runner_up)
    return (
        winner.device.fingerprint,
        *astuple(winner.key),
        *astuple(winner.candidate),
        *astuple(winner.identity),
        *(winner.time_us, winner.baseline_us, winner.ratio, winner.baseline, winner.measured_at),
        *second,
        winner.gap,
        winner.adversarial_slowdown,
    )


def _winner(row: Row, devices: dict[str, Device]) -> Winner:
    """The inverse of `_row`."""
    device, dtype, rows, cols, k, sorted_, strategy, config, source, code, *rest = row
    time_us, baseline_us, ratio, baseline, measured_at, second, its_config, gap, slowdown = rest
    if (second is None) != (its_config is None):
        raise ValueError("a runner-up is a strategy and its configuration")
    return Winner(
        devices[device],
        TuningKey(dtype, rows, cols, k, bool(sorted_)),
        Candidate(strategy, config),
        Identity(source, code),
        time_us,
        baseline_us,
        ratio,
        baseline,
        measured_at,
        None if second is None else Candidate(second, its_config),
        gap,
        slowdown,
    )


def _digest(rows: list[Row]) -> str:
    return hashlib.sha256(ascii(rows).encode()).hexdigest()


def _write_database(winners: Iterable[Winner], path: Path) -> None:
    winners = list(winners)
    devices = {winner.device.fingerprint: winner.device for winner in winners}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in TABLES.values():
            connection.execute(statement)
        insert = "INSERT INTO {} VALUES ({})"
        connection.executemany(
            insert.format("device", ", ".join("?" * len(DEVICE_COLUMNS))), map(_device_row, devices.values())
        )
        connection.executemany(insert.format("winner", ", ".join("?" * len(COLUMNS))), map(_row, winners))
        rows = [*_device_rows(connection), *_rows(connection)]
        connection.execute("INSERT INTO digest VALUES (?)", [_digest(rows)])
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("VACUUM INTO ?", [str(path)])


def _json(winners: tuple[Winner, ...]) -> str:
    """For people: knobs as an object, devices once."""
    devices = {winner.device.fingerprint: asdict(winner.device) for winner in winners}
    listed = [
        {
            **asdict(winner),
            "device": winner.device.fingerprint,
            "candidate": _as_object(winner.candidate),
            "runner_up": winner.runner_up and _as_object(winner.runner_up),
        }
        for winner in winners
    ]
    return json.dumps({"format": FORMAT, "devices": devices, "winners": listed}, indent=2) + "\n"


def _as_object(candidate: Candidate) -> dict[str, object]:
    return {"strategy": candidate.strategy, "knobs": candidate.knobs}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """One publisher at a time in a folder, and its new names on disk at the end, as far as the file system can."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
