"""Tuners of a fleet, each in a process group of its own, and what they say while they live."""

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import torch

from autotopk import registry
from autotopk.database import Database
from autotopk.tuning.events import CandidateMeasured, Event, WorkloadFinished
from autotopk.tuning.sharing import COMPLETE
from autotopk.tuning.tuner import tune
from autotopk.workloads import Workload
from tests.fleet import sleeping

MEASURED, COMPLETED, ENDED = "measured", "completed", "ended"
"""What is said: the uuid of a measurement that is stored; the workload that was completed; how the run ended."""


@dataclass(frozen=True)
class Order:
    """What every tuner of a fleet is told to do."""

    database: Database
    folder: Path
    """Where the winners are published."""
    workloads: Sequence[Workload]
    strategies: Sequence[str] | None = None
    campaign: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the environment."""


def context() -> ForkServerContext:
    """Fresh processes that have imported everything."""
    made = get_context("forkserver")
    made.set_forkserver_preload(["optuna", "psycopg", "tenacity", "tests.fleet.tuners"])
    return made


def run(order: Order, name: str, told: Connection) -> None:
    """The process of a tuner."""
    os.setsid()
    os.environ.update(order.variables)
    registry.register(sleeping.Sleeping())

    def tell(word: str, what: object) -> None:
        os.write(told.fileno(), f"{word} {what}\n".encode())

    def hear(event: Event) -> None:
        if isinstance(event, CandidateMeasured):
            tell(MEASURED, event.measurement.uuid)
        elif isinstance(event, WorkloadFinished) and event.result.outcome in COMPLETE:
            tell(COMPLETED, event.result.workload)

    report = tune(
        order.workloads,
        store_path=order.database,
        winners_path=order.folder / f"{name}.sqlite",
        device=torch.device("cpu"),
        strategies=order.strategies,
        campaign=order.campaign,
        budget_s=3600.0,
        preload=sleeping.MODULES,
        on_event=hear,
    )
    tell(ENDED, report.outcome)


class Tuner:
    """One process, and what it has said."""

    def __init__(self, order: Order, name: str) -> None:
        self.said: list[tuple[str, str]] = []
        forks = context()
        ours, theirs = forks.Pipe(duplex=False)
        self.process = forks.Process(target=run, args=(order, name, theirs))
        self.process.start()
        theirs.close()
        self._listener = threading.Thread(target=self._listen, args=(ours,), daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def words(self, word: str) -> list[str]:
        """What was said of a kind."""
        return [what for kind, what in list(self.said) if kind == word]

    def signal(self, number: int, *, group: bool) -> None:
        """Send a signal to the tuner, or to the processes that it started as well."""
        (os.killpg if group else os.kill)(self.pid, number)

    def kill(self, *, group: bool) -> None:
        """End it, and hear the last of it."""
        self.signal(signal.SIGKILL, group=group)
        self.finish()

    def finish(self, timeout_s: float | None = None) -> int | None:
        """Its exit code, negative for a signal; None where it still runs after so long."""
        self.process.join(timeout_s)
        if self.process.exitcode is not None:
            self._listener.join()
        return self.process.exitcode

    def left_behind(self) -> bool:
        """Whether any process of its group is alive."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _listen(self, ours: Connection) -> None:
        with ours, os.fdopen(os.dup(ours.fileno())) as lines:
            for line in lines:
                word, _, what = line.rstrip("\n").partition(" ")
                self.said.append((word, what))
