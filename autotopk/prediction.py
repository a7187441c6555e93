"""Times that are predicted from those measured: the numbers that were fitted, and their evaluation in plain Python.

Of an operation on a device,

    log(time) = log(sum of coefficients * `Strategy.terms`)             of the strategy, none negative
              + what its trees say of sizes, knobs and terms            where it was measured often enough
              + what the strategy is off by at the points around        a mean of residuals, weighted by nearness
              + what the configuration is off by there                  the same of what is left

Nearness is of rows, cols and k, in doublings, and of the dtype's width and the order. A region is a cell of `CELL`
doublings of rows, cols and k, of one width and order; its bound says how much slower than the best of what was
measured the choice was at points around it that were left out of the fit. Where enough points were measured, choices
have narrower ones by how much they are in doubt (`autotopk.doubt`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf, log2
from typing import NamedTuple

from autotopk import doubt
from autotopk.candidate import Candidate
from autotopk.curve import Curve
from autotopk.doubt import Contest, Level, Rival
from autotopk.forest import Forest
from autotopk.key import TuningKey
from autotopk.nearby import Place, Said, around, said_of
from autotopk.problem import DTYPE_BYTES, FLOAT_INF

CELL = 2
"""Doublings of an edge of a region."""

FAR_BEHIND = 1.3
"""Times the best that a strategy's best took at a point where it was far behind."""

LEAST_JUDGES = 8
"""Of `nearby.JUDGES` all that measured a strategy, so many at least, have to say that it is far behind."""

OTHER_WIDTH, OTHER_ORDER = 0.5, 0.5
"""How far a dtype of twice the width, and the other order, are from one another, in doublings."""

PLAIN = "topk"

NO_NAME = ""
"""What no strategy or candidate is called."""

Cell = tuple[int, int, int, int, int]
"""Of rows, cols, k; `width_of` the dtype; whether sorted."""


def kind_of(key: TuningKey, device_type: str) -> str:
    """What is fitted together: "topk", "windows", "softmax"; on the CPU "topk of floats of 16 bits".

    torch's operators are other code there for every dtype: 16 bits may take ten times as long as 32.
    """
    kind = key.routing or PLAIN
    return f"{kind} of {elements_of(width_of(key.dtype))}" if device_type == "cpu" else kind


def operation_of(kind: str) -> str:
    """Of a kind without the elements: "topk"."""
    return kind.partition(" ")[0]


def width_of(dtype: str) -> int:
    """Doublings of the bytes of an element; for integers 4 more, so that they are far from floats."""
    return DTYPE_BYTES[dtype].bit_length() - 1 + 4 * (dtype not in FLOAT_INF)


def elements_of(width: int) -> str:
    """What `width_of` tells apart, in words: "floats of 16 bits"."""
    return f"{'integers' if width >= 4 else 'floats'} of {8 << width % 4} bits"


def band_of(size: int) -> int:
    """Which edge of regions a size is in, from 0: from 1 << CELL * band on."""
    return (size.bit_length() - 1) // CELL


def cell_of(key: TuningKey) -> Cell:
    """The region that a key is in."""
    return band_of(key.rows), band_of(key.cols), band_of(key.k), width_of(key.dtype), int(key.sorted)


class Region(NamedTuple):
    """What is known around a problem."""

    bound: float
    """Time of the choice over that of the best, at most: 1.05 for 5 % slower."""
    points: int
    """Measured around it."""


@dataclass
class Point:
    """A problem that was measured."""

    place: Place
    residuals: dict[str, float]
    """Of each strategy, a mean; of each candidate what is left."""
    slow: frozenset[str] = frozenset()
    """Strategies that were far behind, see `FAR_BEHIND`, or are predicted to be where they were not measured."""
    first: str = ""
    """The candidate that is predicted to take the least time there, of those that no compiler is needed for."""
    off: float | None = None
    """What predictions of about the least times differed in when it was left out; None where there were no two."""

    @cached_property
    def quick(self) -> frozenset[str]:
        """The others that were measured."""
        return frozenset(name for name in self.residuals if " " not in name) - self.slow


@dataclass(slots=True)
class Near:
    """The points around a problem: what strategies and configurations are off by there, by nearness."""

    residuals: Said = field(default_factory=dict)
    judges: Sequence[Point] = ()
    """The nearest."""
    sizes: Sequence[float] = ()
    """`sizes_of` the problem; without them no tree is asked."""

    @property
    def slow(self) -> set[str]:
        """Strategies that were far behind all around."""
        sayings = [point.slow for point in self.judges]
        behind = set().union(*sayings).difference(*[point.quick for point in self.judges])
        return {name for name in behind if sum([name in slow for slow in sayings]) >= LEAST_JUDGES}


def far_behind(bests: Mapping[str, float]) -> frozenset[str]:
    """Strategies that are, by the times of their best at a point."""
    most = FAR_BEHIND * min(bests.values(), default=0.0)
    return frozenset(name for name, time_us in bests.items() if time_us > most)


class Example(NamedTuple):
    """The terms of a strategy at a point, by which a reader knows whether they are the same today."""

    key: TuningKey
    candidate: Candidate
    terms: tuple[float, ...]


