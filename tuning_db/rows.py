"""Records to rows and back, within a session that somebody else began."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Row, Select, and_, delete, func, insert, literal, select
from sqlalchemy.orm import Session, aliased

from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import DatabaseError
from autotopk.identity import Identity
from autotopk.key import TuningKey
from autotopk.tuning_db.models import (
    Base,
    CandidateRow,
    DeviceRow,
    DiscardRow,
    EnvironmentRow,
    MeasurementRow,
    RunRow,
    WinnerRow,
    WorkloadRow,
)
from autotopk.tuning_db.records import Measurement, Winner
from autotopk.tuning_db.winners import Evidence, derive, winner_of

_OF_IDENTITY = ("source", "code")
"""Columns of a measurement that are one record."""


class Discard(NamedTuple):
    """What of a workload on a device counts no more, without the numbers that its database gave it."""

    fingerprint: str
    key: TuningKey
    until: str


class RunRecord(NamedTuple):
    """A run, without the numbers that its database gave it."""

    device: dict[str, Any]
    environment: dict[str, Any]
    columns: dict[str, Any]
    """uuid, arguments, started, ended, outcome."""


def device_columns(device: Device) -> dict[str, Any]:
    """The columns of a `DeviceRow`."""
    columns = asdict(device)
    columns["major"], columns["minor"] = columns.pop("capability")
    return {"fingerprint": device.fingerprint, **columns}


def device_of(row: DeviceRow) -> Device:
    """The inverse of `device_columns`."""
    columns = _columns(row)
    del columns["fingerprint"]
    return Device(capability=(columns.pop("major"), columns.pop("minor")), **columns)


def run_id(session: Session, run: RunRecord) -> int:
    """The number of a run in this database, stored first where it is new."""
    device = _row_id(session, DeviceRow, run.device, unique=("fingerprint",))
    environment = _row_id(session, EnvironmentRow, run.environment)
    return _row_id(
        session, RunRow, {**run.columns, "device_id": device, "environment_id": environment}, unique=("uuid",)
    )


def insert_measurements(session: Session, run: int, measurements: Iterable[Measurement]) -> None:
    """Add measurements to a run."""
    device = session.scalar(select(DeviceRow.fingerprint).join_from(RunRow, DeviceRow).where(RunRow.id == run))
    if device is None:
        raise DatabaseError(f"there is no run {run}")
    # a batch shares most of its strategies, configurations and workloads
    row_id: Callable[..., int] = cache(lambda table, **columns: _row_id(session, table, columns))
    rows = []
    for one in measurements:
        if one.device.fingerprint != device:
            raise ValueError(f"measurement {one.uuid} is of {one.device.fingerprint}, its run is on {device}")
        columns = {name: getattr(one, name) for name in _own_columns(MeasurementRow) if name not in _OF_IDENTITY}
        columns |= asdict(one.identity)
        columns["run_id"] = run
        columns["candidate_id"] = row_id(CandidateRow, **asdict(one.candidate))
        columns["workload_id"] = row_id(WorkloadRow, **asdict(one.key))
        rows.append(columns)
    if rows:
        session.execute(insert(MeasurementRow), rows)


def select_evidence(device: str | None = None, key: TuningKey | None = None) -> Select[Any]:
    """Those of `select_measurements` that were not discarded."""
    discarded = and_(
        DiscardRow.device_id == RunRow.device_id,
        DiscardRow.workload_id == MeasurementRow.workload_id,
        DiscardRow.until >= MeasurementRow.measured_at,
    )
    return select_measurements(device, key).outerjoin(DiscardRow, discarded).where(DiscardRow.id.is_(None))


def select_measurements(
    device: str | None = None, key: TuningKey | None = None, stage: str | None = None
) -> Select[Any]:
    """The measurements, joined with all they refer to, of one device fingerprint, key or stage if named."""
    query = (
        select(
            DeviceRow,
            EnvironmentRow.baseline,
            *(getattr(WorkloadRow, name) for name in _own_columns(WorkloadRow)),
            *(getattr(CandidateRow, name) for name in _own_columns(CandidateRow)),
            MeasurementRow.run_id,
            *(getattr(MeasurementRow, name) for name in _own_columns(MeasurementRow)),
        )
        .join_from(MeasurementRow, RunRow)
        .join(DeviceRow)
        .join(EnvironmentRow, RunRow.environment_id == EnvironmentRow.id)
        .join(CandidateRow, MeasurementRow.candidate_id == CandidateRow.id)
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
    """One row of `select_measurements` as it was recorded."""
    return Measurement(
        uuid=row.uuid,
        device=device_of(row.DeviceRow),
        key=TuningKey(row.dtype, row.rows, row.cols, row.k, row.sorted),
        candidate=Candidate(row.strategy, row.config),
        identity=Identity(row.source, row.code),
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
    second = aliased(CandidateRow)
    shape = (WorkloadRow.dtype, WorkloadRow.cols, WorkloadRow.rows, WorkloadRow.k, WorkloadRow.sorted)
    query = (
        select_evidence(device)
        .join(WinnerRow, WinnerRow.measurement_id == MeasurementRow.id)
        .outerjoin(second, WinnerRow.runner_up_id == second.id)
        .add_columns(second.strategy.label("second_strategy"), second.config.label("second_config"), WinnerRow.gap)
        .order_by(None)
        .order_by(DeviceRow.fingerprint, *shape)
    )
    return [winner_of(evidence_of(row), _second(row), row.gap) for row in session.execute(query)]


def replace_winners(session: Session, device: str | None) -> None:
    """Derive the winners of one device, or of all, from what is measured and from the winners until now."""
    evidence = map(evidence_of, session.execute(select_evidence(device)))
    winners = derive(evidence, incumbents=read_winners(session, device))
    devices = select(DeviceRow.id) if device is None else select(DeviceRow.id).filter_by(fingerprint=device)
    session.execute(delete(WinnerRow).where(WinnerRow.device_id.in_(devices)))
    for uuid, winner in winners.items():
        second = None if winner.runner_up is None else _row_id(session, CandidateRow, asdict(winner.runner_up))
        row = select(RunRow.device_id, MeasurementRow.workload_id, MeasurementRow.id)
        row = row.add_columns(literal(second), literal(winner.gap))
        row = row.join_from(MeasurementRow, RunRow).where(MeasurementRow.uuid == uuid)
        columns = ["device_id", "workload_id", "measurement_id", "runner_up_id", "gap"]
        session.execute(insert(WinnerRow).from_select(columns, row))


def discard(session: Session, one: Discard) -> None:
    """Discard what was measured until then; an earlier discard that reaches further stays."""
    device = session.scalars(select(DeviceRow.id).filter_by(fingerprint=one.fingerprint)).one_or_none()
    if device is None:
        return
    place = {"device_id": device, "workload_id": _row_id(session, WorkloadRow, asdict(one.key))}
    found = session.scalars(select(DiscardRow).filter_by(**place)).one_or_none()
    if found is None:
        session.execute(insert(DiscardRow), [{**place, "until": one.until}])
    else:
        found.until = max(found.until, one.until)


def last_measured(session: Session, fingerprint: str, key: TuningKey) -> str | None:
    """When a workload was measured last on a device, of what counts; None where nothing does."""
    query = select_evidence(fingerprint, key).order_by(None)
    return session.scalar(query.with_only_columns(func.max(MeasurementRow.measured_at)))


def read_discards(session: Session) -> list[Discard]:
    """All of them."""
    columns = [getattr(WorkloadRow, name) for name in _own_columns(WorkloadRow)]
    query = select(DeviceRow.fingerprint, DiscardRow.until, *columns).join_from(DiscardRow, DeviceRow).join(WorkloadRow)
    return [
        Discard(row.fingerprint, TuningKey(row.dtype, row.rows, row.cols, row.k, row.sorted), row.until)
        for row in session.execute(query)
    ]


def read_runs(session: Session) -> Iterator[tuple[RunRecord, list[Measurement]]]:
    """Every run with what it measured."""
    measured = defaultdict(list)
    for row in session.execute(select_measurements()):
        measured[row.run_id].append(measurement_of(row))
    query = select(RunRow, DeviceRow, EnvironmentRow).join_from(RunRow, DeviceRow).join(EnvironmentRow)
    for run, device, environment in session.execute(query):
        yield RunRecord(_columns(device), _columns(environment), _columns(run)), measured[run.id]


@cache
def _own_columns(table: type[Base]) -> list[str]:
    """The columns that mean the same in every database: no numbers of rows."""
    return [column.name for column in table.__table__.columns if not column.primary_key and not column.foreign_keys]


def _second(row: Row[Any]) -> Candidate | None:
    return None if row.second_strategy is None else Candidate(row.second_strategy, row.second_config)


def _columns(row: Base) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _own_columns(type(row))}


def _row_id(session: Session, table: type[Base], columns: Mapping[str, Any], unique: tuple[str, ...] = ()) -> int:
    """The row whose unique columns (all, unless named) are these, added first where there is none."""
    found = session.scalar(select(table.id).filter_by(**{name: columns[name] for name in unique or columns}))
    if found is None:
        found = session.scalars(insert(table).returning(table.id), [columns]).one()
    return found
