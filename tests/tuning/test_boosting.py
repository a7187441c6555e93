"""Trees are grown for what depends on several traits at once, always the same ones, and say what they were grown to."""

import numpy as np
import pytest

from autotopk.forest import BINS, INNER, LEAVES, NO_QUESTION, Forest
from autotopk.tuning.boosting import LEAST_WEIGHT, TREES, Array, Binned, boosted

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


def grown(its: Array, weights: Array | None = None) -> tuple[Forest, Array]:
    return boosted(Binned(its), np.arange(COUNT), off(its), np.ones(COUNT) if weights is None else weights)


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
    forest, left = boosted(Binned(its), some, off(its)[some], np.ones(len(some)))
    assert len(left) == len(some)
    assert said(forest, its[some]) + left == pytest.approx(off(its)[some], abs=1e-9)


def test_weights_count() -> None:
    """Of two halves that contradict each other the heavier one is believed."""
    its = np.repeat([[1.0], [2.0]], COUNT // 2, axis=0)
    told = np.tile([1.0, -1.0], COUNT // 2)
    forest, _ = boosted(Binned(its), np.arange(COUNT), told, np.tile([9.0, 1.0], COUNT // 2))
    assert said(forest, its[:1])[0] == pytest.approx(0.8, abs=0.02)


def asked(forest: Forest) -> int:
    """Nodes that ask a question."""
    codes = forest.numbers[-TREES * (INNER + LEAVES) : -TREES * LEAVES]
    return sum(code != NO_QUESTION for code in codes)


def test_what_is_off_alike_is_not_asked_about() -> None:
    its = traits()
    forest, _ = boosted(Binned(its), np.arange(COUNT), np.ones(COUNT), np.ones(COUNT))
    assert asked(forest) == 0
    assert asked(grown(its)[0]) > 0.2 * TREES * INNER


def test_samples_of_little_weight_are_not_told_from_others() -> None:
    """One that is far off alone, and as many as weigh enough."""
    its = np.array([[1.0]] * (COUNT - 10) + [[2.0]] * 10)
    for far, told in ((1, False), (2, True)):
        some = np.arange(COUNT - 10 + far)
        forest, _ = boosted(Binned(its), some, np.where(some < COUNT - 10, 0.0, 1.0), np.ones(len(some)))
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
    forest, left = boosted(Binned(its), np.arange(COUNT), np.zeros(COUNT), np.ones(COUNT))
    assert said(forest, its[:9]).tolist() == [0.0] * 9
    assert left.tolist() == [0.0] * COUNT
    assert len(forest.numbers) > TREES
