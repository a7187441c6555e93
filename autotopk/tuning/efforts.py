"""How much a tuner measures, by the name that users choose it by."""

import math
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure."""

    seconds_per_workload: float
    """Of the default budget."""
    trials: int
    """Most candidates measured where there are too many to enumerate."""
    samples: int
    """Of a screening."""
    rounds: tuple[int, int]
    """Fewest and most of a race."""
    contenders: int
    """Most in a race."""
    lattice: bool = False
    """Whether strategies' lattices are searched, rather than their shortlists."""
    retire: bool = True
    """Whether who is far behind is out of the race: before it, at twice the best's time, and during it."""


EFFORTS = {
    "quick": Effort(7.5, 60, 3, (7, 15), 12),
    "full": Effort(60.0, 100, 5, (12, 41), 32, lattice=True),
    "oracle": Effort(math.inf, sys.maxsize, 5, (15, 41), 48, lattice=True, retire=False),
}
