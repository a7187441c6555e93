"""Trees grown one after another, each from what those before leave: gradient boosting of squared errors.

By histograms of traits in bins, as [LightGBM](https://papers.nips.cc/paper/6907) does it, and half of the traits for
each tree. The same evidence grows the same trees.
"""

import random
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from autotopk.forest import BINS, DEPTH, LEAVES, NO_QUESTION, UNIT, Forest

TREES, RATE = 100, 0.15
"""How many, and how much of what its leaf means is off by a tree says. Three times as many are no better."""

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


def boosted(binned: Binned, some: NDArray[np.intp], off: Array, weights: Array) -> tuple[Forest, Array]:
    """Trees for what some of the samples are off by, and what they leave of that.

    Args:
        binned: of all samples.
        some: numbers of those that trees are grown from.
        off: logarithms, one for each of these.
        weights: of these, positive.
    """
    bins, left, weights = binned.bins[some], off.copy(), weights / weights.mean()
    codes, leaves = [], []
    for traits in _halves(bins.shape[1]):
        tree_codes, leaf = _grown(bins, traits, left, weights)
        sums, total = (np.bincount(leaf, by, LEAVES) for by in (weights * left, weights))
        said = np.round(RATE * sums / (total + PULL) / UNIT)
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
    by_sum, by_weight = np.repeat(weights * left, count), np.repeat(weights, count)
    for level in range(DEPTH):
        nodes = 1 << level
        at = (leaf[:, None] * (count * BINS) + places).ravel()
        below, weight = (
            np.bincount(at, by, nodes * count * BINS).reshape(nodes, count, BINS).cumsum(axis=2)
            for by in (by_sum, by_weight)
        )
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


def _halves(traits: int) -> Iterator[list[int]]:
    """Of each tree those that it may ask about."""
    chance = random.Random(0)
    for _ in range(TREES):
        yield sorted(chance.sample(range(traits), -(-traits // 2)))


def _edges(column: Array) -> Array:
    """Thresholds: between all values where these are few, else some of them, in as many digits as are stored."""
    values = np.unique(column)
    if len(values) > BINS:
        between = np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1], method="nearest")
    else:
        between = (values[1:] + values[:-1]) / 2
    return np.unique([float(f"{one:.5g}") for one in between])
