"""How much in doubt a choice by predicted times is, and bounds by that.

Something else may be quicker than what is chosen. How likely that is, and by how much, is told by how long it is
predicted to take, and by how far off predictions of the two are around: by their own residuals, by those of their
strategies where these differ, and by what predictions of about the least times differed in where they were left out,

    off^2   = spreads of both^2 + spreads of both strategies^2 + SHARE * what predictions differed in^2
    doubt   = the largest off * exp(-how far behind it is predicted / (REACH * off))    of all that is near

in logarithms of times. Choices have levels of doubt, and levels bounds; `tuning.doubts` makes them.
"""

from collections.abc import Callable, Iterable, Sequence
from math import exp, inf, log
from typing import NamedTuple

RIVAL = 1.15
"""Times as long as a choice that something may be predicted to take which may be quicker."""

SPREAD, OFF = 0.02, 0.03
"""What is believed of spreads, and of what predictions differ in, where nothing says so."""

LEAST = 1e-6
"""Square of a spread, at least."""

SHARE, REACH = 0.5, 4.0
"""Of what predictions differ in; of what they are off by that a rival may be behind to count a third of it."""

Rival = tuple[str, str, float]
"""Strategy, candidate, predicted time: of a choice, or of what may be quicker."""


class Contest(NamedTuple):
    """Of a choice and a rival."""

    behind: float
    """Logarithm of the rival's time over that of the choice; 0 where the rival is predicted to be quicker."""
    square: float
    """Of what they are off by, by residuals."""


class Level(NamedTuple):
    """Of doubt."""

    doubt: float
    """Less than this."""
    bound: float
    """Time of a choice of this level over that of the best, at most."""


def rivals(found: Iterable[Rival]) -> list[Rival]:
    """Of what has predicted times, the choice first, those that are near it."""
    all_ = list(found)
    return [one for one in all_ if one is all_[0] or one[2] <= RIVAL * all_[0][2]]


def contests(found: Sequence[Rival], square_of: Callable[[str], float]) -> list[Contest]:
    """Of the first of them with each of the others, by the squares of spreads."""
    own, *others = [(strategy, time, square_of(name), square_of(strategy)) for strategy, name, time in found]
    strategy, time, square, of_all = own
    return [
        Contest(
            max(0.0, log(its_time / time)), square + its_square + (its_strategy != strategy) * (of_all + of_all_its)
        )
        for its_strategy, its_time, its_square, of_all_its in others
    ]


def doubt_of(found: Iterable[Contest], differing: float) -> float:
    """Of a choice, by its contests and what predictions differ in around; 0 without a rival."""
    offs = ((one.behind, (one.square + SHARE * differing**2) ** 0.5) for one in found)
    return max((off * exp(-behind / (REACH * off)) for behind, off in offs), default=0.0)


def bound_of(doubt: float, levels: Iterable[Level]) -> float:
    """Of the first level that is of more doubt; infinite beyond all."""
    return next((one.bound for one in levels if doubt < one.doubt), inf)


def numbers_of(levels: Sequence[Level]) -> list[float]:
    """As they are stored: a bound, the doubt from which on another one is, that, and so on; none without levels."""
    return [number for one in levels for number in (one.bound, one.doubt)][:-1]


def levels_in(numbers: Sequence[float]) -> list[Level]:
    """The inverse. Raises ValueError where these are no levels."""
    bounds, doubts = numbers[::2], [*numbers[1::2], inf][: len(numbers)]
    if numbers and (len(bounds) != len(doubts) or min(bounds) < 1.0 or [*doubts] != sorted({*doubts})):
        raise ValueError(f"{numbers} are no bounds by doubt")
    return [Level(doubt, bound) for doubt, bound in zip(doubts, bounds, strict=True)]
