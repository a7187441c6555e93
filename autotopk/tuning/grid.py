"""Where to measure next, of shapes that nobody named: those that the least is known about."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log, log2

import torch
from torch import Tensor

from autotopk.key import TuningKey
from autotopk.problem import DTYPE_BYTES, INTEGERS
from autotopk.workloads import GRID_POINTS, Workload, spread

POOL = 1024
"""Shapes that are chosen among."""

BATCH = 16
"""Shapes that are chosen at a time: as many kernels compile while others are measured."""

MET, UNKNOWN = 1.05, 2.0
"""Bounds on the regret at which a shape is known well enough, and as good as not at all."""


Bound = Callable[[TuningKey], float]


@dataclass(frozen=True)
class Grid:
    """Named workloads, then shapes from a pool that is always the same.

    It ends when so many of the pool are measured, or the bound is met at all of them.
    """

    named: Sequence[Workload] = ()
    points: int = GRID_POINTS

    @cached_property
    def pool(self) -> dict[TuningKey, Workload]:
        """The shapes."""
        return {workload.key: workload for workload in spread(POOL)}

    def left(self, known: Collection[TuningKey]) -> int:
        """How many will be measured at most."""
        return max(0, self.points - sum(key in self.pool for key in known))

    def next(self, known: Collection[TuningKey], bound: Bound = lambda key: inf, count: int = BATCH) -> list[Workload]:
        """The next ones: each brings the pool as near to what is known as can be, shapes of bad bounds before others.

        Who is farthest from all that is known would be a corner, which few others are near to.

        Args:
            known: what is measured, or will be.
            bound: how many times slower than the best the choice at a shape may be; infinite where nothing is known.
            count: how many at most.
        """
        count, keys = min(count, self.left(known)), list(self.pool)
        if not count:
            return []
        weights = torch.tensor([_weight(bound(key)) for key in keys], dtype=torch.float32)
        places, plain = _places(keys), [key for key in known if not key.routing]
        apart = torch.cdist(places, places, p=1)
        far = torch.cdist(places, _places(plain), p=1).amin(1) if plain else apart.amax(1)
        open_ = torch.tensor([key not in known for key in keys]) & (weights > 0)
        chosen = []
        for _ in range(min(count, int(open_.sum()))):
            gains = weights @ (far[:, None] - apart).clamp_min(0)
            first = int(torch.where(open_, gains, -1.0).argmax())
            chosen.append(self.pool[keys[first]])
            far, open_[first] = torch.minimum(far, apart[first]), False
        return chosen


def _weight(bound: float) -> float:
    """Of a shape: 0 where the bound is met, 1 where nothing is known."""
    return min(1.0, log(bound) / log(UNKNOWN)) if bound > MET else 0.0


def _places(keys: Iterable[TuningKey]) -> Tensor:
    """(keys, 6) float32: doublings of the sizes, and of what else decides which kernel is fastest."""
    return torch.tensor(
        [
            (
                log2(key.rows),
                log2(key.cols),
                log2(key.k),
                2 * log2(DTYPE_BYTES[key.dtype]),
                float(key.dtype in INTEGERS),
                float(key.sorted),
            )
            for key in keys
        ],
        dtype=torch.float32,
    )
