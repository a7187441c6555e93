"""What a process knows between calls, in one object."""

import atexit
import threading
import warnings
from typing import Any

from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import AutotopkWarning
from autotopk.runtime import winners
from autotopk.runtime.misses import Misses
from autotopk.runtime.plan_cache import PlanCache
from autotopk.runtime.winners import Winners
from autotopk.strategy import Config, Strategy


class Runtime:
    """The winners in force, the plans made, the candidates that failed, and the problems that nobody tuned.

    `default` serves `autotopk.topk` and its kin. What belongs to the machine rather than to a choice (loaded kernels,
    imported strategies, properties of devices) is not in it.
    """

    def __init__(self) -> None:
        self.misses = Misses()
        self._blocked: set[tuple[Candidate, str]] = set()
        self._unbuildable: dict[Strategy, str] = {}
        self._warned: set[Strategy] = set()
        self._plans: dict[str, PlanCache[Any]] = {}
        self._winners: dict[str, Winners] | None = None
        self._reading = threading.Lock()

    def plans(self, operation: str) -> PlanCache[Any]:
        """The plans of an operation: the same object for ever, emptied by `reload`."""
        return self._plans.setdefault(operation, PlanCache())

    def winners(self, device: Device) -> Winners:
        """Of AUTOTOPK_DB, then the user's, then the shipped, key by key; read on first use."""
        with self._reading:
            if self._winners is None:
                self._winners = winners.read_layers()
        return self._winners.get(device.fingerprint, winners.NONE)

    def block(self, candidate: Candidate, device: Device, error: Exception) -> None:
        """Leave a candidate that failed out for the rest of the process, with a warning."""
        self._blocked.add((candidate, device.fingerprint))
        warnings.warn(f"{candidate} failed and is left out: {error}", AutotopkWarning, stacklevel=5)

    def is_blocked(self, strategy: Strategy, config: Config, device: Device) -> bool:
        """Whether `block` was called for it; costs nothing while it never was."""
        return bool(self._blocked) and (strategy.candidate(config), device.fingerprint) in self._blocked

    def reason_unbuildable(self, strategy: Strategy) -> str:
        """Why none of its kernels can be compiled here, asked once in a process; empty where they can."""
        if strategy not in self._unbuildable:
            self._unbuildable[strategy] = "; ".join(strategy.reasons_unbuildable())
        return self._unbuildable[strategy]

    def warn_unbuildable(self, strategy: Strategy) -> None:
        """Warn, once in a process, that a strategy was passed over because its kernels cannot be compiled."""
        if strategy not in self._warned:
            self._warned.add(strategy)
            message = f"{strategy.name} cannot be built here, and something slower runs: {self._unbuildable[strategy]}"
            warnings.warn(message, AutotopkWarning, stacklevel=5)

    def reload(self) -> None:
        """Forget everything; what is on disk is read again on next use."""
        for plans in self._plans.values():
            plans.clear()
        self._winners = None
        self._blocked.clear()
        self._unbuildable.clear()
        self._warned.clear()
        self.misses.clear()


default = Runtime()
atexit.register(lambda: default.misses.write())
