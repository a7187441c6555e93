"""Records to rows and back, within a session that somebody else began."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from math import inf
from typing import Any, NamedTuple, cast, get_args

from sqlalchemy import Select, and_, delete, func, insert, literal, select
from sqlalchemy.orm import Session, aliased

from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import DatabaseError
from autotopk.identity import Identity
from autotopk.key import TuningKey
from autotopk.tuning_db.columns import (
    BOOL,
    CONFIG,
    COUNT,
    DEVICE,
    MOMENT,
    NAME,
    NUMBER,
    SHAPE,
    TEXT,
    TIME,
    Check,
    Columns,
    misfit,
    one_of,
    or_nothing,
    why_not,
)
from autotopk.tuning_db.identifiers import Met, row_id
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
from autotopk.tuning_db.records import Environment, Measurement, Software, Stage, Status, Tried, Winner
from autotopk.tuning_db.winners import Evidence, derive, winner_of

_OF_IDENTITY = ("source", "code")
"""Columns of a measurement that are one record."""

LONGEST_JSON = 1 << 20
"""Characters of a value in JSON, and of an error."""


def _is_json(value: object) -> bool:
    try:
        return len(json.dumps(value, allow_nan=False)) < LONGEST_JSON
    except (ValueError, TypeError, RecursionError):
        return False


def _is_number(value: object) -> bool:
    return (type(value) is float or type(value) is int) and -inf < value < inf


ERROR = Check("TEXT", lambda value: type(value) is str and len(value) < LONGEST_JSON, "a text")
SAMPLES = Check("JSON", lambda values: type(values) is list and all(map(TIME.accepts, values)), "positive numbers")
STATS = Check(
    "JSON",
    lambda stats: type(stats) is dict and all(map(_is_number, stats.values())) and _is_json(stats),
    "an object of numbers",
)
ARGUMENTS = Check("JSON", lambda value: type(value) is dict and _is_json(value), "a JSON object")

COLUMNS: Columns = {
    **DEVICE,
    **SHAPE,
    "sorted": BOOL,
    "strategy": NAME,
    "config": CONFIG,
    "uuid": TEXT,
    "source": TEXT,
    "code": TEXT,
    "stage": one_of(get_args(Stage)),
    "status": one_of(get_args(Status)),
    "measured_at": MOMENT,
    "until": MOMENT,
    "samples_us": SAMPLES,
    "baseline_us": SAMPLES,
    **dict.fromkeys(("ratio", "adversarial_slowdown"), or_nothing(TIME)),
    **dict.fromkeys(("margin", "gap"), or_nothing(NUMBER)),
    "cold": BOOL,
    "error": or_nothing(ERROR),
    "build_stats": STATS,
    "second_strategy": or_nothing(NAME),
    "second_config": or_nothing(CONFIG),
    **dict.fromkeys(("driver", "cuda", "torch", "triton", "tilelang", "python", "autotopk", "baseline"), TEXT),
    **dict.fromkeys(("specimen", "campaign", "holder"), TEXT),
    **dict.fromkeys(("task", "token", "turns"), COUNT),
    "completed": MOMENT,
    "left_s": NUMBER,
    "arguments": ARGUMENTS,
    "started": TEXT,
    **dict.fromkeys(("ended", "outcome"), or_nothing(TEXT)),
}
"""What a tuner writes, by the names that queries give their columns; a file from elsewhere may hold anything."""


class OddValueError(ValueError):
    """A database holds what no tuner writes."""


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
    """uuid, specimen, arguments, started, ended, outcome."""


def device_columns(device: Device) -> dict[str, Any]:
    """The columns of a `DeviceRow`."""
    columns = asdict(device)
    columns["major"], columns["minor"] = columns.pop("capability")
    return {"fingerprint": device.fingerprint, **columns}


def run_id(session: Session, run: RunRecord) -> int:
    """The number of a run in this database, stored first where it is new."""
    device = row_id(session, DeviceRow, run.device, unique=("fingerprint",))
    environment = row_id(session, EnvironmentRow, run.environment)
    return row_id(
        session, RunRow, {**run.columns, "device_id": device, "environment_id": environment}, unique=("uuid",)
    )


def _device_of(session: Session, run: int) -> Device:
    query = select(*_columns(DeviceRow)).join_from(RunRow, DeviceRow).where(RunRow.id == run)
    device = next(map(_device, checked(session, query)), None)
    if device is None:
        raise DatabaseError(f"there is no run {run}")
    return device


def insert_measurements(session: Session, run: int, measurements: Iterable[Measurement], met: Met) -> None:
    """Add measurements to a run."""
    device, rows = met.once(run, lambda: _device_of(session, run).fingerprint), []
    for one in measurements:
        if one.device.fingerprint != device:
            raise ValueError(f"measurement {one.uuid} is of {one.device.fingerprint}, its run is on {device}")
        columns = {name: getattr(one, name) for name in _own_columns(MeasurementRow) if name not in _OF_IDENTITY}
        columns |= asdict(one.identity)
        columns["run_id"] = run
        columns["candidate_id"] = met.number(session, CandidateRow, one.candidate)
        columns["workload_id"] = met.number(session, WorkloadRow, one.key)
        rows.append(columns)
    if rows:
        session.connection().execute(_INSERT, rows)


_INSERT = insert(Base.metadata.tables[MeasurementRow.__tablename__])  # by the class it takes several times as long


def are_known(session: Session, measurements: Iterable[Measurement]) -> bool:
    """Whether all of some measurements are stored already."""
    uuids = {one.uuid for one in measurements}
    return session.scalar(select(func.count()).where(MeasurementRow.uuid.in_(uuids))) == len(uuids)


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
            *_columns(DeviceRow, WorkloadRow, CandidateRow, MeasurementRow),
            EnvironmentRow.baseline,
            RunRow.specimen,
            MeasurementRow.run_id,
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


def read_evidence(session: Session, device: str | None = None, key: TuningKey | None = None) -> Iterator[Evidence]:
    """The measurements of `select_evidence`, as they were recorded, each beside what torch.topk was."""
    return (_evidence(row) for row in checked(session, select_evidence(device, key)))


def read_measurements(
    session: Session, device: str | None = None, key: TuningKey | None = None, stage: str | None = None
) -> Iterator[Measurement]:
    """Those of `select_measurements`, as they were recorded."""
    return (_evidence(row).measurement for row in checked(session, select_measurements(device, key, stage)))


def read_tried(session: Session) -> Iterator[Tried]:
    """All measurements without their samples, the oldest first."""
    names = ("stage", "status", "ratio", "margin", "error")
    measured = [getattr(MeasurementRow, name) for name in names]
    query = select_measurements().with_only_columns(
        DeviceRow.fingerprint, *_columns(WorkloadRow, CandidateRow), *measured, maintain_column_froms=True
    )
    key, candidate = cache(key_from), cache(Candidate)  # few of each, in tens of thousands of rows
    for row in checked(session, query):
        its = key(*_part(row, WorkloadRow).values())
        yield Tried(row["fingerprint"], its, candidate(row["strategy"], row["config"]), *(row[name] for name in names))


def read_software(session: Session) -> list[Software]:
    """What the runs on each device were made with, the oldest first."""
    began = func.min(RunRow.started), func.max(RunRow.started)
    environment = _columns(EnvironmentRow)
    query = (
        select(DeviceRow.fingerprint, *environment, func.count(), *began)
        .join_from(RunRow, DeviceRow)
        .join(EnvironmentRow, RunRow.environment_id == EnvironmentRow.id)
        .group_by(DeviceRow.fingerprint, *environment)
        .order_by(began[0])
    )
    return [
        Software(fingerprint, Environment(*versions), runs, first, last)
        for fingerprint, *versions, runs, first, last in session.execute(query)
    ]


def read_devices(session: Session) -> list[Device]:
    """The devices that were tuned on, by fingerprint."""
    return list(map(_device, checked(session, select(*_columns(DeviceRow)).order_by(DeviceRow.fingerprint))))


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
        .order_by(DeviceRow.fingerprint, *shape, WorkloadRow.routing)
    )
    return [_winner(row) for row in checked(session, query)]


def replace_winners(session: Session, device: str | None) -> None:
    """Derive the winners of one device, or of all, from what is measured."""
    winners = derive(read_evidence(session, device))
    devices = select(DeviceRow.id) if device is None else select(DeviceRow.id).filter_by(fingerprint=device)
    session.execute(delete(WinnerRow).where(WinnerRow.device_id.in_(devices)))
    for uuid, winner in winners.items():
        second = None if winner.runner_up is None else row_id(session, CandidateRow, asdict(winner.runner_up))
        row = select(RunRow.device_id, MeasurementRow.workload_id, MeasurementRow.id)
        row = row.add_columns(literal(second, WinnerRow.runner_up_id.type), literal(winner.gap, WinnerRow.gap.type))
        row = row.join_from(MeasurementRow, RunRow).where(MeasurementRow.uuid == uuid)
        columns = ["device_id", "workload_id", "measurement_id", "runner_up_id", "gap"]
        session.execute(insert(WinnerRow).from_select(columns, row))


def discard(session: Session, one: Discard) -> None:
    """Discard what was measured until then; an earlier discard that reaches further stays."""
    device = session.scalars(select(DeviceRow.id).filter_by(fingerprint=one.fingerprint)).one_or_none()
    if device is None:
        return
    place = {"device_id": device, "workload_id": row_id(session, WorkloadRow, asdict(one.key))}
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
        Discard(row["fingerprint"], TuningKey(**_part(row, WorkloadRow)), row["until"])
        for row in checked(session, query)
    ]


def read_runs(session: Session) -> Iterator[tuple[RunRecord, list[Measurement]]]:
    """Every run with what it measured."""
    measured = defaultdict(list)
    for row in checked(session, select_measurements()):
        measured[row["run_id"]].append(_evidence(row).measurement)
    parts = (DeviceRow, EnvironmentRow, RunRow)
    query = select(RunRow.id, *_columns(*parts)).join_from(RunRow, DeviceRow).join(EnvironmentRow)
    for row in checked(session, query):
        _device(row)
        yield RunRecord(*(_part(row, table) for table in parts)), measured[row["id"]]


@cache
def _own_columns(table: type[Base]) -> list[str]:
    """The columns that mean the same in every database: no numbers of rows."""
    return [column.name for column in table.__table__.columns if not column.primary_key and not column.foreign_keys]


def _columns(*tables: type[Base]) -> list[Any]:
    """The same, to select."""
    return [getattr(table, name) for table in tables for name in _own_columns(table)]


def checked(session: Session, query: Select[Any]) -> Iterator[Mapping[str, Any]]:
    """The rows of a query by the names of their columns. Raises OddValueError on what no tuner writes."""
    found = session.execute(query)
    try:
        for row in found.mappings():
            for name, value in row.items():
                if (check := COLUMNS.get(name)) and (reason := why_not(name, check, value)):
                    raise OddValueError(reason)
            yield cast(Mapping[str, Any], row)
    except (ValueError, TypeError, RecursionError) as error:  # what is no JSON, and was to be
        raise OddValueError(str(error)) from error


def _device(row: Mapping[str, Any]) -> Device:
    """The inverse of `device_columns`."""
    fingerprint, type_, name, major, minor, *rest = _part(row, DeviceRow).values()
    device = Device(type_, name, (major, minor), *rest)
    if device.fingerprint != fingerprint:
        raise OddValueError(f"device {fingerprint!r} has the columns of {device.fingerprint!r}")
    return device


def _evidence(row: Mapping[str, Any]) -> Evidence:
    """A row of `select_measurements`."""
    if row["status"] == "ok" and not (row["ratio"] and row["samples_us"] and row["baseline_us"]):
        raise OddValueError(f"measurement {row['uuid']!r} is ok, without samples or their ratio")
    own = _part(row, MeasurementRow)
    own["identity"] = Identity(own.pop("source"), own.pop("code"))
    own |= {name: tuple(own[name]) for name in ("samples_us", "baseline_us")}
    key, candidate = key_from(*_part(row, WorkloadRow).values()), Candidate(**_part(row, CandidateRow))
    measured = Measurement(device=_device(row), key=key, candidate=candidate, **own)
    return Evidence(measured, row["baseline"], row["specimen"], row["run_id"])


def key_from(*columns: Any) -> TuningKey:
    """The inverse of `asdict`. Raises OddValueError where no problem has it."""
    key = TuningKey(*columns)
    if reason := misfit(key):
        raise OddValueError(reason)
    return key


def _winner(row: Mapping[str, Any]) -> Winner:
    """A row of `select_evidence` that a winner refers to, with its runner-up and gap."""
    if row["status"] != "ok":
        raise OddValueError(f"the winner {row['uuid']!r} is {row['status']}")
    second = None if row["second_strategy"] is None else Candidate(row["second_strategy"], row["second_config"])
    return winner_of(_evidence(row), second, row["gap"])


def _part(row: Mapping[str, Any], table: type[Base]) -> dict[str, Any]:
    """The columns of one table."""
    return {name: row[name] for name in _own_columns(table)}
