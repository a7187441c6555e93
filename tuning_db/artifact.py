"""The winners as a file that travels: written by `tune` and `export`, read at run time by the standard library alone.

Three files: an SQLite database, the same winners as JSON for people, and `sha256sum -c` lines for both. The database
also holds a digest of its rows, and that alone is what readers verify: two files cannot be replaced in one instant.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import astuple
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import LONGEST_PATH, ArtifactError, inert
from autotopk.files import exclusive, open_regular, sync
from autotopk.fitted import Fitted
from autotopk.identity import Identity
from autotopk.key import TuningKey
from autotopk.tuning_db import format_1
from autotopk.tuning_db.bundle import WINNERS, Bundle
from autotopk.tuning_db.columns import DEVICE, SHAPE, Row, device_row, devices_of, misfit, odd_rows
from autotopk.tuning_db.formats import COLUMNS, FITTED, FITTED_KEY, FORMAT, KEY, KEY_3, OLDER, TABLES
from autotopk.tuning_db.ownership import APPLICATION_ID, SQLITE, beside, is_bundle, refuse_to_overwrite
from autotopk.tuning_db.records import Winner
from autotopk.tuning_db.twin import to_json

MAX_BYTES = 64 << 20
"""Of a winners file; 100,000 winners have some 30 MB."""

MAX_WINNERS, MAX_DEVICES, MAX_FITTED = 100_000, 1_000, 200_000
"""In one file: some hundred times what everybody together has measured, and read in a second."""

MAX_ROW_BYTES = 1 << 20
"""Of a row, and of a statement that makes a table."""

MAX_STEPS, STEPS = 100_000_000, 1_000_000
"""Of SQLite's machine to read a file: 100,000 winners take a tenth. Pages that refer to each other can ask for more
than any process lives to see. The second is how many pass between two looks at the count."""

_KEY_END, _SECOND = 1 + len(SHAPE), list(COLUMNS).index("runner_up_strategy")


def publish(winners: Iterable[Winner], path: Path, fitted: Iterable[Fitted] = (), *, force: bool = False) -> None:
    """Write winners, at most one per device and key, as `path`, its twin in JSON, and checksums; each replaced whole.

    What was fitted of devices without winners is left out, and is not in the twin.

    Raises ArtifactError on winners that could not be read back, where the folder cannot be written, and, unless forced,
    where a file of that name is none of ours.
    """
    twin, checksums = beside(path)
    if path == twin:
        raise ArtifactError(f"winners cannot be published as {path}: that name is for their JSON twin, try .sqlite")
    if not force:
        refuse_to_overwrite(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            new, new_twin, new_checksums = (Path(folder, target.name) for target in (path, twin, checksums))
            with closing(_database(winners, fitted)) as connection:
                connection.execute("VACUUM INTO ?", [str(new)])
            new_twin.write_text(to_json(FORMAT, read(new)))
            new_checksums.write_text(f"{_sha256(new)}  {path.name}\n{_sha256(new_twin)}  {twin.name}\n")
            for file in (new, new_twin, new_checksums):
                sync(file)
            with exclusive(path.parent):
                checksums.unlink(missing_ok=True)  # a publisher killed from here on leaves none rather than a wrong one
                os.replace(new, path)
                os.replace(new_twin, twin)
                os.replace(new_checksums, checksums)
    except (OSError, sqlite3.Error, ArtifactError) as error:
        raise ArtifactError(f"winners cannot be published as {path}: {error}") from error


def to_bytes(winners: Iterable[Winner], fitted: Iterable[Fitted] = ()) -> bytes:
    """The database alone, the same bytes whatever the order of the winners. Raises ArtifactError as `publish` does."""
    try:
        with closing(_database(winners, fitted)) as connection:
            connection.execute("VACUUM")
            data = connection.serialize()
        if loss := _read_bytes(data).loss:
            raise ValueError(loss)
    except (sqlite3.Error, ValueError) as error:
        raise ArtifactError(f"winners cannot be written: {inert(error)}") from error
    return data


class Contents(NamedTuple):
    """What a winners file holds, as rows: a process asks for few of its winners."""

    rows: list[Row]
    """Fingerprint, dtype, rows, cols, k, sorted, routing, and what `winner` alone reads."""
    winner: Callable[[Row], Winner]
    """The winner that a row stands for."""
    left_out: list[str]
    """Why further rows stand for none: a reason for each."""
    devices: dict[str, Device]
    """By the fingerprints in rows."""
    fitted: list[Row] = []  # noqa: RUF012  # of a tuple's field, never changed
    """Fingerprint, kind, part, name and numbers as text: see `prediction.Fitted`."""
    unfitted: str = ""
    """Why nothing of what was fitted can be used."""

    def winners(self) -> tuple[Winner, ...]:
        """All of them."""
        return tuple(map(self.winner, self.rows))

    @property
    def loss(self) -> str | None:
        """How many winners are left out, and why the first of them is."""
        if not self.left_out:
            return f"what was fitted is left out, because {self.unfitted}" if self.unfitted else None
        total = len(self.rows) + len(self.left_out)
        return f"{len(self.left_out)} of {total} winners are left out, the first because {self.left_out[0]}"


def read(path: Path) -> tuple[Winner, ...]:
    """The winners of a file, which may be of many devices.

    Raises ArtifactError where `contents` does, and where that leaves out any.
    """
    found = contents(path)
    if reasons := [*found.left_out, *filter(None, [found.unfitted])]:
        raise ArtifactError(f"{path}: {reasons[0]}")
    return found.winners()


def contents(path: Path) -> Contents:
    """What can be used of a winners file or a bundle; nothing in it is executed, and it is never written.

    Rows that `publish` would not have written are left out: the digest says that nothing else changed since.

    Raises ArtifactError where the file is missing, no regular file, unreadable, damaged, foreign, newer or too large.
    """
    return opened(path)[0]


def opened(path: Path, key: Path | None = None) -> tuple[Contents, Bundle | None]:
    """The same, and the bundle that it is of.

    Raises ArtifactError as `contents`; with a public key also where it is no bundle that was signed by it.
    """
    if is_bundle(path):
        bundle = Bundle.read(path, key)
        try:
            return _read_bytes(bundle.member(WINNERS, MAX_BYTES)), bundle
        except (sqlite3.Error, ValueError) as error:
            raise ArtifactError(f"{inert(path, LONGEST_PATH)}: {inert(error)}") from error
    found = _read_file(path)
    if key is not None:
        raise ArtifactError(f"{inert(path, LONGEST_PATH)}: no bundle, and one signed by {inert(key)} is asked for")
    return found, None


def _read_file(path: Path) -> Contents:
    """Raises ArtifactError."""
    try:
        open_regular(path, MAX_BYTES).close()
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return _contents(connection)
    except OSError as error:
        raise ArtifactError(f"{inert(path, LONGEST_PATH)}: {error.strerror or error}") from error
    except (sqlite3.Error, ValueError) as error:
        raise ArtifactError(f"{inert(path, LONGEST_PATH)}: {inert(error)}") from error


def _read_bytes(data: bytes) -> Contents:
    """Raises sqlite3.Error, ValueError."""
    if not data.startswith(SQLITE):
        raise ValueError("not a winners file of autotopk")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        return _contents(connection)


def _contents(connection: sqlite3.Connection) -> Contents:
    """Raises sqlite3.Error, ValueError."""
    steps = count(STEPS, STEPS)
    connection.set_progress_handler(lambda: next(steps) > MAX_STEPS, STEPS)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    if (found := _format(connection)) == 1:
        return _contents_1(connection)
    return _contents_now(connection, OLDER.get(found, TABLES))


def _format(connection: sqlite3.Connection) -> int:
    """The format of a winners file. Raises ValueError where it is none, or of a later autotopk."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID or found < 1:
        raise ValueError("not a winners file of autotopk")
    if found > FORMAT:
        raise ValueError(f"has format {found}; this autotopk reads up to {FORMAT}: upgrade autotopk")
    return int(found)


