"""Records to rows and back, within a session that somebody else began."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Row, Select, delete, insert, literal, select
from sqlalchemy.orm import Session

from autotopk.device import Device
from autotopk.errors import DatabaseError
from autotopk.key import TuningKey
from autotopk.tuning_db.models import (
    Base,
    ConfigRow,
    DeviceRow,
    EnvironmentRow,
    MeasurementRow,
    RunRow,
    StrategyRow,
    WinnerRow,
    WorkloadRow,
)
from autotopk.tuning_db.records import Measurement, Winner
from autotopk.tuning_db.winners import Evidence, derive, winner_of


class RunRecord(NamedTuple):
    """A run, without the numbers that its database gave it."""

    device: dict[str, Any]
    environment: dict[str, Any]
    facts: dict[str, Any]
    """uuid, arguments, started, ended, outcome."""


def device_facts(device: Device) -> dict[str, Any]:
    """The columns of a `DeviceRow`."""
    facts = asdict(device)
    facts["capability"] = f"{device.capability[0]}.{device.capability[1]}"
    return {"fingerprint": device.fingerprint, **facts}


def run_id(session: Session, run: RunRecord) -> int:
    """The number of a run in this database, stored first where it is new."""
    device = _row_id(session, DeviceRow, run.device, unique=("fingerprint",))
    environment = _row_id(session, EnvironmentRow, run.environment)
    return _row_id(session, RunRow, {**run.facts, "device_id": device, "environment_id": environment}, unique=("uuid",))


def insert_measurements(session: Session, run: int, measurements: Iterable[Measurement]) -> None:
    """Add measurements to a run."""
    device = session.scalar(select(DeviceRow.fingerprint).join_from(RunRow, DeviceRow).where(RunRow.id == run))
    if device is None:
        raise DatabaseError(f"there is no run {run}")
    # a batch shares most of its strategies, configurations and workloads
    row_id: Callable[..., int] = cache(lambda table, **columns: _row_id(session, table, columns))
    rows = []
    for one in measurements:
        if one.device != device:
            raise ValueError(f"measurement {one.uuid} is of {one.device}, its run is on {device}")
        facts = {name: getattr(one, name) for name in _own_columns(MeasurementRow)}
        facts["run_id"] = run
        facts["strategy_id"] = row_id(StrategyRow, name=one.strategy, version=one.version)
        facts["config_id"] = row_id(ConfigRow, strategy=one.strategy, text=one.config)
        facts["workload_id"] = row_id(WorkloadRow, **asdict(one.key))
        rows.append(facts)
    if rows:
        session.execute(insert(MeasurementRow), rows)


def select_evidence(device: str | None = None, key: TuningKey | None = None, stage: str | None = None) -> Select[Any]:
    """The measurements, joined with all they refer to, of one device fingerprint, key or stage if named."""
    query = (
        select(
            DeviceRow.fingerprint,
            EnvironmentRow.baseline,
            *(getattr(WorkloadRow, name) for name in _own_columns(WorkloadRow)),
            StrategyRow.name.label("strategy"),
            StrategyRow.version,
            ConfigRow.text.label("config"),
            MeasurementRow.run_id,
            *(getattr(MeasurementRow, name) for name in _own_columns(MeasurementRow)),
        )
        .join_from(MeasurementRow, RunRow)
        .join(DeviceRow)
        .join(EnvironmentRow, RunRow.environment_id == EnvironmentRow.id)
        .join(StrategyRow, MeasurementRow.strategy_id == StrategyRow.id)
        .join(ConfigRow, MeasurementRow.config_id == ConfigRow.id)
        .join(WorkloadRow, MeasurementRow.workload_id == WorkloadRow.id)
        .order_by(MeasurementRow.measured_at, MeasurementRow.uuid)
    )
    if device is not None:
        query = query.where(DeviceRow.fingerprint == device)
    if key is not None:
        query = query.where(*(getattr(WorkloadRow, name) == value for name, value in asdict(key).items()))
    if stage is not None:
        query = query.where(MeasurementRow.stage == stage)
    return query


def measurement_of(row: Row[Any]) -> Measurement:
    """One row of `select_evidence` as it was recorded."""
    return Measurement(
        uuid=row.uuid,
        device=row.fingerprint,
        key=TuningKey(row.dtype, row.rows, row.cols, row.k, row.sorted),
        strategy=row.strategy,
        config=row.config,
        version=row.version,
        stage=row.stage,
        status=row.status,
        measured_at=row.measured_at,
        samples_us=tuple(row.samples_us),
        baseline_us=tuple(row.baseline_us),
        ratio=row.ratio,
        margin=row.margin,
        adversarial_slowdown=row.adversarial_slowdown,
        cold=row.cold,
        error=row.error,
        build_stats=row.build_stats,
    )


def evidence_of(row: Row[Any]) -> Evidence:
    """The same row, beside what torch.topk was."""
    return Evidence(measurement_of(row), row.baseline)


def read_winners(session: Session, device: str | None) -> list[Winner]:
    """The stored winners, by device, dtype and shape."""
    query = select_evidence(device).join(WinnerRow, WinnerRow.measurement_id == MeasurementRow.id)
    shape = (WorkloadRow.dtype, WorkloadRow.cols, WorkloadRow.rows, WorkloadRow.k, WorkloadRow.sorted)
    query = query.add_columns(WinnerRow.runner_up, WinnerRow.gap).order_by(None).order_by(DeviceRow.fingerprint, *shape)
    return [winner_of(evidence_of(row), row.runner_up, row.gap) for row in session.execute(query)]


def replace_winners(session: Session, device: str | None) -> None:
    """Derive the winners of one device, or of all, from what is measured and from the winners until now."""
    evidence = map(evidence_of, session.execute(select_evidence(device)))
    winners = derive(evidence, incumbents=read_winners(session, device))
    devices = select(DeviceRow.id) if device is None else select(DeviceRow.id).filter_by(fingerprint=device)
    session.execute(delete(WinnerRow).where(WinnerRow.device_id.in_(devices)))
    for uuid, winner in winners.items():
        row = select(RunRow.device_id, MeasurementRow.workload_id, MeasurementRow.id)
        row = row.add_columns(literal(winner.runner_up), literal(winner.gap))
        row = row.join_from(MeasurementRow, RunRow).where(MeasurementRow.uuid == uuid)
        columns = ["device_id", "workload_id", "measurement_id", "runner_up", "gap"]
        session.execute(insert(WinnerRow).from_select(columns, row))


def read_runs(session: Session) -> Iterator[tuple[RunRecord, list[Measurement]]]:
    """Every run with what it measured."""
    measured = defaultdict(list)
    for row in session.execute(select_evidence()):
        measured[row.run_id].append(measurement_of(row))
    query = select(RunRow, DeviceRow, EnvironmentRow).join_from(RunRow, DeviceRow).join(EnvironmentRow)
    for run, device, environment in session.execute(query):
        yield RunRecord(_facts(device), _facts(environment), _facts(run)), measured[run.id]


@cache
def _own_columns(table: type[Base]) -> list[str]:
    """The columns that mean the same in every database: no numbers of rows."""
    return [column.name for column in table.__table__.columns if not column.primary_key and not column.foreign_keys]


def _facts(row: Base) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _own_columns(type(row))}


def _row_id(session: Session, table: type[Base], columns: Mapping[str, Any], unique: tuple[str, ...] = ()) -> int:
    """The row whose unique columns (all, unless named) are these, added first where there is none."""
    found = session.scalar(select(table.id).filter_by(**{name: columns[name] for name in unique or columns}))
    if found is None:
        found = session.scalars(insert(table).returning(table.id), [columns]).one()
    return found
