"""Transactions on the tuning database: who may write when, and what a failure of the file becomes."""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from sqlalchemy import URL, Connection, Engine, create_engine, event, select, update
from sqlalchemy.exc import SQLAlchemyError, StatementError
from sqlalchemy.orm import Session

from autotopk.device import Device
from autotopk.errors import DatabaseError, inert
from autotopk.files import make_private, open_regular
from autotopk.key import TuningKey
from autotopk.tuning_db import migrations, rows
from autotopk.tuning_db.models import MeasurementRow, RunRow
from autotopk.tuning_db.records import Environment, Measurement, Software, Stage, Tried, Winner
from autotopk.tuning_db.winners import Evidence

BUSY_S = 30.0
"""How long a transaction waits for those of other processes."""

MAX_VALUE_BYTES = 1 << 24
"""Of one value or row."""

READ = "BEGIN"
WRITE = "BEGIN IMMEDIATE"
"""Takes the write lock at once: a transaction that read first and wrote later could find it taken, and fail."""


class Store:
    """A tuning database: one SQLite file that several tuners may write at the same time.

    A context manager. Every method is one transaction, whole or not at all even if the process is killed, and raises
    DatabaseError where the file fails. Measurements are only ever added; winners are derived from them.
    """

    def __init__(self, path: Path, engine: Engine) -> None:
        self.path = path
        self._engine = engine

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """Open a database, created or migrated first where needed, unless it is for reading only.

        Raises DatabaseError where it is no regular file, damaged, foreign or newer, and for reading only also where
        missing or older.
        """
        try:
            if os.path.exists(path):
                open_regular(path).close()
            elif read_only:
                raise DatabaseError(f"there is no tuning database at {path}; `autotopk tune` makes one")
            else:
                make_private(path.parent)
            store = cls(path, _engine(path, read_only=read_only))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DatabaseError(f"tuning database {path}: {reason}") from error
        try:
            with store._transaction(READ if read_only else WRITE) as session:
                (migrations.check if read_only else migrations.prepare)(session.connection(), path)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Close the connections to the file."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin_run(self, device: Device, environment: Environment, arguments: Mapping[str, object]) -> int:
        """Note that a tuner starts, with its arguments (as JSON). Returns the run's number in this file."""
        columns = {"uuid": uuid4().hex, "arguments": dict(arguments), "started": _now()}
        with self._transaction(WRITE) as session:
            return rows.run_id(session, rows.RunRecord(rows.device_columns(device), asdict(environment), columns))

    def end_run(self, run: int, outcome: str) -> None:
        """Note how a run ended, in the caller's words."""
        with self._transaction(WRITE) as session:
            session.execute(update(RunRow).where(RunRow.id == run).values(ended=_now(), outcome=outcome))

    def record(self, run: int, measurements: Iterable[Measurement]) -> None:
        """Add measurements to a run, all or none of them.

        Raises DatabaseError where a uuid is known already, or a measurement is "ok" without a ratio or samples, and
        ValueError where one is of another device than the run.
        """
        with self._transaction(WRITE) as session:
            rows.insert_measurements(session, run, measurements)

    def measurements(
        self, *, device: str | None = None, key: TuningKey | None = None, stage: Stage | None = None
    ) -> list[Measurement]:
        """All measurements, of every status, the oldest first; of one device fingerprint, key or stage if named."""
        with self._transaction(READ) as session:
            return list(rows.read_measurements(session, device, key, stage))

    def tried(self) -> list[Tried]:
        """All measurements without their samples, the oldest first: much quicker to read than `measurements`."""
        with self._transaction(READ) as session:
            return list(rows.read_tried(session))

    def software(self) -> list[Software]:
        """What the runs on each device were made with, the oldest first."""
        with self._transaction(READ) as session:
            return rows.read_software(session)

    def evidence(self, device: str, key: TuningKey) -> list[Evidence]:
        """What counts of a key on a device, the oldest first, each beside what torch.topk was then."""
        with self._transaction(READ) as session:
            return list(rows.read_evidence(session, device, key))

    def derive_winners(self, device: str | None = None) -> list[Winner]:
        """Derive the winners of one device, or of all, again (see `winners.derive`), and store them."""
        with self._transaction(WRITE) as session:
            rows.replace_winners(session, device)
            return rows.read_winners(session, device)

    def discard(self, device: str, key: TuningKey, until: str | None = None) -> bool:
        """Let what was measured for a key on a device count no more: until some `measured_at`, or all.

        Winners are not derived again. Returns whether anything counted.
        """
        with self._transaction(WRITE) as session:
            last = rows.last_measured(session, device, key)
            if last is not None:
                rows.discard(session, rows.Discard(device, key, until or last))
            return last is not None

    def winners(self, device: str | None = None) -> list[Winner]:
        """The winners that were derived last, by device, dtype and shape."""
        with self._transaction(READ) as session:
            return rows.read_winners(session, device)

    def devices(self) -> list[Device]:
        """The devices that were tuned on."""
        with self._transaction(READ) as session:
            return rows.read_devices(session)

    def merge(self, other: Path) -> int:
        """Add the measurements of another tuning database that this one lacks, and derive all winners again.

        Returns how many were new. Raises DatabaseError also where the other file cannot be read, or any value in it is
        none that a tuner writes.
        """
        with Store.open(other, read_only=True) as source, source._transaction(READ) as session:
            runs, discards = list(rows.read_runs(session)), rows.read_discards(session)
        with self._transaction(WRITE) as session:
            known = set(session.scalars(select(MeasurementRow.uuid)))
            added = 0
            for run, measurements in runs:
                if new := [one for one in measurements if one.uuid not in known]:
                    rows.insert_measurements(session, rows.run_id(session, run), new)
                    added += len(new)
            for one in discards:
                rows.discard(session, one)
            rows.replace_winners(session, device=None)
        return added

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Session]:
        """The one place where errors of SQLite, and odd values in the file, become DatabaseError."""
        try:
            with Session(self._engine.execution_options(begin=begin)) as session, session.begin():
                yield session
        except (SQLAlchemyError, sqlite3.Error, rows.OddValueError, UnicodeDecodeError) as error:
            # the last of these where SQLite quotes what is no text of a damaged file
            reason = error.orig if isinstance(error, StatementError) else error
            raise DatabaseError(f"tuning database {self.path}: {inert(reason)}") from error


def _engine(path: Path, *, read_only: bool) -> Engine:
    """Connections that wait for each other, check foreign keys, and leave BEGIN to `Store._transaction`.

    Read-only is a promise of the connection, not a mode of the file: after a kill amid a commit, the next process to
    open the database rolls back what was half written, even if all it wants is to read.
    """
    query = {"uri": "true", "mode": "rw" if read_only else "rwc"}
    engine = create_engine(
        URL.create("sqlite", database=path.absolute().as_uri(), query=query),
        connect_args={"timeout": BUSY_S},
        json_serializer=partial(json.dumps, allow_nan=False, separators=(",", ":")),
    )

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA query_only = ON" if read_only else "PRAGMA journal_mode = DELETE")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options()["begin"])

    return engine


def _now() -> str:
    return datetime.now(UTC).isoformat()
