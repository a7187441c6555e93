"""How a file becomes a tuning database of this version: created where it is empty, migrated where it is older."""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection

from autotopk.errors import DatabaseError
from autotopk.tuning_db.models import Base

APPLICATION_ID = int.from_bytes(b"atkT")
"""Marks the SQLite file as a tuning database."""

MIGRATIONS: tuple[Callable[[Connection], None], ...] = ()
"""The step from schema 1 to 2, from 2 to 3, ...: functions named for what they change. New files skip them."""


def current() -> int:
    """The schema that `models` describes."""
    return 1 + len(MIGRATIONS)


def check(connection: Connection, path: Path) -> None:
    """Raise DatabaseError unless the file is a tuning database of the current schema."""
    if (found := _schema(connection, path)) != current():
        raise DatabaseError(f"{path} has schema {found}, not {current()} yet; `autotopk tune` brings it up to date")


def prepare(connection: Connection, path: Path) -> None:
    """Create or migrate, inside the caller's transaction. Raises DatabaseError on a foreign or newer file."""
    found = _schema(connection, path)
    if found == current():
        return
    if found == 0:
        Base.metadata.create_all(connection, checkfirst=False)
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
    else:
        for migrate in MIGRATIONS[found - 1 :]:
            migrate(connection)
    connection.exec_driver_sql(f"PRAGMA user_version = {current()}")


def _schema(connection: Connection, path: Path) -> int:
    """The schema of a file, 0 where it is empty. Raises DatabaseError on a foreign or newer one."""
    application, version, objects = (
        int(connection.exec_driver_sql(statement).scalar_one())
        for statement in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if application == version == objects == 0:
        return 0
    if application != APPLICATION_ID or version < 1:
        raise DatabaseError(f"{path} is an SQLite file, but no tuning database of autotopk")
    if version > current():
        raise DatabaseError(f"{path} has schema {version}; this autotopk reads up to {current()}: upgrade autotopk")
    return version
