"""Who of many tuners measures what: workloads are claimed, held for a time, completed by their last holder alone."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Double, and_, case, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.functions import FunctionElement

from autotopk.device import Device
from autotopk.errors import inert
from autotopk.key import TuningKey
from autotopk.tuning_db.identifiers import row_id
from autotopk.tuning_db.models import DeviceRow, MeasurementRow, RunRow, TaskRow, WorkloadRow
from autotopk.tuning_db.records import Held, Progress
from autotopk.tuning_db.rows import checked, device_columns, key_from
from autotopk.tuning_db.store import Store

PACE = 20
"""Completed workloads that say how long the others will take."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A workload that a tuner holds."""

    task: int
    key: TuningKey
    token: int
    """Higher than that of every claim of the task before."""


class Leases:
    """The claims of one tuner, on one device model, within one campaign.

    A claim ends after `lease_s` seconds unless it is renewed, by the clock of the server, or of the host where the
    database is a file. Then another tuner may claim the workload, with a higher token, and the first holder can
    neither renew nor complete it. Methods raise DatabaseError as those of the store do.
    """

    def __init__(self, store: Store, campaign: str, device: Device, holder: str, lease_s: float) -> None:
        self.campaign = campaign
        self.lease_s = lease_s
        self._store = store
        self._device = device
        self._holder = holder
        self._tuner = uuid4().hex

    def enrol(self, keys: Sequence[TuningKey]) -> None:
        """Make workloads part of the campaign, where they are not yet."""

        def enrol(session: Session) -> None:
            device = row_id(session, DeviceRow, device_columns(self._device), unique=("fingerprint",))
            dialect = postgresql if self._store.shared else sqlite
            for key in sorted(keys, key=repr):  # in one order, so that no two tuners wait for each other
                task = {"campaign": self.campaign, "device_id": device}
                task["workload_id"] = row_id(session, WorkloadRow, asdict(key))
                session.execute(dialect.insert(TaskRow).on_conflict_do_nothing(), [task])

        self._store.write(enrol)

    def claim(self, keys: Sequence[TuningKey]) -> Claim | None:
        """Hold the first of some workloads that nobody holds and that is not complete; None where there is none.

        What this tuner itself holds counts as held by nobody: the answer to an earlier claim may have been lost.
        """
        wanted = {key: place for place, key in enumerate(keys)}

        def claim(session: Session) -> Claim | None:
            free = and_(TaskRow.outcome.is_(None), or_(~_is_held(), TaskRow.tuner == self._tuner))
            found = [(wanted[key], task, key) for task, _, key in self._tasks(session, free) if key in wanted]
            for _, task, key in sorted(found, key=lambda one: one[0]):
                # a file is locked whole; on a server somebody may have been quicker, or be about to be
                lock = select(TaskRow.id).where(TaskRow.id == task, free).with_for_update(skip_locked=True)
                if session.scalar(lock) is None:
                    continue
                values: dict[str, Any] = {"token": TaskRow.token + 1, "tuner": self._tuner, "holder": self._holder}
                values["expires"] = _now() + self.lease_s
                session.execute(update(TaskRow).where(TaskRow.id == task).values(values))
                return Claim(task, key, session.scalars(select(TaskRow.token).where(TaskRow.id == task)).one())
            return None

        return self._store.write(claim)

    def renew(self, claim: Claim) -> bool:
        """Hold it for another lease; False where somebody else holds it now, or it is complete."""
        held = update(TaskRow).where(*self._is_ours(claim), TaskRow.outcome.is_(None))
        renewed = held.values(expires=_now() + self.lease_s).returning(TaskRow.id)
        return self._store.write(lambda session: session.scalar(renewed)) is not None

    def complete(self, claim: Claim, outcome: str) -> bool:
        """Mark the workload complete; False, and nothing is changed, where somebody else claimed it since."""
        done = {"outcome": outcome, "completed": datetime.now(UTC).isoformat(), "expires": None}
        ended = update(TaskRow).where(*self._is_ours(claim), TaskRow.outcome.is_(None)).values(done)

        def complete(session: Session) -> bool:
            session.execute(ended)
            ours = select(TaskRow.id).where(*self._is_ours(claim), TaskRow.outcome == outcome)
            return session.scalar(ours) is not None  # also where it was completed by a try whose answer was lost

        return self._store.write(complete)

    def release(self, claim: Claim) -> None:
        """Give it back incomplete, if it is still held."""
        freed = update(TaskRow).where(*self._is_ours(claim), TaskRow.outcome.is_(None)).values(expires=None, tuner=None)
        self._store.write(lambda session: session.execute(freed))

    def release_all(self) -> None:
        """Give back all that this tuner holds, a claim of whose answer it does not know among them."""
        held = update(TaskRow).where(TaskRow.tuner == self._tuner, TaskRow.outcome.is_(None))
        self._store.write(lambda session: session.execute(held.values(expires=None, tuner=None)))

    def complete_keys(self) -> dict[TuningKey, str]:
        """The outcomes of what is complete of the campaign on this device."""

        def read(session: Session) -> dict[TuningKey, str]:
            return {key: outcome for _, outcome, key in self._tasks(session, TaskRow.outcome.is_not(None))}

        return self._store.read(read)

    def _tasks(self, session: Session, condition: ColumnElement[bool]) -> list[tuple[int, str, TuningKey]]:
        """The numbers, outcomes and keys of the campaign's tasks on this device."""
        query = (
            select(TaskRow.id.label("task"), TaskRow.outcome, *shape())
            .join_from(TaskRow, WorkloadRow)
            .join(DeviceRow)
            .where(TaskRow.campaign == self.campaign, DeviceRow.fingerprint == self._device.fingerprint, condition)
        )
        found = (tuple(row.values()) for row in checked(session, query))
        return [(task, outcome or "", key_from(*columns)) for task, outcome, *columns in found]

    def _is_ours(self, claim: Claim) -> tuple[ColumnElement[bool], ...]:
        return TaskRow.id == claim.task, TaskRow.token == claim.token, TaskRow.tuner == self._tuner


