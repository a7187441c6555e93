"""How a database becomes a tuning database of this version: created where it is empty, migrated where it is older."""

from collections.abc import Callable

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Double,
    ForeignKey,
    Integer,
    String,
    UniqueConstraint,
    inspect,
)

from autotopk.database import Database
from autotopk.errors import DatabaseError, inert
from autotopk.tuning_db.models import Base, Text, refuse_changes

APPLICATION_ID = int.from_bytes(b"atkT")
"""Marks the SQLite file as a tuning database."""

STRANGERS = """
SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger')
AND name NOT IN ('measurement_refuses_update', 'measurement_refuses_delete')
"""
"""What could make SQLite do something else than store and find."""

VERSION_TABLE = "autotopk_schema"
"""Holds the schema of a server's database in one row."""

Migration = Callable[[Operations], None]


def identify_code(op: Operations) -> None:
    """Schema 1 to 2: measurements name what was compiled instead of a version; devices are columns; other names.

    The version of a strategy's code becomes the measurement's `code`, in words that no digest equals: such a
    measurement still makes winners, and is taken again by the next tune.
    """
    op.add_column("device", Column("major", Integer, nullable=False, server_default="0"))
    op.add_column("device", Column("minor", Integer, nullable=False, server_default="0"))
    op.execute("UPDATE device SET major = CAST(capability AS INTEGER)")
    op.execute("UPDATE device SET minor = CAST(substr(capability, instr(capability, '.') + 1) AS INTEGER)")
    op.drop_column("device", "capability")
    op.execute("ALTER TABLE environment RENAME COLUMN control TO baseline")
    op.rename_table("config", "candidate")
    op.execute("ALTER TABLE candidate RENAME COLUMN text TO config")

    op.execute("CREATE TEMPORARY TABLE winner_1 AS SELECT * FROM winner")
    op.drop_table("winner")  # before the measurements that it refers to
    for change in ("update", "delete"):
        op.execute(f"DROP TRIGGER measurement_refuses_{change}")
    for column in ("run_id", "strategy_id", "config_id", "workload_id", "measured_at"):
        op.drop_index(f"ix_measurement_{column}")
    op.rename_table("measurement", "measurement_1")
    op.create_table(
        "measurement",
        Column("uuid", String, nullable=False),
        Column("run_id", Integer, ForeignKey("run.id"), nullable=False),
        Column("candidate_id", Integer, ForeignKey("candidate.id"), nullable=False),
        Column("workload_id", Integer, ForeignKey("workload.id"), nullable=False),
        Column("source", String, nullable=False),
        Column("code", String, nullable=False),
        Column("stage", String, nullable=False),
        Column("status", String, nullable=False),
        Column("measured_at", String, nullable=False),
        Column("samples_us", JSON, nullable=False),
        Column("baseline_us", JSON, nullable=False),
        Column("ratio", Double),
        Column("margin", Double),
        Column("adversarial_slowdown", Double),
        Column("cold", Boolean, nullable=False),
        Column("error", String),
        Column("build_stats", JSON, nullable=False),
        Column("id", Integer, primary_key=True),
        CheckConstraint("stage IN ('screen', 'race')", name="stage"),
        CheckConstraint(
            "status <> 'ok' OR (ratio IS NOT NULL AND ratio > 0 AND samples_us <> '[]' AND baseline_us <> '[]')",
            name="timed_if_ok",
        ),
        UniqueConstraint("uuid"),
    )
    op.execute(
        "INSERT INTO measurement SELECT uuid, run_id, config_id, workload_id, '', 'version ' || version, stage, status,"
        " measured_at, samples_us, control_us, ratio, margin, worst_ratio, cold, error, facts, m.id"
        " FROM measurement_1 AS m JOIN strategy ON strategy.id = strategy_id"
    )
    op.drop_table("measurement_1")
    op.drop_table("strategy")
    for column in ("run_id", "candidate_id", "workload_id", "measured_at"):
        op.create_index(f"ix_measurement_{column}", "measurement", [column])
    refuse_changes(op.get_bind(), "measurement")

    op.create_table(
        "winner",
        Column("device_id", Integer, ForeignKey("device.id"), nullable=False),
        Column("workload_id", Integer, ForeignKey("workload.id"), nullable=False),
        Column("measurement_id", Integer, ForeignKey("measurement.id"), nullable=False),
        Column("runner_up_id", Integer, ForeignKey("candidate.id")),
        Column("gap", Double),
        Column("id", Integer, primary_key=True),
        UniqueConstraint("device_id", "workload_id"),
        UniqueConstraint("measurement_id"),
    )
    op.execute(
        "INSERT INTO winner SELECT device_id, workload_id, measurement_id,"
        " (SELECT c.id FROM candidate AS c WHERE c.strategy || ' ' || c.config = runner_up), gap, id FROM winner_1"
    )
    op.drop_table("winner_1")
    op.create_index("ix_winner_workload_id", "winner", ["workload_id"])


def discard_measurements(op: Operations) -> None:
    """Schema 2 to 3: what was measured until some instant can cease to count."""
    op.create_table(
        "discard",
        Column("device_id", Integer, ForeignKey("device.id"), nullable=False),
        Column("workload_id", Integer, ForeignKey("workload.id"), nullable=False),
        Column("until", String, nullable=False),
        Column("id", Integer, primary_key=True),
        UniqueConstraint("device_id", "workload_id"),
    )
    op.create_index("ix_discard_workload_id", "discard", ["workload_id"])