def _contents_1(connection: sqlite3.Connection) -> Contents:
    _check_tables(connection, format_1.TABLES)
    rows = _rows(connection, KEY_3)
    _check_digest(connection, rows)
    rows = list(map(_with_routing, rows))
    odd = odd_rows(format_1.COLUMNS, rows)
    for place, row in enumerate(rows):
        if place not in odd and (reason := misfit(TuningKey(*row[1:_KEY_END]))):
            odd[place] = reason
    return _usable(rows, odd, format_1.winner, format_1.devices)


def _contents_now(connection: sqlite3.Connection, tables: dict[str, str]) -> Contents:
    _check_tables(connection, tables)
    routed = "routing" in tables["winner"]
    rows, device_rows = _rows(connection, KEY if routed else KEY_3), _device_rows(connection)
    fitted = _fitted_rows(connection) if "fitted" in tables else []
    _check_digest(connection, [*device_rows, *rows, *fitted])
    rows = rows if routed else list(map(_with_routing, rows))
    devices, odd_devices = devices_of(device_rows)
    odd = odd_rows(COLUMNS, rows)
    for place, row in enumerate(rows):
        if place in odd:
            continue
        if reason := misfit(TuningKey(*row[1:_KEY_END])):
            odd[place] = reason
        elif (row[_SECOND] is None) != (row[_SECOND + 1] is None):
            odd[place] = "a runner-up is a strategy and its configuration"
        elif row[0] not in devices:
            unknown = f"device is {inert(repr(row[0]))}, which its table of devices does not have"
            odd[place] = odd_devices.get(row[0], unknown)
    found = _usable(rows, odd, partial(_winner, devices), lambda _: devices)
    if reason := next(iter(odd_rows(FITTED, fitted).values()), ""):
        return found._replace(unfitted=reason)
    return found._replace(fitted=[row for row in fitted if row[0] in devices])


