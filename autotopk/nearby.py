"""What is said at places near to one, by nearness: in C where that was built, else in Python."""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from math import exp, log
from typing import Any, TypeVar

native: Any
"""The twin in C of what predictions ask most often; None where it was not built."""
try:
    from autotopk import _predict as native
except ImportError:
    native = None

REACH = 1.75
"""Doublings to where a point's weight is down to exp(-1)."""

LEAST_WEIGHT = 0.15
"""Of points that count; with a third of it, from twice as many, choices are no better."""

FARTHEST = -log(LEAST_WEIGHT) * REACH**2
"""Square of doublings to the last point that counts."""

DOUBT = 0.2
"""Weight of the belief that nothing is off, beside those of the points around."""

JUDGES = 10
"""Nearest points that say which strategies are far behind."""

Place = tuple[float, float, float, float, float]
"""Of rows, cols, k, width, order, in doublings."""

Judge = TypeVar("Judge")

Said = Any
"""Of names, see `said_of`: a mapping to numbers, or the twin's."""


def said_of(said: Said, name: str) -> float:
    """What is said of a name; 0 where that is nothing."""
    found: float = said.get(name, 0.0) if native is None else native.said_of(said, name)
    return found


def around(
    places: Sequence[Place], said: Sequence[Mapping[str, float]], judges: Sequence[Judge]
) -> Callable[[Place], tuple[Said, Sequence[Judge]]]:
    """Of places in order: a function that finds what is said around one, by nearness, and who is the nearest.

    What is said of a name is a mean, pulled towards nothing as if one that counts `DOUBT` said so.

    Args:
        places: where something is said.
        said: at each of names, which counts to `FARTHEST`.
        judges: one of each place; the `JUDGES` that are the nearest are found.
    """
    if native is None:
        return partial(slow_around, places, said, judges)
    found: Callable[[Place], tuple[Said, Sequence[Judge]]]
    numbers = array("d", chain.from_iterable(places)).tobytes()
    found = native.around(REACH**2, FARTHEST, DOUBT, JUDGES, numbers, list(map(dict, said)), list(judges))
    return found


def slow_around(
    places: Sequence[Place], said: Sequence[Mapping[str, float]], judges: Sequence[Judge], here: Place
) -> tuple[Said, Sequence[Judge]]:
    """The same in Python."""
    (rows, cols, k, width, order), reach = here, FARTHEST**0.5
    squares = []
    for at in range(bisect_left(places, (rows - reach,)), bisect_left(places, (rows + reach,))):
        r, c, o, w, s = places[at]
        square = (r - rows) ** 2 + (c - cols) ** 2 + (o - k) ** 2 + (w - width) ** 2 + (s - order) ** 2
        if square < FARTHEST:
            squares.append((square, at))
    squares.sort()
    totals, weights = defaultdict[str, float](float), defaultdict[str, float](lambda: DOUBT)
    for square, at in squares:
        weight = exp(-square / REACH**2)
        for name, one in said[at].items():
            totals[name] += weight * one
            weights[name] += weight
    means = {name: total / weights[name] for name, total in totals.items()}
    return means, [judges[at] for _, at in squares[:JUDGES]]
