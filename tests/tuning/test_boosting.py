"""Trees are grown for what depends on several traits at once, always the same ones, and say what they were grown to."""

import numpy as np
import pytest
from numpy.typing import NDArray

from autotopk.forest import BINS, DEPTH, INNER, LEAVES, MOST_SAID, NO_QUESTION, Forest
from autotopk.tuning import boosting
from autotopk.tuning.boosting import FEWEST, FOR_TREE, LEAST_WEIGHT, MOST, Array, Binned, Bins

COUNT = 2000


def traits(seed: int = 0) -> Array:
    """Of few values, of many, of one, and of words."""
    rng = np.random.default_rng(seed)
    rows, cols = 2.0 ** rng.integers(0, 17, COUNT), np.round(2 ** rng.uniform(4, 24, COUNT))
    return np.stack([rows, cols, np.ones(COUNT), rng.choice([17.0, 4e9], COUNT)], axis=1)


def off(its: Array) -> Array:
    """A half longer where rows and columns are many and the word is one of two: no single trait says so."""
    slow = (its[:, 0] > 100) & (its[:, 1] > 5000) & (its[:, 3] == 17.0)
    return np.where(slow, np.log(1.5), 0.0)


def boosted(its: Array, told: Array, *, some: Bins | None = None, weights: Array | None = None) -> tuple[Forest, Array]:
    """The fewest trees."""
    some = np.arange(len(told)) if some is None else some
    return boosting.boosted(Binned(its), some, told, np.ones(len(told)) if weights is None else weights, 0)


def grown(its: Array) -> tuple[Forest, Array]:
    return boosted(its, off(its))


def said(forest: Forest, its: Array) -> Array:
    return np.array([forest.value(tuple(one)) for one in its])


def test_what_depends_on_several_traits_is_found() -> None:
    forest, left = grown(traits())
    assert np.std(left) < 0.4 * np.std(off(traits()))
    unseen = traits(1)
    assert np.std(off(unseen) - said(forest, unseen)) < 0.4 * np.std(off(unseen))


def test_what_is_left_is_what_trees_do_not_say() -> None:
    its = traits()
    forest, left = grown(its)
    assert said(forest, its) + left == pytest.approx(off(its), abs=1e-9)


def test_some_samples_grow_trees_alone() -> None:
    its, some = traits(), np.flatnonzero(traits()[:, 3] == 17.0)
    forest, left = boosted(its, off(its)[some], some=some)
    assert len(left) == len(some)
    assert said(forest, its[some]) + left == pytest.approx(off(its)[some], abs=1e-9)


