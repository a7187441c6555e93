"""The tables of the tuning database, and nothing else.

A row's class is named after its table: `MeasurementRow` holds what `records.Measurement` carries.
"""

from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Connection,
    Dialect,
    ForeignKey,
    Integer,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
    event,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Text(TypeDecorator[str]):
    """Any text, in the order of its bytes on every database; what a server cannot hold, NUL, is escaped."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        """Without a word on its order where that is of bytes anyway."""
        return dialect.type_descriptor(String(collation="C") if dialect.name == "postgresql" else String())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """What is sent."""
        return value.replace("\0", "\\x00") if value and dialect.name == "postgresql" else value


class Base(DeclarativeBase):
    """Every table has an integer primary key."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {
        dict[str, Any]: JSON,
        list[float]: JSON,
        str: Text,
        int: BigInteger().with_variant(Integer, "sqlite"),  # whose integers have 64 bits
    }

    id: Mapped[int] = mapped_column(primary_key=True)


class DeviceRow(Base):
    """A model of processor, see `autotopk.device.Device`."""

    __tablename__ = "device"

    fingerprint: Mapped[str] = mapped_column(unique=True)
    type: Mapped[str]
    name: Mapped[str]
    major: Mapped[int]
    """Of the compute capability, as `minor`."""
    minor: Mapped[int]
    processors: Mapped[int]
    l2_bytes: Mapped[int]
    memory_gib: Mapped[int]
    shared_bytes: Mapped[int]


class EnvironmentRow(Base):
    """The software around a run, see `records.Environment`."""

    __tablename__ = "environment"
    __table_args__ = (
        UniqueConstraint("driver", "cuda", "torch", "triton", "tilelang", "python", "autotopk", "baseline"),
    )

    driver: Mapped[str]
    cuda: Mapped[str]
    torch: Mapped[str]
    triton: Mapped[str]
    tilelang: Mapped[str]
    python: Mapped[str]
    autotopk: Mapped[str]
    baseline: Mapped[str]


class CandidateRow(Base):
    """One strategy in one configuration, see `autotopk.candidate.Candidate`."""

    __tablename__ = "candidate"
    __table_args__ = (UniqueConstraint("strategy", "config"),)

    strategy: Mapped[str]
    config: Mapped[str]


class WorkloadRow(Base):
    """What was computed, see `autotopk.key.TuningKey`."""

    __tablename__ = "workload"
    __table_args__ = (
        UniqueConstraint("dtype", "rows", "cols", "k", "sorted", "routing"),
        CheckConstraint("rows >= 1 AND 1 <= k AND k <= cols", name="shape"),
    )

    dtype: Mapped[str]
    rows: Mapped[int]
    cols: Mapped[int]
    k: Mapped[int]
    sorted: Mapped[bool]
    routing: Mapped[str] = mapped_column(server_default="")
    """Empty for a plain top-k."""


class RunRow(Base):
    """One call of the tuner on one device."""

    __tablename__ = "run"

    uuid: Mapped[str] = mapped_column(unique=True)
    device_id: Mapped[int] = mapped_column(ForeignKey(DeviceRow.id), index=True)
    environment_id: Mapped[int] = mapped_column(ForeignKey(EnvironmentRow.id), index=True)
    specimen: Mapped[str] = mapped_column(server_default="")
    """Which processor of the model: a GPU's UUID, a CPU's host; empty where nobody noted it."""
    arguments: Mapped[dict[str, Any]]
    started: Mapped[str]
    ended: Mapped[str | None]
    """Empty while it runs, and for ever where it was killed."""
    outcome: Mapped[str | None]


