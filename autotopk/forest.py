"""Boosted trees as plain numbers, and their evaluation: `tuning.boosting` grows them."""

from array import array
from collections.abc import Sequence
from itertools import islice
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

UNIT = 1e-4
"""Of the numbers that leaves are stored as."""


class Forest:
    """The sum of what trees say of a candidate's traits, which are numbers, in one order."""

    def __init__(self, numbers: Sequence[float]) -> None:
        """Set up, from how many traits there are; of each how many thresholds, and these; codes; leaves.

        Of the nodes of all trees `asked` are the traits, and `thresholds` what goes right is above; then `leaves`.
        Raises ValueError where these are no trees.
        """
        self.numbers = tuple(numbers)
        left = iter(self.numbers)
        try:
            self.traits = int(next(left))
            edges = [list(islice(left, int(next(left)))) for _ in range(self.traits)]
            nodes = list(left)
            trees, rest = divmod(len(nodes), INNER + LEAVES)
            codes = [*map(int, nodes[: trees * INNER])]
            traits = [trait for trait in range(self.traits) for _ in range(BINS)]  # by code, as thresholds are
            thresholds = [threshold for its in edges for threshold in (*its, *[inf] * (BINS - len(its)))]
            self.asked = bytes(map([*traits, 0].__getitem__, codes))  # the last is what NO_QUESTION takes
            self.thresholds = array("d", map([*thresholds, inf].__getitem__, codes))
        except (IndexError, StopIteration) as error:
            raise ValueError("they end too soon") from error
        if rest or not trees or self.traits > MOST_TRAITS or max(map(len, edges)) >= BINS:
            raise ValueError(f"{len(nodes)} numbers are no trees of {self.traits} traits")
        self.leaves = array("d", map(UNIT.__mul__, nodes[trees * INNER :]))

    def value(self, traits: Sequence[float]) -> float:
        """The sum for as many traits as there are."""
        total, asked, thresholds, leaves = 0.0, self.asked, self.thresholds, self.leaves
        for tree in range(len(leaves) // LEAVES):
            first, node = tree * INNER, 0
            for _ in range(DEPTH):
                at = first + node
                node = 2 * node + 1 + (traits[asked[at]] > thresholds[at])
            total += leaves[tree * LEAVES + node - INNER]
        return total
