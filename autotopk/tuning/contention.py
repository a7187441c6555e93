"""How much of a process's time other processes had: what makes a time taken on a CPU wrong without making it vary."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

TASKS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True)
class CoreTime:
    """What a process had of the cores until now, in nanoseconds of its threads; zeros where nobody counts."""

    ran: int = 0
    waited: int = 0
    """Ready to run, while every core that they may use was somebody else's."""

    @classmethod
    def now(cls) -> Self:
        """Of this process."""
        ran = waited = 0
        for name in os.listdir(TASKS) if TASKS.is_dir() else ():
            try:
                fields = (TASKS / name / "schedstat").read_text().split()
            except OSError:  # the thread is gone, or the kernel keeps no such account
                continue
            ran += int(fields[0])
            waited += int(fields[1])
        return cls(ran, waited)

    def contention_since(self, before: "CoreTime") -> float:
        """The share, since then, of the time it wanted a core in which it had none; threads that ended are left out."""
        ran, waited = max(0, self.ran - before.ran), max(0, self.waited - before.waited)
        return waited / (ran + waited) if waited else 0.0
