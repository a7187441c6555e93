"""What a run of the tuner would measure, and how long that would take by what is stored: `autotopk tune --dry-run`."""

import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Literal

import torch

from autotopk.device import Device, device_of
from autotopk.tuning.candidates import candidates, lattice, source_of
from autotopk.tuning.efforts import EFFORTS
from autotopk.tuning.environment import environment_of
from autotopk.tuning.log import Log
from autotopk.tuning.search import left
from autotopk.tuning_db.records import Measurement
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload

PAUSE_S = 60.0
"""Seconds between two measurements from which on the tuner did not run, or did something else."""


@dataclass(frozen=True)
class Expected:
    """What a workload has to be measured yet, beside neighbours' winners and races."""

    workload: Workload
    candidates: int
    """What the effort searches."""
    known: int
    """Those of them whose measurement is kept, as their source is the same."""
    to_measure: int
    """At most: what has other source but compiles to the same code as before is kept too."""
    seconds: float | None
    """At the stored pace; None where nothing was measured on this device."""


@dataclass(frozen=True)
class Forecast:
    """What a run would do."""

    device: Device
    pace_s: float | None
    """Seconds that a candidate took here on average, its part in the races included."""
    seconds: float | None
    """Of all workloads, at most the budget."""
    budget_s: float | None
    """None where there is no limit."""
    workloads: tuple[Expected, ...]


def forecast(
    workloads: Iterable[Workload],
    store_path: Path,
    device: torch.device,
    *,
    effort: Literal["quick", "full", "oracle"] = "quick",
    budget_s: float | None = None,
    strategies: Collection[str] | None = None,
    force: bool = False,
) -> Forecast:
    """What `tuner.tune` with the same arguments would do. Nothing is compiled, measured or written.

    Raises DatabaseError where there is a tuning database that cannot be read.
    """
    model, rules = device_of(device), EFFORTS[effort]
    todo = list(dict.fromkeys(workloads))
    baseline = environment_of(model).baseline
    with Store.open(store_path, read_only=True) if store_path.exists() else nullcontext() as store:
        pace_s = pace(store.measurements(device=model.fingerprint)) if store else None
        expected = []
        for workload in todo:
            problem = workload.problem(model.type)
            space = (lattice if rules.lattice else candidates)(problem, model, strategies)
            evidence = store.evidence(model.fingerprint, workload.key) if store and not force else []
            latest = Log.of(evidence, baseline).latest
            known = {
                one: latest[one]
                for one in space
                if one in latest and source_of(one, problem, model) == latest[one].identity.source
            }
            rest = left(space, known, rules.trials)
            seconds = None if pace_s is None else rest * pace_s
            expected.append(Expected(workload, len(space), len(known), rest, seconds))
    budget = rules.budget_s(len(todo)) if budget_s is None else budget_s
    total = None if pace_s is None else min(budget, sum(one.seconds or 0.0 for one in expected))
    return Forecast(model, pace_s, total, None if math.isinf(budget) else budget, tuple(expected))


def pace(measured: Sequence[Measurement]) -> float | None:
    """Seconds that a screened candidate took on average, races included and pauses left out; None without any."""
    times = sorted(datetime.fromisoformat(one.measured_at) for one in measured)
    gaps = [gap for one, other in pairwise(times) if (gap := (other - one).total_seconds()) < PAUSE_S]
    screened = sum(one.stage == "screen" for one in measured)
    return sum(gaps) / screened if gaps and screened else None
