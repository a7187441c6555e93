"""Which places are near to one, and means of what is said there: in C where that was built, else in Python."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from autotopk.forest import native

Place = tuple[float, float, float, float, float]
"""Of rows, cols, k, width, order, in doublings."""

Weighted = list[tuple[float, dict[str, float]]]
"""What is said of names at places, and how much it counts."""


def around(farthest: float, places: Sequence[Place]) -> Callable[[Place], list[tuple[float, int]]]:
    """Of places in order: a function that finds the square of the distance, below `farthest`, and which they are."""
    if native is None:
        return partial(slow_around, farthest, places)
    found: Callable[[Place], list[tuple[float, int]]]
    found = native.around(farthest, array("d", chain.from_iterable(places)).tobytes())
    return found


def slow_around(farthest: float, places: Sequence[Place], here: Place) -> list[tuple[float, int]]:
    """The same in Python."""
    (rows, cols, k, width, order), reach = here, farthest**0.5
    found = []
    for at in range(bisect_left(places, (rows - reach,)), bisect_left(places, (rows + reach,))):
        r, c, o, w, s = places[at]
        square = (r - rows) ** 2 + (c - cols) ** 2 + (o - k) ** 2 + (w - width) ** 2 + (s - order) ** 2
        if square < farthest:
            found.append((square, at))
    return found


def slow_mean(doubt: float, weighted: Weighted, name: str) -> float:
    """Of what is said of a name: weighted, and pulled towards nothing as if one that counts `doubt` said so."""
    total, weights = 0.0, doubt
    for weight, said in weighted:
        if name in said:
            total += weight * said[name]
            weights += weight
    return total / weights


mean: Callable[[float, Weighted, str], float]
mean = slow_mean if native is None else native.mean
