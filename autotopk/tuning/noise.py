"""What makes measured times useless: other processes on the cores, and samples too far apart to say anything."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from autotopk.candidate import TORCH_TOPK
from autotopk.tuning_db.records import Measurement
from autotopk.tuning_db.winners import can_win

TASKS = Path("/proc/self/task")

MAX_MARGIN = 0.1
"""A wider one around torch.topk's time says nothing."""


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


def scatter(raced: Sequence[Measurement]) -> str | None:
    """Whose times are too scattered to say whether the best is faster than torch.topk, if so."""
    others = [one for one in raced if one.candidate != TORCH_TOPK and one.ratio is not None]
    best = min(others, key=lambda one: one.ratio or math.inf, default=None)
    if best is None or best.ratio is None or best.margin is None or best.margin <= MAX_MARGIN:
        return None
    if can_win(best) or best.ratio * (1 - best.margin) >= 1:
        return None
    return f"{best.candidate} took {best.ratio:.2f} times torch.topk's time, give or take {best.margin:.0%}"