@dataclass
class Model:
    """What was fitted for one kind of problems on one device."""

    strategies: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Coefficients, then as many of the largest terms that were measured."""
    forests: dict[str, Forest] = field(default_factory=dict)
    """Of strategies that were measured often enough; they ask `sizes_of` a problem, then knobs, then terms."""
    candidates: dict[str, int] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    regions: dict[Cell, Region] = field(default_factory=dict)
    levels: list[Level] = field(default_factory=list)
    """Of doubt; none where too few points were measured to tell."""
    examples: list[Example] = field(default_factory=list)
    whole: dict[int, Sequence[object]] = field(default_factory=dict, repr=False, compare=False)
    """Groups of strategies of which all were found to be fitted, by `id`."""

    def near(self, key: TuningKey) -> Near:
        """The points around a problem."""
        return Near(*self._around(place_of(key)), sizes_of(key))

    def nearest(self, key: TuningKey) -> Sequence[Point]:
        """The nearest of these, alone."""
        return self._around(place_of(key))[1]

    def leave_out(self, strategy: str) -> None:
        """Predict nothing of it from now on."""
        self.strategies.pop(strategy, None)
        self.whole.clear()
        self.forests.pop(strategy, None)
        self._curves.pop(strategy, None)

    @cached_property
    def _around(self) -> Callable[[Place], tuple[Said, Sequence[Point]]]:
        """The residuals around a place, and the nearest points."""
        return self._said_by_points([one.residuals for one in self._in_order])

    @cached_property
    def _squares_around(self) -> Callable[[Place], tuple[Said, Sequence[Point]]]:
        """Squares of residuals around a place, beyond what is usual; under `NO_NAME` what predictions differ in."""
        said = []
        for one in self._in_order:
            its = {name: residual**2 - doubt.SPREAD**2 for name, residual in one.residuals.items()}
            said.append(its if one.off is None else {**its, NO_NAME: one.off - doubt.OFF})
        return self._said_by_points(said)

    @cached_property
    def _in_order(self) -> list[Point]:
        return sorted(self.points, key=lambda one: one.place)

    def _said_by_points(self, said: Sequence[Mapping[str, float]]) -> Callable[[Place], tuple[Said, Sequence[Point]]]:
        return around([one.place for one in self._in_order], said, self._in_order)

    @cached_property
    def _curves(self) -> dict[str, Curve]:
        """Of each strategy."""
        return {
            name: Curve(numbers, self.forests.get(name))
            for name, numbers in self.strategies.items()
            if len(numbers) % 2 == 0
        }

    def time_us(
        self, strategy: str, candidate: str, knobs: Sequence[float], terms: Sequence[float], near: Near
    ) -> float | None:
        """The predicted time; None where nothing was fitted for the strategy, or other terms, or far smaller ones.

        Args:
            strategy: its name.
            candidate: as it is written.
            knobs: its `strategy.numbers`.
            terms: its `Strategy.terms`.
            near: the points around the problem.
        """
        return self.of(strategy, near)(candidate, knobs, terms)

    def of(self, strategy: str, near: Near) -> Callable[[str, Sequence[float], Sequence[float]], float | None]:
        """`time_us` of the configurations of one strategy."""
        curve = self._curves.get(strategy)
        if curve is None:
            return _nothing
        return partial(curve.time_us, near.sizes, said_of(near.residuals, strategy), near.residuals)

    def region(self, key: TuningKey) -> Region | None:
        """What is known around a problem; None where nothing is."""
        return self.regions.get(cell_of(key))

    def bound(self, key: TuningKey) -> float:
        """Of its region; infinite outside of all."""
        region = self.region(key)
        return inf if region is None else region.bound

    def contests(self, key: TuningKey, found: Sequence[Rival]) -> list[Contest]:
        """Of a choice at a problem with its rivals, see `doubt.rivals`."""
        means, squares = self.near(key).residuals, self._squares_around(place_of(key))[0]

        def square_of(name: str) -> float:
            return max(doubt.LEAST, said_of(squares, name) + doubt.SPREAD**2 - said_of(means, name) ** 2)

        return doubt.contests(found, square_of)

    def doubt(self, key: TuningKey, found: Sequence[Rival]) -> float:
        """How much in doubt a choice at a problem is among its rivals."""
        return doubt.doubt_of(self.contests(key, found), self.differing(key))

    def bound_among(self, key: TuningKey, found: Sequence[Rival], time_us: float) -> float:
        """Of what is predicted to take so long, at a problem whose first choice is among its rivals.

        By the doubt of that choice where there are levels, and as many times more as it is behind; else of the region.
        """
        if not self.levels or self.region(key) is None:
            return self.bound(key)
        level = doubt.bound_of(self.doubt(key, found), self.levels)
        return level * max(1.0, time_us / found[0][2])

    def differing(self, key: TuningKey) -> float:
        """What predictions of about the least times differ in around a problem, where they were left out."""
        return said_of(self._squares_around(place_of(key))[0], NO_NAME) + doubt.OFF


def _nothing(candidate: str, knobs: Sequence[float], terms: Sequence[float]) -> None:
    """Of what was not fitted."""


def place_of(key: TuningKey) -> Place:
    """Where it is among the points."""
    return log2(key.rows), log2(key.cols), log2(key.k), OTHER_WIDTH * width_of(key.dtype), OTHER_ORDER * key.sorted


def sizes_of(key: TuningKey) -> tuple[float, ...]:
    """What trees ask of a problem."""
    rows, cols, k = key.rows, key.cols, key.k
    return rows, cols, k, width_of(key.dtype), key.sorted, cols / k, rows * cols, rows * k, key.dtype == "bfloat16"
