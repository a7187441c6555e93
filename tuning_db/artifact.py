"""The winners as a file that travels: written by `tune` and `export`, read at run time by the standard library alone.

Three files: an SQLite database, the same winners as JSON for people, and `sha256sum -c` lines for both. The database
also holds a digest of its rows, and that alone is what readers verify: two files cannot be replaced in one instant.
"""

import hashlib
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, astuple, fields
from math import inf, isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autotopk.errors import ArtifactError
from autotopk.key import TuningKey
from autotopk.problem import DTYPE_BYTES
from autotopk.tuning_db.records import Winner

APPLICATION_ID = int.from_bytes(b"atkW")
"""Marks the SQLite file as a winners file."""

FORMAT = 1
"""Layout of the file, its `user_version`; readers refuse a newer one."""

Accepts = Callable[[Any], bool]


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_name(value: object) -> bool:
    return type(value) is str and value.isidentifier()


def _is_config(value: object) -> bool:
    try:
        knobs = json.loads(value) if type(value) is str else None
    except (ValueError, RecursionError):
        return False
    return type(knobs) is dict and all(
        isinstance(knob, (str, int)) or (type(knob) is float and isfinite(knob)) for knob in knobs.values()
    )


def _is_size(value: object) -> bool:
    return type(value) is int and value > 0


def _is_number(value: object) -> bool:
    return type(value) is float and isfinite(value)


def _is_time(value: object) -> bool:
    return type(value) is float and 0 < value < inf


def _or_nothing(accepts: Accepts) -> Accepts:
    return lambda value: value is None or accepts(value)


COLUMNS: dict[str, tuple[str, Accepts, str]] = {
    "device": ("TEXT", _is_text, "a text"),
    "dtype": ("TEXT", DTYPE_BYTES.__contains__, f"one of {', '.join(DTYPE_BYTES)}"),
    "rows": ("INTEGER", _is_size, "a positive integer"),
    "cols": ("INTEGER", _is_size, "a positive integer"),
    "k": ("INTEGER", _is_size, "a positive integer"),
    "sorted": ("INTEGER", (0, 1).__contains__, "0 or 1"),
    "strategy": ("TEXT", _is_name, "an identifier"),
    "config": ("TEXT", _is_config, "a JSON object of texts, finite numbers, true and false"),
    "version": ("TEXT", _is_text, "a text"),
    "time_us": ("REAL", _is_time, "a positive number"),
    "baseline_us": ("REAL", _is_time, "a positive number"),
    "ratio": ("REAL", _is_time, "a positive number"),
    "baseline": ("TEXT", _is_text, "a text"),
    "measured_at": ("TEXT", _is_text, "a text"),
    "runner_up": ("TEXT", _or_nothing(_is_text), "a text"),
    "gap": ("REAL", _or_nothing(_is_number), "a number"),
    "adversarial_slowdown": ("REAL", _or_nothing(_is_time), "a positive number"),
}
"""A winner's fields in their order, the key spelled out: SQL type, check of a stored value, and that check in words."""

KEY = "device, dtype, rows, cols, k, sorted"
"""The columns that no two winners share; also the order of the rows."""

TABLES = {
    "winner": f"CREATE TABLE winner ({', '.join(f'{name} {sql}' for name, (sql, _, _) in COLUMNS.items())}, "
    f"PRIMARY KEY ({KEY})) WITHOUT ROWID",
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
            _check_file(connection)
            rows = _rows(connection)
            if connection.execute("SELECT sha256 FROM digest").fetchall() != [(_digest(rows),)]:
                raise ValueError("its winners do not match its digest: damaged, or changed by hand")
            _check_rows(rows)
            return tuple(map(_winner, rows))
    except (sqlite3.Error, ValueError) as error:
        raise ArtifactError(f"{path}: {error}") from error


def _check_file(connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise ValueError("not a winners file of autotopk")
    if found > FORMAT:
        raise ValueError(f"has format {found}; this autotopk reads up to {FORMAT}: upgrade autotopk")
    if (result := connection.execute("PRAGMA quick_check").fetchone()) != ("ok",):
        raise ValueError(f"damaged: {result[0].splitlines()[-1]}")
    if dict(connection.execute("SELECT name, sql FROM sqlite_master")) != TABLES:
        raise ValueError("its tables are not those of a winners file")


def _rows(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT * FROM winner ORDER BY {KEY}").fetchall()


def _row(winner: Winner) -> tuple[Any, ...]:
    device, key, *rest = (getattr(winner, field.name) for field in fields(winner))
    return (device, *astuple(key), *rest)


def _check_rows(rows: list[tuple[Any, ...]]) -> None:
    """Raise ValueError on a value that no winner has."""
    for (name, (_, accepts, accepted)), values in zip(COLUMNS.items(), zip(*rows, strict=True), strict=False):
        for value in set(values):  # configurations and devices repeat
            if not accepts(value):
                raise ValueError(f"{name} is {value!r}, not {accepted}")
    for _, _, _, cols, k, *_ in rows:
        if k > cols:
            raise ValueError(f"k is {k}, more than cols, {cols}")


def _winner(row: tuple[Any, ...]) -> Winner:
    """The inverse of `_row`."""
    device, dtype, rows, cols, k, sorted_, *rest = row
    return Winner(device, TuningKey(dtype, rows, cols, k, bool(sorted_)), *rest)


def _digest(rows: list[tuple[Any, ...]]) -> str:
    return hashlib.sha256(ascii(rows).encode()).hexdigest()


def _write_database(winners: Iterable[Winner], path: Path) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in TABLES.values():
            connection.execute(statement)
        connection.executemany(f"INSERT INTO winner VALUES ({', '.join('?' * len(COLUMNS))})", map(_row, winners))
        connection.execute("INSERT INTO digest VALUES (?)", [_digest(_rows(connection))])
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("VACUUM INTO ?", [str(path)])


def _json(winners: tuple[Winner, ...]) -> str:
    told = [{**asdict(winner), "config": json.loads(winner.config)} for winner in winners]
    return json.dumps({"format": FORMAT, "winners": told}, indent=2) + "\n"


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
