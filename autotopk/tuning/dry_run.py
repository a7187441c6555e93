"""What a run of the tuner would measure, and about how long it would take; nothing is measured or written."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import fmean

from autotopk.database import Database, Server
from autotopk.device import Device
from autotopk.tuning.candidates import lattice
from autotopk.tuning.efforts import EFFORTS
from autotopk.tuning.likely import likely
from autotopk.tuning_db.records import Measurement
from autotopk.workloads import Workload

PAUSE_S = 60.0
"""A longer time between two measurements was no part of a run."""


@dataclass(frozen=True)
class Planned:
    """One workload."""

    workload: str
    candidates: int
    """That the effort would consider."""
    known: int
    """Of these, measured before: not again, but for the winner and its runner-up."""
    left: int
    """Most that would be measured."""


@dataclass(frozen=True)
class DryRun:
    """What would be done."""

    device: str
    workloads: list[Planned]
    limit_s: float | None
    """The budget; None for no limit."""
    seconds: float | None
    """From the pace of stored measurements of this device; None where there are none."""


def plan(
    workloads: Sequence[Workload],
    device: Device,
    database: Database,
    *,
    effort: str = "quick",
    budget_s: float | None = None,
    strategies: Collection[str] | None = None,
    force: bool = False,
) -> DryRun:
    """What `tuner.tune` would do with the same arguments. Raises DatabaseError where the database cannot be read."""
    from autotopk.tuning_db.store import Store

    asked, measured = EFFORTS[effort], list[Measurement]()
    if isinstance(database, Server) or database.exists():
        with Store.open(database, read_only=True) as store:
            measured = store.measurements(device=device.fingerprint)
    done = set() if force else {(one.key, one.candidate) for one in measured if one.status != "noisy"}
    planned = []
    for workload in dict.fromkeys(workloads):
        problem = workload.problem(device.type)
        space = (lattice if asked.lattice else likely)(problem, device, strategies)
        known = sum((workload.key, one) in done for one in space)
        left = min(len(space) - known, asked.trials)
        planned.append(Planned(str(workload), len(space), known, left))
    limit = asked.budget_s(len(planned)) if budget_s is None else budget_s
    pace, turns = pace_s(one.measured_at for one in measured), sum(one.left for one in planned)
    seconds = None if pace is None else min(pace * turns, limit)
    return DryRun(device.fingerprint, planned, None if limit == float("inf") else limit, seconds)


def pace_s(moments: Iterable[str]) -> float | None:
    """Mean seconds from one measurement to the next, from when they were taken (ISO 8601); None without any two."""
    times = sorted(datetime.fromisoformat(moment).timestamp() for moment in moments)
    steps = [after - before for before, after in pairwise(times) if after - before < PAUSE_S]
    return fmean(steps) if steps else None