def test_weights_count() -> None:
    """Of two halves that contradict each other the heavier one is believed."""
    its = np.repeat([[1.0], [2.0]], COUNT // 2, axis=0)
    told = np.tile([1.0, -1.0], COUNT // 2)
    forest, _ = boosted(its, told, weights=np.tile([9.0, 1.0], COUNT // 2))
    assert said(forest, its[:1])[0] == pytest.approx(0.8, abs=0.02)


def asked(forest: Forest) -> int:
    """Nodes that ask a question."""
    trees = len(forest.leaves) // LEAVES
    codes = forest.numbers[-trees * (INNER + LEAVES) : -trees * LEAVES]
    return sum(code != NO_QUESTION for code in codes)


def test_what_is_off_alike_is_not_asked_about() -> None:
    its = traits()
    forest, _ = boosted(its, np.ones(COUNT))
    assert asked(forest) == 0
    assert asked(grown(its)[0]) > 0.2 * FEWEST * INNER


def test_samples_of_little_weight_are_not_told_from_others() -> None:
    """One that is far off alone, and as many as weigh enough."""
    its = np.array([[1.0]] * (COUNT - 10) + [[2.0]] * 10)
    for far, told in ((1, False), (2, True)):
        some = np.arange(COUNT - 10 + far)
        forest, _ = boosted(its, np.where(some < COUNT - 10, 0.0, 1.0), some=some)
        assert far >= LEAST_WEIGHT or not told
        assert (asked(forest) > 0) == told


def test_the_same_samples_grow_the_same_trees() -> None:
    assert grown(traits())[0].numbers == grown(traits())[0].numbers


def test_thresholds_are_few_and_between_values() -> None:
    its = traits()
    for column, edges in zip(its.T, Binned(its).edges, strict=True):
        assert len(edges) < BINS
        assert [float(f"{one:.5g}") for one in edges] == edges.tolist(), "as they are stored"
        values = np.unique(column)
        if len(values) <= BINS:
            assert np.searchsorted(values, edges).tolist() == list(range(1, len(values)))


def test_nothing_is_said_where_nothing_is_off() -> None:
    its = traits()
    forest, left = boosted(its, np.zeros(COUNT))
    assert said(forest, its[:9]).tolist() == [0.0] * 9
    assert left.tolist() == [0.0] * COUNT
    assert len(forest.leaves) == FEWEST * LEAVES


@pytest.mark.parametrize(
    ("points", "trees"), [(1, FEWEST), (FOR_TREE * (FEWEST + 7), FEWEST + 7), (FOR_TREE * MOST + FOR_TREE, MOST)]
)
def test_more_points_grow_more_trees(points: int, trees: int) -> None:
    its = traits()[:50]
    forest, _ = boosting.boosted(Binned(its), np.arange(50), off(its), np.ones(50), points)
    assert len(forest.leaves) == trees * LEAVES


def questions(bins: Bins, some: Bins, left: Array) -> list[int]:
    """Codes of the nodes below some samples, level by level, each by counting these alone."""
    levels, groups = list[int](), [some]
    for _ in range(DEPTH):
        below = []
        for group in groups:
            gains = {
                BINS * trait + which: gain(left[group], bins[group, trait] <= which)
                for trait in range(bins.shape[1])
                for which in range(BINS)
            }
            best = max(gains, key=lambda code: (round(gains[code], 9), -code))
            levels.append(best if gains[best] > 1e-9 else NO_QUESTION)
            goes_left = bins[group, best // BINS] <= best % BINS if gains[best] > 1e-9 else np.ones(len(group), bool)
            below += [group[goes_left], group[~goes_left]]
        groups = below
    return levels


def gain(left: Array, goes_left: NDArray[np.bool_]) -> float:
    """Of squared errors, where both sides weigh enough."""
    counts = np.array([goes_left.sum(), (~goes_left).sum()])
    if counts.min() < LEAST_WEIGHT:
        return 0.0
    sums = np.array([left[goes_left].sum(), left[~goes_left].sum()])
    return float((sums**2 / (counts + boosting.PULL)).sum() - sums.sum() ** 2 / (counts.sum() + boosting.PULL))


def test_every_node_asks_what_tells_its_own_samples_apart_best() -> None:
    """Sums of those that go right are what those that go left leave of the node above."""
    rng = np.random.default_rng(3)
    bins = rng.integers(0, 6, (400, 1)) * np.ones((1, 2), dtype=np.int64)
    bins[:, 1] = rng.integers(0, 5, 400)
    told = rng.normal(size=400) + 0.5 * bins[:, 0] * (bins[:, 1] > 2)
    codes, leaf = boosting._grown(bins, [0, 1], told, np.ones(400))
    assert codes == questions(bins, np.arange(400), told)
    assert len({*leaf.tolist()}) > 10


def test_what_no_leaf_can_say_is_said_by_several_trees() -> None:
    its = np.repeat([[1.0], [2.0]], COUNT // 2, axis=0)
    told = np.where(its[:, 0] > 1, 90.0, 0.0)
    forest, left = boosted(its, told)
    assert max(forest.leaves) == MOST_SAID
    assert np.abs(left).max() < 0.1
