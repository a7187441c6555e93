"""The events of a tuner at work, and its report at the end."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from autotopk.database import Database
from autotopk.device import Device
from autotopk.tuning_db.records import Measurement, Status, Winner
from autotopk.workloads import Workload

Outcome = Literal["finished", "budget", "interrupted"]
"""Everything was done; the budget ended first; Ctrl-C."""

WorkloadOutcome = Literal["tuned", "confirmed", "known", "unclear", "partial", "failed", "skipped", "elsewhere"]
"""Raced now; an earlier run's winner, raced again with the same result; decided by earlier runs; too noisy to say;
ended before its race by budget, Ctrl-C or want of kernels; not even torch.topk could be timed; not begun; completed by
another tuner of the campaign."""


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """What one workload came to."""

    workload: Workload
    outcome: WorkloadOutcome
    candidates: int = 0
    """What the effort may measure: the shortlists or lattices of all able strategies, and winners found elsewhere."""
    measured: Mapping[Status, int] | None = None
    """Candidates that had their turn in this run, by how it ended; none where nothing was measured."""
    winner: Winner | None = None
    """With its ratio to torch.topk, runner-up and gap."""
    error: str | None = None
    seconds: float = 0.0
    uncompiled: int = 0
    """Candidates whose kernels were not compiled in time: another turn measures them, in this run or a later one."""

    def after(self, first: "WorkloadResult") -> "WorkloadResult":
        """What two turns in one run came to."""
        added = Counter(first.measured or {}) + Counter(self.measured or {})
        outcome = first.outcome if self.outcome in ("known", "confirmed", "partial") else self.outcome
        return replace(self, outcome=outcome, measured=added, seconds=first.seconds + self.seconds)


@dataclass(frozen=True, slots=True)
class TuneStarted:
    """Before the first workload."""

    device: Device
    baseline: str
    """What torch.topk is here, see `Environment.baseline`."""
    workloads: int
    budget_s: float | None
    unbuildable: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Strategies whose kernels cannot be compiled here, with the reasons; those compiled before are measured."""


@dataclass(frozen=True, slots=True)
class CheckingKernels:
    """Before each case of shipped kernels that are tried on a kind of GPU that is new to them."""

    done: int
    total: int
    what: str


@dataclass(frozen=True, slots=True)
class KernelsChecked:
    """After the last one."""

    passed: int
    failed: Sequence[str]
    """Why kernels are not used, each once."""


@dataclass(frozen=True, slots=True)
class WorkloadStarted:
    """Before the first candidate of a workload."""

    workload: Workload
    index: int
    """From 0."""
    candidates: int
    new: int
    """Those of them to be measured now; an upper bound where the budget may end first."""


@dataclass(frozen=True, slots=True)
class CandidateMeasured:
    """After a measurement is stored."""

    workload: Workload
    measurement: Measurement
    done: int
    """Candidates of the workload measured in this run."""


@dataclass(frozen=True, slots=True)
class WorkloadFinished:
    """After a workload, also one that needed nothing."""

    result: WorkloadResult
    index: int
    eta_s: float | None
    """Seconds left by the pace so far and the budget; none before there is a pace."""


Event = CheckingKernels | KernelsChecked | TuneStarted | WorkloadStarted | CandidateMeasured | WorkloadFinished


@dataclass(frozen=True, slots=True)
class TuneReport:
    """A run of the tuner."""

    outcome: Outcome
    results: tuple[WorkloadResult, ...]
    """In the order of the workloads."""
    store_path: Database
    winners_path: Path
    """The published artifact."""
    elapsed_s: float

    def counts(self) -> dict[Status, int]:
        """Candidates that had their turn in this run, by how it ended."""
        total: dict[Status, int] = {}
        for result in self.results:
            for status, count in (result.measured or {}).items():
                total[status] = total.get(status, 0) + count
        return total
