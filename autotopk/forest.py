"""Boosted trees as plain numbers, and their evaluation: `tuning.boosting` grows them."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain, islice
from math import inf

DEPTH = 5
"""Questions that every tree asks."""

INNER, LEAVES = (1 << DEPTH) - 1, 1 << DEPTH
"""Nodes of a tree that ask, each before the two below it, level by level; and those that answer."""

BINS = 32
"""Of a trait, at most: one more than the thresholds that nodes ask about."""

NO_QUESTION = -1
"""Code of a node that always goes left; of others BINS times the trait, and which of its thresholds."""

MOST_TRAITS = 255

UNIT, MOST_SAID = 1e-4, (1 << 15) - 1
"""Of the numbers that leaves are stored as, and the largest of these."""


class Forest:
    """The sum of what trees say of a candidate's traits, which are numbers, in one order."""

    def __init__(self, numbers: Sequence[float]) -> None:
        """Set up, from how many traits there are; of each how many thresholds, and these; codes; leaves.

        Of all nodes of all trees `nodes` are the traits they ask, each with the last bin that goes left; then `leaves`,
        in units. Raises ValueError where these are no trees.
        """
        self.numbers = tuple(numbers)
        left = iter(self.numbers)
        try:
            self.traits = int(next(left))
            self.edges = [list(islice(left, int(next(left)))) for _ in range(self.traits)]
            rest = list(left)
            trees, odd = divmod(len(rest), INNER + LEAVES)
            asked = [*(bytes((trait, bin)) for trait in range(self.traits) for bin in range(BINS)), bytes((0, BINS))]
            self.nodes = b"".join(map(asked.__getitem__, map(int, rest[: trees * INNER])))  # NO_QUESTION's is the last
            self.leaves = array("h", map(int, rest[trees * INNER :]))
        except (IndexError, StopIteration) as error:
            raise ValueError("they end too soon") from error
        except OverflowError as error:
            raise ValueError("leaves say what no time is off by") from error
        if odd or not trees or self.traits > MOST_TRAITS or max(map(len, self.edges)) >= BINS:
            raise ValueError(f"{len(rest)} numbers are no trees of {self.traits} traits")

    @property
    def thresholds(self) -> "array[float]":
        """Of each trait BINS - 1, infinite where there are fewer."""
        return array("d", chain.from_iterable([*its, *[inf] * (BINS - 1 - len(its))] for its in self.edges))

    def value(self, traits: Sequence[float]) -> float:
        """The sum for as many traits as there are."""
        total, nodes, leaves = 0, self.nodes, self.leaves
        bins = list(map(bisect_left, self.edges, traits))
        for tree in range(len(leaves) // LEAVES):
            first, node = tree * INNER, 0
            for _ in range(DEPTH):
                at = 2 * (first + node)
                node = 2 * node + 1 + (bins[nodes[at]] > nodes[at + 1])
            total += leaves[tree * LEAVES + node - INNER]
        return UNIT * total
