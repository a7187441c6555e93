"""Connections to a tuning database, and when a lost one is worth another try."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from autotopk.database import Database, Server

BUSY_S = 30.0
"""How long a transaction waits for those of other processes."""

MAX_VALUE_BYTES = 1 << 24
"""Of one value or row of a file."""

READ = "read"
WRITE = "write"
ALONE = "write alone"
"""As WRITE, and no other of these at the same time: for what is derived from many rows. A file has one writer."""

BEGIN = {
    "sqlite": {
        READ: ["BEGIN"],
        # Takes the write lock at once: who read first and wrote later could find it taken, and fail.
        WRITE: ["BEGIN IMMEDIATE"],
        ALONE: ["BEGIN IMMEDIATE"],
    },
    "postgresql": {
        READ: ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"],
        WRITE: ["SET TRANSACTION ISOLATION LEVEL READ COMMITTED"],
        ALONE: [
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            f"SELECT pg_advisory_xact_lock({int.from_bytes(b'atkT')})",
        ],
    },
}


PASSING = ("08", "53", "57P", "40001", "40P01", "55P03", "25P03")
"""How the SQLSTATEs begin of what passes: lost connections, want of resources, shutdowns, conflicts, time-outs."""

REFUSALS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "not permitted to log in")
"""What a server says to who will never be let in."""


def engine_of(database: Database, *, read_only: bool) -> Engine:
    """Connections that leave BEGIN to the store. Raises ImportError where the server's driver is not installed."""
    engine = (
        _server(database, read_only=read_only) if isinstance(database, Server) else _file(database, read_only=read_only)
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        kind = connection.get_execution_options().get("begin", READ)
        for statement in BEGIN[connection.dialect.name][kind]:
            connection.exec_driver_sql(statement)

    return engine


def passes(error: BaseException) -> bool:
    """Whether the same transaction may succeed later: the server restarts, or the connection was lost."""
    if not isinstance(error, DBAPIError) or isinstance(error.orig, sqlite3.Error):
        return False
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return any(state.startswith(one) for one in PASSING)
    # without a state nobody answered, or the answer to a login is in words alone
    return isinstance(error, OperationalError) and not any(one in str(error.orig) for one in REFUSALS)


def _file(path: Path, *, read_only: bool) -> Engine:
    """Connections that wait for each other, and check foreign keys.

    Read-only is a promise of the connection, not a mode of the file: after a kill amid a commit, the next process to
    open the database rolls back what was half written, even if all it wants is to read.
    """
    query = {"uri": "true", "mode": "rw" if read_only else "rwc"}
    engine = create_engine(
        URL.create("sqlite", database=path.absolute().as_uri(), query=query),
        connect_args={"timeout": BUSY_S},
        json_serializer=_json_text,
    )

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA query_only = ON" if read_only else "PRAGMA journal_mode = DELETE")

    return engine


def _server(server: Server, *, read_only: bool) -> Engine:
    """Connections that notice when the server is gone, and that the server ends where a tuner stopped amid a commit."""
    url = make_url(server.url).set(drivername="postgresql+psycopg")
    waits = {"connect_timeout": 10, "keepalives_idle": 15, "keepalives_interval": 5, "tcp_user_timeout": 30_000}
    engine = create_engine(
        url,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={name: value for name, value in waits.items() if name not in url.query},
        json_serializer=_json_text,
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: object) -> None:
        milliseconds = int(BUSY_S * 1000)
        for setting in ("lock_timeout", "idle_in_transaction_session_timeout"):
            connection.execute(f"SET {setting} = {milliseconds}")
        if read_only:
            connection.execute("SET default_transaction_read_only = on")
        connection.commit()

    return engine


def _json_text(value: object) -> str:
    """A value as JSON. Raises ArgumentError, which the store translates, on infinities and NaN."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise ArgumentError(str(error)) from error
