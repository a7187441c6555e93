"""Trees grown one after another, each from what those before leave: gradient boosting of squared errors.

By histograms of traits in bins, as [LightGBM](https://papers.nips.cc/paper/6907) does it, and half of the traits for
each tree. The same evidence grows the same trees.
"""

import random
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from autotopk.forest import BINS, DEPTH, LEAVES, MOST_SAID, NO_QUESTION, UNIT, Forest

FEWEST, MOST, FOR_TREE = 100, 600, 5
"""Trees, at least and at most; points that are worth one more."""

RATE = 0.15
"""How much of what its leaf means is off by a tree says."""

PULL, LEAST_WEIGHT = 5.0, 2.0
"""Weight of the belief that a leaf is off by nothing, and the least weight of what is on either side of a question; of
a sample it is one in the mean."""

Array = NDArray[np.float64]
Bins = NDArray[np.int64]


class Binned:
    """Traits of samples, (samples, traits), in bins between at most BINS - 1 thresholds each."""

    def __init__(self, traits: Array) -> None:
        self.edges = [_edges(column) for column in traits.T]
        pairs = zip(self.edges, traits.T, strict=True)
        self.bins: Bins = np.stack([np.searchsorted(edges, column) for edges, column in pairs], axis=1)


def boosted(binned: Binned, some: NDArray[np.intp], off: Array, weights: Array, points: int) -> tuple[Forest, Array]:
    """Trees for what some of the samples are off by, and what they leave of that.

    Args:
        binned: of all samples.
        some: numbers of those that trees are grown from.
        off: logarithms, one for each of these.
        weights: of these, positive.
        points: where these were measured.
    """
    bins, left, weights = binned.bins[some], off.copy(), weights / weights.mean()
    codes, leaves = [], []
    for traits in _halves(bins.shape[1], min(MOST, max(FEWEST, points // FOR_TREE))):
        tree_codes, leaf = _grown(bins, traits, left, weights)
        sums, total = (np.bincount(leaf, by, LEAVES) for by in (weights * left, weights))
        said = np.clip(np.round(RATE * sums / (total + PULL) / UNIT), -MOST_SAID, MOST_SAID)
        left -= UNIT * said[leaf]
        codes += tree_codes
        leaves += said.astype(int).tolist()
    edges = [number for its in binned.edges for number in (len(its), *its.tolist())]
    return Forest([bins.shape[1], *edges, *codes, *leaves]), left


def _grown(bins: Bins, traits: Sequence[int], left: Array, weights: Array) -> tuple[list[int], Bins]:
    """The codes of a tree, level by level, and the leaf of every sample."""
    count = len(traits)
    its = bins[:, traits]
    places, leaf, codes = its + BINS * np.arange(count), np.zeros(len(bins), dtype=np.int64), list[int]()
    own = np.stack([weights * left, weights])

    def sums(some: Bins, nodes: int) -> Array:
        """(2, nodes, count, BINS): of what some of the samples are off by, and of their weights, of half of a level."""
        at = ((leaf[some] >> 1)[:, None] * (count * BINS) + places[some]).ravel()
        found = [np.bincount(at, np.repeat(one[some], count), nodes * count * BINS) for one in own]
        return np.array(found, dtype=np.float64).reshape(2, nodes, count, BINS)

    level_sums = sums(np.arange(len(bins)), 1)
    for level in range(DEPTH):
        nodes = 1 << level
        if level:  # who did not go left went right
            lefts = sums(np.flatnonzero(leaf % 2 == 0), nodes // 2)
            level_sums = np.stack([lefts, level_sums - lefts], axis=2).reshape(2, nodes, count, BINS)
        below, weight = level_sums.cumsum(axis=3)
        above, other = below[:, :, -1:] - below, weight[:, :, -1:] - weight
        gain = below**2 / (weight + PULL) + above**2 / (other + PULL)
        gain -= below[:, :, -1:] ** 2 / (weight[:, :, -1:] + PULL)
        gain = np.where((weight >= LEAST_WEIGHT) & (other >= LEAST_WEIGHT), gain, 0.0).reshape(nodes, -1)
        best = gain.argmax(axis=1)
        asks = gain[np.arange(nodes), best] > 0.0
        trait, which = best // BINS, np.where(asks, best % BINS, BINS)
        codes += np.where(asks, BINS * np.array(traits)[trait] + which, NO_QUESTION).tolist()
        leaf = 2 * leaf + (its[np.arange(len(its)), trait[leaf]] > which[leaf])
    return codes, leaf


def _halves(traits: int, trees: int) -> Iterator[list[int]]:
    """Of each tree those that it may ask about."""
    chance = random.Random(0)
    for _ in range(trees):
        yield sorted(chance.sample(range(traits), -(-traits // 2)))


def _edges(column: Array) -> Array:
    """Thresholds: between all values where these are few, else some of them, in as many digits as are stored."""
    values = np.unique(column)
    if len(values) > BINS:
        between = np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1], method="nearest")
    else:
        between = (values[1:] + values[:-1]) / 2
    return np.unique([float(f"{one:.5g}") for one in between])
