"""How much a tuner measures, by the name that users choose it by."""

import math
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure."""

    seconds_per_workload: float
    """Of the default budget, beside `wait_s`. A limit for slow devices: an H200 takes 0.1 to 1 s."""
    trials: int
    """Most candidates measured where there are too many to enumerate."""
    samples: int
    """Of a screening."""
    rounds: tuple[int, int]
    """Fewest and most of a race."""
    contenders: int
    """Most in a race."""
    ahead: int = 1
    """Workloads whose kernels are compiled while an earlier one is measured."""
    wait_s: float = math.inf
    """Seconds from a run's beginning, at most half of its budget, in which workloads wait for their kernels, those that
    have theirs going first. From then on what is compiled is measured, and what is not is left to a later run."""
    lattice: bool = False
    """Whether strategies' lattices are searched, rather than their shortlists."""
    retire: bool = True
    """Whether who is far behind is out of the race: before it, at twice the best's time, and during it."""

    @property
    def patient(self) -> bool:
        """Whether every workload waits for all its kernels, in its turn."""
        return math.isinf(self.wait_s)

    def budget_s(self, workloads: int) -> float:
        """The default budget of a run."""
        return self.seconds_per_workload * workloads + (0.0 if self.patient else self.wait_s)


EFFORTS = {
    "quick": Effort(7.5, 60, 3, (7, 15), 12, ahead=64, wait_s=20.0),
    "full": Effort(60.0, 100, 5, (12, 41), 32, lattice=True),
    "oracle": Effort(math.inf, sys.maxsize, 5, (15, 41), 48, lattice=True, retire=False),
}