def status(store: Store, campaign: str | None = None) -> tuple[list[Progress], list[Held]]:
    """How far every campaign, or one, is on every device model, and who holds what."""

    def read(session: Session) -> tuple[list[Progress], list[Held]]:
        held = _is_held()
        states = {
            "failed": TaskRow.outcome == "failed",
            "done": and_(TaskRow.outcome.is_not(None), TaskRow.outcome != "failed"),
            "claimed": and_(TaskRow.outcome.is_(None), held),
            "open": and_(TaskRow.outcome.is_(None), ~held),
        }
        counts = [func.sum(case((condition, 1), else_=0)).label(name) for name, condition in states.items()]
        place = (TaskRow.campaign, DeviceRow.fingerprint)
        asked = [] if campaign is None else [TaskRow.campaign == campaign]
        columns: list[Any] = [*place, *counts]
        query = select(*columns).join_from(TaskRow, DeviceRow).where(*asked).group_by(*place).order_by(*place)
        progress = []
        for name, device, *numbers in (tuple(row.values()) for row in checked(session, query)):
            one = Progress(name, device, **dict(zip(states, map(int, numbers), strict=True)))
            progress.append(replace(one, left_s=_left_s(session, one) if one.claimed else None))
        turns = (
            select(func.count())
            .select_from(MeasurementRow)
            .join(RunRow)
            .where(RunRow.device_id == TaskRow.device_id, MeasurementRow.workload_id == TaskRow.workload_id)
            .correlate(TaskRow)
            .scalar_subquery()
            .label("turns")
        )
        holders = (
            select(*place, TaskRow.holder, TaskRow.token, (TaskRow.expires - _now()).label("left_s"), turns, *shape())
            .join_from(TaskRow, DeviceRow)
            .join(WorkloadRow)
            .where(states["claimed"], *asked)
            .order_by(*place, TaskRow.holder)
        )
        found = (tuple(row.values()) for row in checked(session, holders))
        return progress, [
            Held(name, device, key_from(*columns), inert(holder), token, round(left_s, 1), turns)
            for name, device, holder, token, left_s, turns, *columns in found
        ]

    return store.read(read)


def shape() -> list[ColumnElement[Any]]:
    """The columns of a workload, which are a key."""
    return [getattr(WorkloadRow, name) for name in ("dtype", "rows", "cols", "k", "sorted", "routing")]


def _left_s(session: Session, progress: Progress) -> float | None:
    """What is left at the pace of the last workloads that were completed."""
    last = (
        select(TaskRow.completed)
        .join(DeviceRow)
        .where(TaskRow.campaign == progress.campaign, DeviceRow.fingerprint == progress.device)
        .where(TaskRow.completed.is_not(None))
        .order_by(TaskRow.completed.desc())
        .limit(PACE)
    )
    ends = [datetime.fromisoformat(row["completed"]) for row in checked(session, last)]
    if len(ends) < 2:
        return None
    pace_s = (ends[0] - ends[-1]).total_seconds() / (len(ends) - 1)
    return round((progress.claimed + progress.open) * pace_s, 1)


def _is_held() -> ColumnElement[bool]:
    return and_(TaskRow.expires.is_not(None), TaskRow.expires > _now())


class _now(FunctionElement[float]):  # noqa: N801  # as SQL's functions are called
    """Seconds of the Unix epoch, by the clock of the database."""

    type = Double()
    inherit_cache = True


@compiles(_now, "sqlite")
def _now_of_file(*_: Any, **__: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(_now, "postgresql")
def _now_of_server(*_: Any, **__: Any) -> str:
    return "extract(epoch FROM clock_timestamp())::double precision"