def route_workloads(op: Operations) -> None:
    """Schema 3 to 4: a workload may be of a router; all so far are of plain top-k."""
    op.execute("PRAGMA defer_foreign_keys = ON")  # until what is referred to is there again
    op.execute("CREATE TEMPORARY TABLE workload_3 AS SELECT * FROM workload")
    op.drop_table("workload")
    op.create_table(
        "workload",
        Column("dtype", String, nullable=False),
        Column("rows", Integer, nullable=False),
        Column("cols", Integer, nullable=False),
        Column("k", Integer, nullable=False),
        Column("sorted", Boolean, nullable=False),
        Column("routing", String, nullable=False, server_default=""),
        Column("id", Integer, primary_key=True),
        UniqueConstraint("dtype", "rows", "cols", "k", "sorted", "routing"),
        CheckConstraint("rows >= 1 AND 1 <= k AND k <= cols", name="shape"),
    )
    columns = "id, dtype, rows, cols, k, sorted"
    op.execute(f"INSERT INTO workload ({columns}) SELECT {columns} FROM workload_3")
    op.drop_table("workload_3")


def lease_workloads(op: Operations) -> None:
    """Schema 4 to 5: the workloads of campaigns, which tuners claim."""
    op.create_table(
        "task",
        Column("campaign", String, nullable=False),
        Column("device_id", Integer, ForeignKey("device.id"), nullable=False),
        Column("workload_id", Integer, ForeignKey("workload.id"), nullable=False),
        Column("token", Integer, nullable=False, server_default="0"),
        Column("tuner", String),
        Column("holder", String),
        Column("expires", Double),
        Column("outcome", String),
        Column("completed", String),
        Column("id", Integer, primary_key=True),
        UniqueConstraint("campaign", "device_id", "workload_id"),
    )
    op.create_index("ix_task_workload_id", "task", ["workload_id"])


def tell_specimens_apart(op: Operations) -> None:
    """Schema 5 to 6: runs say on which processor of its model they were; those so far do not."""
    op.add_column("run", Column("specimen", Text, nullable=False, server_default=""))


MIGRATIONS: tuple[Migration, ...] = (
    identify_code,
    discard_measurements,
    route_workloads,
    lease_workloads,
    tell_specimens_apart,
)
"""The step from schema 1 to 2, from 2 to 3, ...: functions named for what they change. New databases skip them.

There is no server with a schema before 5; steps from 5 on run on both kinds of database.
"""


def current() -> int:
    """The schema that `models` describes."""
    return 1 + len(MIGRATIONS)


def check(connection: Connection, place: Database) -> None:
    """Raise DatabaseError unless it is an undamaged tuning database of the current schema."""
    quick_check = "PRAGMA quick_check(1)"  # a server checks itself
    if connection.dialect.name == "sqlite" and (damage := connection.exec_driver_sql(quick_check).scalar()) != "ok":
        raise DatabaseError(f"{place} is damaged: {inert(damage)}")
    if (found := _schema(connection, place)) != current():
        raise DatabaseError(f"{place} has schema {found}, not {current()} yet; `autotopk tune` brings it up to date")


def prepare(connection: Connection, place: Database) -> None:
    """Create or migrate, inside the caller's transaction. Raises DatabaseError on a foreign or newer database."""
    found = _schema(connection, place)
    if found == current():
        return
    if found == 0:
        Base.metadata.create_all(connection, checkfirst=False)
    else:
        operations = Operations(MigrationContext.configure(connection))
        for migrate in MIGRATIONS[found - 1 :]:
            migrate(operations)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.exec_driver_sql(f"PRAGMA user_version = {current()}")
    else:
        connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {VERSION_TABLE} (version integer NOT NULL)")
        connection.exec_driver_sql(f"DELETE FROM {VERSION_TABLE}")
        connection.exec_driver_sql(f"INSERT INTO {VERSION_TABLE} VALUES ({current()})")


def _schema(connection: Connection, place: Database) -> int:
    """The schema of a database, 0 where it is empty. Raises DatabaseError on a foreign or newer one."""
    version = (_schema_of_file if connection.dialect.name == "sqlite" else _schema_of_server)(connection, place)
    if version > current():
        raise DatabaseError(f"{place} has schema {version}; this autotopk reads up to {current()}: upgrade autotopk")
    return version


def _schema_of_server(connection: Connection, place: Database) -> int:
    """What the table of the version says; others may have tables beside ours, but none of our names."""
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        return int(connection.exec_driver_sql(f"SELECT max(version) FROM {VERSION_TABLE}").scalar_one())
    if taken := sorted(tables & set(Base.metadata.tables)):
        raise DatabaseError(f"{place} has tables that autotopk did not make: {', '.join(taken)}; name another database")
    return 0


def _schema_of_file(connection: Connection, place: Database) -> int:
    application, version, objects = (
        int(connection.exec_driver_sql(statement).scalar_one())
        for statement in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if application == version == objects == 0:
        return 0
    if application != APPLICATION_ID or version < 1:
        raise DatabaseError(f"{place} is an SQLite file, but no tuning database of autotopk")
    if version <= current():
        for name in connection.exec_driver_sql(STRANGERS).scalars():
            raise DatabaseError(f"{place} has a view or trigger that autotopk did not make: {inert(name)}")
    return version
