"""What a process knows between calls, in one object."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from autotopk import kernel, packs
from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import inert, warn
from autotopk.runtime import winners
from autotopk.runtime.afterwards import Afterwards
from autotopk.runtime.builds import Builds
from autotopk.runtime.counters import counters
from autotopk.runtime.misses import Misses
from autotopk.runtime.plan_cache import PlanCache
from autotopk.runtime.winners import Layers, Winners
from autotopk.strategy import Strategy


class Runtime:
    """The winners in force, the plans made, what is being compiled, what failed, and the problems that nobody tuned.

    `default` serves `autotopk.topk` and its kin. What belongs to the machine rather than to a choice (loaded kernels,
    imported strategies, properties of devices) is not in it.
    """

    def __init__(self) -> None:
        self.misses = Misses()
        self.builds = Builds()
        self.afterwards = Afterwards()
        self.weighed: PlanCache[bool] = PlanCache()
        """Problems of which all that could serve was weighed, not only what needs nothing compiled."""
        self.cpu_is_torchs = False
        """It is known that torch.topk serves everything on the CPU: no plans are needed there."""
        self._blocked: set[tuple[Candidate, str]] = set()
        self._warned: set[str] = set()
        self._unbuildable: dict[str, str] = {}
        self._plans: dict[str, PlanCache[Any]] = {}
        self._winners: dict[str, Winners] | None = None
        self._layers: Layers | None = None
        self._others: Callable[[], object] | None = None
        self._reading = threading.Lock()

    def plans(self, operation: str) -> PlanCache[Any]:
        """The plans of an operation: the same object for ever, emptied by `reload`."""
        return self._plans.setdefault(operation, PlanCache())

    def winners(self, device: Device) -> Winners:
        """Of AUTOTOPK_DB, then the user's, then the shipped, key by key; read on first use."""
        return self.known().get(device.fingerprint, winners.NONE)

    def settle_cpu(self, known: Mapping[str, Winners], torchs: bool) -> None:
        """Note whether `cpu_is_torchs`, unless the winners that this follows from are not in force any more."""
        with self._reading:
            self.cpu_is_torchs = torchs and self._winners is known

    def known(self) -> Mapping[str, Winners]:
        """The winners of all devices, by fingerprint."""
        with self._reading:
            if self._winners is None:
                self._winners = winners.read_layers(winners.layers() if self._layers is None else self._layers)
            return self._winners

    @property
    def swaps(self) -> bool:
        """Whether a kernel that is compiled in the background takes over where something else answered."""
        return self._others is None

    def agree(self, layers: Layers, others: Callable[[], object]) -> None:
        """Have these winners from now on, and no swaps until `meet`, which calls `others` to wait for other ranks."""
        self.reload()
        self._layers, self._others = layers, others

    def meet(self) -> None:
        """Wait for all ranks that agreed, once each of them has its kernels; then choose anew."""
        others, self._others = self._others, None
        if others is not None:
            others()
            self.forget_plans()

    def block(self, candidate: Candidate, device: Device, error: Exception) -> None:
        """Leave a candidate that failed out for the rest of the process, with a warning."""
        self._blocked.add((candidate, device.fingerprint))
        counters.left_out(f"{candidate.strategy}: {inert(error)}")
        warn(f"{candidate} failed and is left out: {error}")

    @property
    def blocks(self) -> bool:
        """Whether `block` was called for any."""
        return bool(self._blocked)

    def is_blocked(self, candidate: Candidate, device: Device) -> bool:
        """Whether `block` was called for it."""
        return (candidate, device.fingerprint) in self._blocked

    def warn_once(self, about: str, message: str) -> None:
        """Warn unless that was warned about before."""
        if about not in self._warned:
            self._warned.add(about)
            warn(message)

    def reason_unbuildable(self, strategy: Strategy) -> str:
        """Why none of its kernels can be compiled here, asked once in a process; empty where they can."""
        if strategy.name not in self._unbuildable:
            self._unbuildable[strategy.name] = "; ".join(strategy.reasons_unbuildable())
        return self._unbuildable[strategy.name]

    def forget_plans(self) -> None:
        """Let every layout's next call choose anew."""
        for plans in list(self._plans.values()):
            plans.clear()

    def reload(self) -> None:
        """Forget everything; what is on disk is read again on next use."""
        with self._reading:
            self._winners = self._layers = self._others = None
            self.cpu_is_torchs = False
            kernel.deploy(None)
        packs.reload()
        self.builds.reset()
        self.afterwards.clear()
        self.weighed.clear()
        self.forget_plans()
        self._blocked.clear()
        self._unbuildable.clear()
        self._warned.clear()
        self.misses.clear()


default = Runtime()