def _usable(
    rows: list[Row],
    odd: dict[int, str],
    winner: Callable[[Row], Winner],
    devices: Callable[[set[str]], dict[str, Device]],
) -> Contents:
    left = [row for place, row in enumerate(rows) if place not in odd] if odd else rows
    return Contents(left, winner, [odd[place] for place in sorted(odd)], devices({row[0] for row in left}))


def _with_routing(row: Row) -> Row:
    """A row of an older format, whose winners are all of plain top-k."""
    return (*row[: _KEY_END - 1], "", *row[_KEY_END - 1 :])


def _check_tables(connection: sqlite3.Connection, tables: dict[str, str]) -> None:
    """Raise ValueError unless the file holds these tables alone, whole."""
    found = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
    if len(found) != len(tables) or dict(found) != tables:
        raise ValueError("its tables are not those of a winners file")
    if (result := connection.execute("PRAGMA quick_check(1)").fetchone()) != ("ok",):
        raise ValueError(f"damaged: {str(result[0]).splitlines()[-1]}")


def _check_digest(connection: sqlite3.Connection, rows: list[Row]) -> None:
    """Raise ValueError unless these are the rows that were written."""
    if connection.execute("SELECT sha256 FROM digest LIMIT 2").fetchall() != [(_digest(rows),)]:
        raise ValueError("its winners do not match its digest: damaged, or changed by hand")


def _rows(connection: sqlite3.Connection, key: str = KEY) -> list[Row]:
    return _at_most(MAX_WINNERS, connection, f"winner ORDER BY {key}")


def _device_rows(connection: sqlite3.Connection) -> list[Row]:
    return _at_most(MAX_DEVICES, connection, "device ORDER BY fingerprint")


def _fitted_rows(connection: sqlite3.Connection) -> list[Row]:
    return _at_most(MAX_FITTED, connection, f"fitted ORDER BY {FITTED_KEY}")


def _at_most(limit: int, connection: sqlite3.Connection, table: str) -> list[Row]:
    """The rows of a table. Raises ValueError where it has more."""
    rows = connection.execute(f"SELECT * FROM {table} LIMIT {limit + 1}").fetchall()
    if len(rows) > limit:
        raise ValueError(f"has more than {limit:,} rows of one table")
    return rows


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
        winner.margin,
    )


def _winner(devices: dict[str, Device], row: Row) -> Winner:
    """The inverse of `_row`, also for format 2."""
    device, dtype, rows, cols, k, sorted_, routing, strategy, config, source, code, *rest = row
    time_us, baseline_us, ratio, baseline, measured_at, second, its_config, gap, slowdown, *margin = rest
    return Winner(
        devices[device],
        TuningKey(dtype, rows, cols, k, bool(sorted_), routing),
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
        *margin,
    )


def _digest(rows: list[Row]) -> str:
    return hashlib.sha256(ascii(rows).encode()).hexdigest()


def _database(winners: Iterable[Winner], fitted: Iterable[Fitted]) -> sqlite3.Connection:
    """A new one in memory, the same whatever the order of the winners. Raises sqlite3.Error."""
    winners = list(winners)
    devices = {winner.device.fingerprint: winner.device for winner in winners}
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statement in TABLES.values():
            connection.execute(statement)
        insert = "INSERT INTO {} VALUES ({})"
        device_rows = sorted(map(device_row, devices.values()), key=lambda row: row[0])
        winner_rows = sorted(map(_row, winners), key=lambda row: row[:_KEY_END])
        connection.executemany(insert.format("device", ", ".join("?" * len(DEVICE))), device_rows)
        connection.executemany(insert.format("winner", ", ".join("?" * len(COLUMNS))), winner_rows)
        fitted_rows = [one.row() for one in fitted if one.device in devices]
        connection.executemany(insert.format("fitted", ", ".join("?" * len(FITTED))), fitted_rows)
        rows = [*_device_rows(connection), *_rows(connection), *_fitted_rows(connection)]
        connection.execute("INSERT INTO digest VALUES (?)", [_digest(rows)])
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    except BaseException:
        connection.close()
        raise
    return connection


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
