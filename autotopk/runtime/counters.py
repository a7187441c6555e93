"""Counts of what happens seldom, always kept, and of calls while they are watched; see `insight`."""

import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Calls:
    """Calls of one operation that one candidate answered."""

    operation: str
    """topk, topk_indices, ..."""
    step: str
    """Of the order of choice; "torch" where torch.topk answered."""
    strategy: str
    count: int
    host_us: float
    """Microseconds of the host for all of them together, as watched; on a CPU the work itself is among them."""


@dataclass(frozen=True)
class Stats:
    """What a process did since it began, or since counts were last reset."""

    watching: bool
    """Whether calls are counted, see `watch`."""
    calls: tuple[Calls, ...] = ()
    """Most calls first; empty where nobody watched."""
    plans: int = 0
    """Layouts that were met for the first time, or again after `reload`: misses of the plan cache."""
    misses: int = 0
    """Of these, those that a kernel answers by another step than forced or exact: nothing is tuned for them."""
    builds: int = 0
    """Kernels that were compiled beside calls."""
    failed_builds: int = 0
    torch: dict[str, int] = field(default_factory=dict)
    """Watched calls that torch.topk answered, by the reason."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Candidates that failed and were left out, with the error."""


class Counters:
    """Counts of a process. Every method may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Begin at zero."""
        with self._lock:
            self._events: Counter[str] = Counter()
            self._torch: Counter[str] = Counter()
            self._left_out: Counter[str] = Counter()
            self._calls: Counter[tuple[str, str, str]] = Counter()
            self._ns: Counter[tuple[str, str, str]] = Counter()

    def happened(self, *events: str) -> None:
        """Count some of `plans`, `misses`, `builds`, `failed_builds`."""
        with self._lock:
            for event in events:
                self._events[event] += 1

    def left_out(self, reason: str) -> None:
        """Count a candidate that failed."""
        with self._lock:
            self._left_out[reason] += 1

    def called(self, operation: str, step: str, strategy: str, ns: int, reason: str) -> None:
        """Count a call that took so many nanoseconds; the reason is torch.topk's."""
        place = operation, step, strategy
        with self._lock:
            self._calls[place] += 1
            self._ns[place] += ns
            if reason:
                self._torch[reason] += 1

    def stats(self, watching: bool) -> Stats:
        """What was counted."""
        with self._lock:
            calls = tuple(Calls(*place, n, self._ns[place] / 1e3) for place, n in self._calls.most_common())
            return Stats(watching, calls, **self._events, torch=dict(self._torch), left_out=dict(self._left_out))


counters = Counters()
"""Of this process."""
