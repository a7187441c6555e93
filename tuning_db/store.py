"""Transactions on the tuning database: who may write when, and what a failure of the file becomes."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from uuid import uuid4

from sqlalchemy import Engine, select, update
from sqlalchemy.exc import SQLAlchemyError, StatementError
from sqlalchemy.orm import Session

from autotopk import settings
from autotopk.database import Database, Server
from autotopk.device import Device
from autotopk.errors import DatabaseError, inert, warn
from autotopk.files import make_private, open_regular
from autotopk.key import TuningKey
from autotopk.tuning_db import migrations, rows
from autotopk.tuning_db.engines import ALONE, READ, WRITE, engine_of, passes
from autotopk.tuning_db.identifiers import Met
from autotopk.tuning_db.models import MeasurementRow, RunRow
from autotopk.tuning_db.records import Environment, Measurement, Software, Stage, Tried, Winner
from autotopk.tuning_db.winners import Evidence

T = TypeVar("T")


class Store:
    """A tuning database that several tuners may write at the same time: an SQLite file, or a PostgreSQL server.

    A context manager, for any number of threads. Every method is one transaction, whole or not at all even if the
    process is killed, and raises DatabaseError where the database fails. What a restart of the server or a lost
    connection interrupts is tried again, for `settings.patience_s()`. Measurements are only ever added; winners are
    derived from them.
    """

    def __init__(self, place: Database, engine: Engine) -> None:
        self.place = place
        self._engine = engine
        self._beginning = {begin: engine.execution_options(begin=begin) for begin in (READ, WRITE, ALONE)}
        self._met = Met()

    @classmethod
    def open(cls, place: Database, *, read_only: bool = False) -> Self:
        """Open a database, created or migrated first where needed, unless it is for reading only.

        Raises DatabaseError where it is no regular file, damaged, foreign or newer, and for reading only also where
        missing or older; of a server also where it cannot be reached or its driver is not installed.
        """
        try:
            if isinstance(place, Path):
                _check_file(place, read_only=read_only)
            store = cls(place, engine_of(place, read_only=read_only))
        except ImportError as error:
            raise DatabaseError(f"tuning database {place}: {error}; install autotopk[fleet]") from error
        except (OSError, ValueError, SQLAlchemyError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DatabaseError(f"tuning database {place}: {_inert(place, reason)}") from error
        try:
            if read_only:
                store.read(lambda session: migrations.check(session.connection(), place))
            else:
                store.write(lambda session: migrations.prepare(session.connection(), place), alone=True)
        except BaseException:
            store.close()
            raise
        return store

    @property
    def shared(self) -> bool:
        """Whether it is on a server."""
        return isinstance(self.place, Server)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin_run(
        self, device: Device, environment: Environment, arguments: Mapping[str, object], specimen: str = ""
    ) -> int:
        """Note that a tuner starts, with its arguments (as JSON), on some specimen of the model.

        Returns the run's number in this database.
        """
        columns = {"uuid": uuid4().hex, "specimen": specimen, "arguments": dict(arguments), "started": _now()}
        run = rows.RunRecord(rows.device_columns(device), asdict(environment), columns)
        return self.write(lambda session: rows.run_id(session, run))

    def end_run(self, run: int, outcome: str) -> None:
        """Note how a run ended, in the caller's words."""
        ended = update(RunRow).where(RunRow.id == run).values(ended=_now(), outcome=outcome)
        self.write(lambda session: session.execute(ended))

    def record(self, run: int, measurements: Iterable[Measurement]) -> None:
        """Add measurements to a run, all or none of them.

        Raises DatabaseError where a uuid is known already, or a measurement is "ok" without a ratio or samples, and
        ValueError where one is of another device than the run.
        """
        batch, tried, met = list(measurements), False, self._met

        def insert(session: Session) -> None:
            nonlocal tried, met
            met = Met(self._met)
            if not (tried and rows.are_known(session, batch)):  # lost was the answer to the commit alone
                tried = True
                rows.insert_measurements(session, run, batch, met)

        self.write(insert)
        met.keep()

    def measurements(
        self, *, device: str | None = None, key: TuningKey | None = None, stage: Stage | None = None
    ) -> list[Measurement]:
        """All measurements, of every status, the oldest first; of one device fingerprint, key or stage if named."""
        return self.read(lambda session: list(rows.read_measurements(session, device, key, stage)))

    def tried(self) -> list[Tried]:
        """All measurements without their samples, the oldest first: much quicker to read than `measurements`."""
        with self._transaction(READ) as session:
            return list(rows.read_tried(session))

    def software(self) -> list[Software]:
        """What the runs on each device were made with, the oldest first."""
        with self._transaction(READ) as session:
            return rows.read_software(session)

    def evidence(self, device: str | None = None, key: TuningKey | None = None) -> list[Evidence]:
        """What counts, of a key and a device if named, the oldest first, each beside what torch.topk was then."""
        return self.read(lambda session: list(rows.read_evidence(session, device, key)))

    def derive_winners(self, device: str | None = None) -> list[Winner]:
        """Derive the winners of one device, or of all, again (see `winners.derive`), and store them."""

        def derive(session: Session) -> list[Winner]:
            rows.replace_winners(session, device)
            return rows.read_winners(session, device)

        return self.write(derive, alone=True)

    def discard(self, device: str, key: TuningKey, until: str | None = None) -> bool:
        """Let what was measured for a key on a device count no more: until some `measured_at`, or all.

        Winners are not derived again. Returns whether anything counted.
        """

        def discard(session: Session) -> bool:
            last = rows.last_measured(session, device, key)
            if last is not None:
                rows.discard(session, rows.Discard(device, key, until or last))
            return last is not None

        return self.write(discard, alone=True)

    def winners(self, device: str | None = None) -> list[Winner]:
        """The winners that were derived last, by device, dtype and shape."""
        return self.read(lambda session: rows.read_winners(session, device))

    def devices(self) -> list[Device]:
        """The devices that were tuned on."""
        return self.read(rows.read_devices)

    def merge(self, other: Database) -> int:
        """Add the measurements of another tuning database that this one lacks, and derive all winners again.

        Returns how many were new. Raises DatabaseError also where the other database cannot be read, or any value in it
        is none that a tuner writes.
        """
        with Store.open(other, read_only=True) as source:
            runs, discards = source.read(lambda session: (list(rows.read_runs(session)), rows.read_discards(session)))

        def merge(session: Session) -> int:
            known = set(session.scalars(select(MeasurementRow.uuid)))
            added, met = 0, Met()
            for run, measurements in runs:
                if new := [one for one in measurements if one.uuid not in known]:
                    rows.insert_measurements(session, rows.run_id(session, run), new, met)
                    added += len(new)
            for one in discards:
                rows.discard(session, one)
            rows.replace_winners(session, device=None)
            return added

        return self.write(merge, alone=True)

    def read(self, work: Callable[[Session], T]) -> T:
        """Do something in a transaction that reads one state of the database."""
        return self._persist(READ, work)

    def write(self, work: Callable[[Session], T], *, alone: bool = False) -> T:
        """Do something in a transaction that writes; alone, no other such one does at the same time.

        A server may have the work done a second time where only the answer to the first was lost.
        """
        return self._persist(ALONE if alone else WRITE, work)

    def _persist(self, begin: str, work: Callable[[Session], T]) -> T:
        """Transact, again and again where a server is lost meanwhile."""

        def once() -> T:
            with self._transaction(begin) as session:
                return work(session)

        if not self.shared:
            return once()
        import tenacity

        def told(state: tenacity.RetryCallState) -> None:
            if state.attempt_number == 3:  # a restart alone is not worth a word
                error = state.outcome and state.outcome.exception()
                warn(f"{error}; trying again for {settings.patience_s():.0f} s")

        retried: T = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: passes(error.__cause__ or error)),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=5.0),
            stop=tenacity.stop_after_delay(settings.patience_s()),
            before_sleep=told,
            reraise=True,
        )(once)
        return retried

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Session]:
        """The one place where errors of a database, and odd values in it, become DatabaseError."""
        try:
            with Session(self._beginning[begin]) as session, session.begin():
                yield session
        except (SQLAlchemyError, sqlite3.Error, rows.OddValueError, UnicodeDecodeError) as error:
            # the last of these where SQLite quotes what is no text of a damaged file
            reason = error.orig if isinstance(error, StatementError) else error
            raise DatabaseError(f"tuning database {self.place}: {_inert(self.place, reason)}") from error


def _check_file(path: Path, *, read_only: bool) -> None:
    """Raises OSError, ValueError, DatabaseError."""
    if os.path.exists(path):
        open_regular(path).close()
    elif read_only:
        raise DatabaseError(f"there is no tuning database at {path}; `autotopk tune` makes one")
    else:
        make_private(path.parent)


def _inert(place: Database, reason: object) -> str:
    """What a driver says, on one line and without a password."""
    text = " ".join(str(reason).split()) if isinstance(place, Server) else str(reason)
    return inert(place.conceal(text) if isinstance(place, Server) else text)


def _now() -> str:
    return datetime.now(UTC).isoformat()
