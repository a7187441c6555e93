"""What no call waits for: jobs that a thread does one after the other, soon after they were asked for.

The thread starts with the first job and stays. A forked child has none: what was not begun is done by its own, which
starts with its next job.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from autotopk.errors import warn
from autotopk.runtime.forked import forgets

PAUSE_S, LONGEST_S = 0.005, 0.5
"""A job begins when none was asked for so long, or when the thread waited for that for so long: calls come in bursts,
and a thread that works slows down the others."""

Job = Callable[[], object]


class Afterwards:
    """The jobs of one `Runtime`."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._asked = SimpleQueue[None]()  # of C: an event's methods would take a call longer
        self._busy = False
        self._thread: threading.Thread | None = None
        forgets(self)

    @property
    def pending(self) -> bool:
        """Whether any job has not ended."""
        return bool(self._jobs) or self._busy

    def do(self, job: Job) -> None:
        """Have it done; what it raises is a warning."""
        self._jobs.append(job)
        self._asked.put(None)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="autotopk-afterwards", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no more threads, or the interpreter ends
                self._thread = None
                self.clear()

    def clear(self) -> None:
        """Forget what was not begun."""
        self._jobs.clear()

    def forget(self) -> None:
        """In a forked child, which does not have the thread."""
        self._asked, self._busy, self._thread = SimpleQueue(), False, None

    def _run(self) -> None:
        """The thread."""
        asked = self._asked
        while True:
            asked.get()
            while self._jobs:
                self._busy = True  # before the job is not among these any more
                self._wait_for_a_pause()
                try:
                    self._jobs.popleft()()
                except IndexError:  # cleared
                    break
                except Exception as error:  # a strategy may be anyone's code
                    warn(f"what was to be looked at after a call was not: {error!r}")
            self._busy = False

    def _wait_for_a_pause(self) -> None:
        until, count = time.monotonic() + LONGEST_S, -1
        while count != len(self._jobs) and time.monotonic() < until:
            count = len(self._jobs)
            time.sleep(PAUSE_S)