class MeasurementRow(Base):
    """One candidate's turn, see `records.Measurement`; triggers refuse to change or delete it."""

    __tablename__ = "measurement"
    __table_args__ = (
        CheckConstraint("stage IN ('screen', 'race')", name="stage"),
        CheckConstraint(
            "status <> 'ok' OR (ratio IS NOT NULL AND ratio > 0 AND samples_us <> '[]' AND baseline_us <> '[]')",
            name="timed_if_ok",
        ).ddl_if(dialect="sqlite"),
        CheckConstraint(  # its JSON has no <>, and its NaN is above all numbers
            "status <> 'ok' OR (ratio IS NOT NULL AND ratio > 0 AND ratio < 'Infinity'"
            " AND json_array_length(samples_us) > 0 AND json_array_length(baseline_us) > 0)",
            name="timed_if_ok_server",
        ).ddl_if(dialect="postgresql"),
    )

    uuid: Mapped[str] = mapped_column(unique=True)
    run_id: Mapped[int] = mapped_column(ForeignKey(RunRow.id), index=True)
    candidate_id: Mapped[int] = mapped_column(ForeignKey(CandidateRow.id), index=True)
    workload_id: Mapped[int] = mapped_column(ForeignKey(WorkloadRow.id), index=True)
    source: Mapped[str]
    """See `autotopk.identity.Identity`, as `code`."""
    code: Mapped[str]
    stage: Mapped[str]
    status: Mapped[str]
    measured_at: Mapped[str] = mapped_column(index=True)
    samples_us: Mapped[list[float]]
    baseline_us: Mapped[list[float]]
    ratio: Mapped[float | None]
    margin: Mapped[float | None]
    adversarial_slowdown: Mapped[float | None]
    cold: Mapped[bool]
    error: Mapped[str | None]
    build_stats: Mapped[dict[str, Any]]


class WinnerRow(Base):
    """Derived: the measurement that decided a workload on a device; see `winners.derive`."""

    __tablename__ = "winner"
    __table_args__ = (UniqueConstraint("device_id", "workload_id"),)

    device_id: Mapped[int] = mapped_column(ForeignKey(DeviceRow.id))
    workload_id: Mapped[int] = mapped_column(ForeignKey(WorkloadRow.id), index=True)
    measurement_id: Mapped[int] = mapped_column(ForeignKey(MeasurementRow.id), unique=True)
    runner_up_id: Mapped[int | None] = mapped_column(ForeignKey(CandidateRow.id))
    gap: Mapped[float | None]


def refuse_changes(connection: Connection, table: str) -> None:
    """Make a table append-only."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            f"CREATE FUNCTION {table}_refuses() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN RAISE EXCEPTION ''measurements are append-only''; END'"
        )
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table}_refuses_changes BEFORE UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {table}_refuses()"
        )
        return
    for change in ("UPDATE", "DELETE"):
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table}_refuses_{change.lower()} BEFORE {change} ON {table} "
            "BEGIN SELECT RAISE(ABORT, 'measurements are append-only'); END"
        )


class DiscardRow(Base):
    """Measurements of a workload on a device up to an instant, which count no more though they are kept."""

    __tablename__ = "discard"
    __table_args__ = (UniqueConstraint("device_id", "workload_id"),)

    device_id: Mapped[int] = mapped_column(ForeignKey(DeviceRow.id))
    workload_id: Mapped[int] = mapped_column(ForeignKey(WorkloadRow.id), index=True)
    until: Mapped[str]
    """The last `measured_at` that is discarded."""


class TaskRow(Base):
    """A workload that a campaign of tuners measures on a device, see `leases.Leases`."""

    __tablename__ = "task"
    __table_args__ = (UniqueConstraint("campaign", "device_id", "workload_id"),)

    campaign: Mapped[str]
    device_id: Mapped[int] = mapped_column(ForeignKey(DeviceRow.id))
    workload_id: Mapped[int] = mapped_column(ForeignKey(WorkloadRow.id), index=True)
    token: Mapped[int] = mapped_column(server_default="0")
    """Raised by every claim: who has an older one holds it no more."""
    tuner: Mapped[str | None]
    """The uuid of who claimed it last."""
    holder: Mapped[str | None]
    """The same in words: host:pid:gpu."""
    expires: Mapped[float | None]
    """When the claim ends, in seconds of the Unix epoch by the database's clock; empty where nobody holds it."""
    outcome: Mapped[str | None]
    """Of the workload; empty until it is complete."""
    completed: Mapped[str | None]


@event.listens_for(MeasurementRow.__table__, "after_create")
def _append_only(table: Table, connection: Connection, **_: object) -> None:
    refuse_changes(connection, table.name)
