"""What a strategy takes: coefficients, trees, what it is off by around; in C where that was built, else in Python."""

from array import array
from collections.abc import Callable, Sequence
from math import exp, inf
from operator import mul

from autotopk.forest import DEPTH, MOST_TRAITS, UNIT, Forest
from autotopk.nearby import Said, native, said_of

TimeUs = Callable[[Sequence[float], float, Said, str, Sequence[float], Sequence[float]], float | None]
"""Of the sizes of a problem, without which no tree is asked; what the strategy is off by around, what is said there;
the name of a configuration, its knobs and its terms."""


class Curve:
    """The times of a strategy's configurations."""

    def __init__(self, numbers: Sequence[float], forest: Forest | None) -> None:
        """Set up, from coefficients and then as many of the largest terms, and trees if there are any.

        Of terms that seemed to cost nothing nothing is said beyond the largest.
        """
        half = len(numbers) // 2
        self.coefficients = tuple(numbers[:half])
        self.limits = tuple(inf if cost else most for cost, most in zip(self.coefficients, numbers[half:], strict=True))
        self.forest = forest
        slowly = native is None or half > MOST_TRAITS
        self.time_us: TimeUs = self.slow_time_us if slowly else self._native_time_us()
        """The predicted time; None where the terms are others, or far larger ones."""

    def _native_time_us(self) -> TimeUs:
        forest, of_terms = self.forest, (array("d", one).tobytes() for one in (self.coefficients, self.limits))
        trees = (0, UNIT, b"", b"", b"")
        if forest is not None:
            trees = forest.traits, UNIT, forest.thresholds.tobytes(), forest.nodes, forest.leaves.tobytes()
        found: TimeUs = native.curve(*of_terms, DEPTH, *trees)
        return found

    def slow_time_us(
        self,
        sizes: Sequence[float],
        off: float,
        around: Said,
        name: str,
        knobs: Sequence[float],
        terms: Sequence[float],
    ) -> float | None:
        """The same in Python."""
        if len(terms) != len(self.limits) or any(map(float.__gt__, map(float, terms), self.limits)):
            return None
        total: float = sum(map(mul, self.coefficients, terms))
        if not total > 0.0:
            return None
        beside = off + said_of(around, name)
        if self.forest is not None and sizes:
            traits = (*sizes, *knobs, *terms)
            if len(traits) != self.forest.traits:
                return None
            beside += self.forest.value(traits)
        return total * exp(beside)
