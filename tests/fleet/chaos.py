"""A fleet that is troubled: tuners killed, stopped beyond their lease, and replaced."""

import signal
import time
from dataclasses import dataclass, field
from random import Random
from threading import Thread

from sqlalchemy import select

from autotopk.tuning_db.models import TaskRow
from autotopk.tuning_db.store import Store
from tests.fleet.tuners import ENDED, MEASURED, Order, Tuner

TAKEN_OVER_S = 90.0
"""Longest wait for another tuner, some of it for a transaction that a stopped one left open."""


@dataclass
class Fleet:
    """So many tuners, and those before them."""

    order: Order
    store: Store
    draw: Random
    size: int
    working: list[Tuner] = field(init=False)
    gone: list[Tuner] = field(default_factory=list)
    stopped: dict[int, Thread] = field(default_factory=dict)
    """By the place of the tuner."""
    taken_over: list[bool] = field(default_factory=list)
    """Of each that was stopped: whether another took over what it held."""

    def __post_init__(self) -> None:
        self.working = [Tuner(self.order, str(place)) for place in range(self.size)]

    def kill(self) -> None:
        """As the kernel without memory or a scheduler would, and start another in its place."""
        place = self._victim()
        self.working[place].kill(group=self.draw.random() < 0.5)
        self.gone.append(self.working[place])
        self.working[place] = Tuner(self.order, str(place))

    def stop(self) -> None:
        """Until its lease is over and another holds what it held; others may be struck meanwhile."""
        while len(self.stopped) * 2 >= self.size:  # the others have to work
            time.sleep(0.1)
        task = None
        while task is None:
            place, group = self._victim(), self.draw.random() < 0.5
            tuner = self.working[place]
            tuner.signal(signal.SIGSTOP, group=group)
            if (task := self._task_of(tuner)) is None:
                tuner.signal(signal.SIGCONT, group=group)
        self.stopped[place] = Thread(target=self._go_on, args=(place, task, group))
        self.stopped[place].start()

    def finish(self, timeout_s: float) -> list[int | None]:
        """The exit codes of those that were not killed."""
        for thread in list(self.stopped.values()):
            thread.join()
        return [one.finish(timeout_s) for one in self.working]

    def close(self) -> list[int]:
        """Leave nothing behind; returns the process groups in which something lived on."""
        for thread in list(self.stopped.values()):
            thread.join()
        alive = [one for one in [*self.working, *self.gone] if one.left_behind()]
        for one in alive:
            one.signal(signal.SIGKILL, group=True)
        return [one.pid for one in alive]

    def _victim(self) -> int:
        """The place of a tuner that runs and has measured something."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert not any(one.words(ENDED) for one in self.working), "too few workloads for all that is to happen"
            places = [one for one in range(self.size) if one not in self.stopped and self.working[one].words(MEASURED)]
            if places:
                time.sleep(self.draw.uniform(0, 0.4))
                return self.draw.choice(places)
            time.sleep(0.02)
        raise AssertionError("no tuner measures anything")

    def _go_on(self, place: int, task: int, group: bool) -> None:
        tuner, deadline = self.working[place], time.monotonic() + TAKEN_OVER_S
        while self._task_of(tuner) == task and time.monotonic() < deadline:
            time.sleep(0.1)
        self.taken_over.append(self._task_of(tuner) != task)
        time.sleep(0.3)
        tuner.signal(signal.SIGCONT, group=group)
        del self.stopped[place]

    def _task_of(self, tuner: Tuner) -> int | None:
        """What it claimed, no other has claimed since, and is not complete."""
        held = select(TaskRow.id).where(
            TaskRow.holder.like(f"%:{tuner.pid}:cpu"), TaskRow.outcome.is_(None), TaskRow.expires.is_not(None)
        )
        return self.store.read(lambda session: session.scalar(held))
