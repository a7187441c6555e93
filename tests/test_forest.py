"""Trees in plain numbers: what is read says what was written, in C as in Python, and odd numbers are refused."""

import random
from array import array
from collections.abc import Sequence

import pytest

from autotopk import forest as module
from autotopk import nearby
from autotopk.forest import BINS, INNER, LEAVES, NO_QUESTION, UNIT, Forest
from autotopk.prediction import FARTHEST

EDGES: tuple[list[float], ...] = ([0.5], [], [10.0, 20.0, 30.0])
"""Thresholds of three traits."""


def numbers(codes: Sequence[int], leaves: Sequence[int]) -> list[float]:
    return [len(EDGES), *(number for edges in EDGES for number in (len(edges), *edges)), *codes, *leaves]


def tree(root: int, left: int, right: int, left_leaf: int, right_leaf: int) -> list[float]:
    """Of a question, two below it, and leaves that tell these four ways apart by tens."""
    codes = [root, left, right, *[NO_QUESTION] * (INNER - 3)]
    leaves = [0] * LEAVES
    for way, leaf in enumerate((left_leaf, left_leaf + 10, right_leaf, right_leaf + 10)):
        leaves[way * LEAVES // 4] = leaf
    return numbers(codes, leaves)


def drawn(seed: int, trees: int = 7) -> Forest:
    chance = random.Random(seed)
    asked = [NO_QUESTION, 0, *(2 * BINS + which for which in range(3))]
    codes = [chance.choice(asked) for _ in range(trees * INNER)]
    return Forest(numbers(codes, [chance.randint(-500, 500) for _ in range(trees * LEAVES)]))


def test_a_threshold_goes_left_and_what_is_above_right() -> None:
    its = Forest(tree(2 * BINS + 1, 0, 2 * BINS + 2, 100, 200))
    expected = {
        (0.5, 7.0, 20.0): 100,
        (0.6, 7.0, 20.0): 110,
        (0.6, 7.0, 20.1): 200,
        (0.6, 7.0, 30.0): 200,
        (0.6, 7.0, 30.1): 210,
    }
    for traits, leaf in expected.items():
        assert its.value(traits) == pytest.approx(UNIT * leaf)
        assert its.slow_value(traits) == pytest.approx(UNIT * leaf)


def test_c_says_what_python_says() -> None:
    if module.native is None:
        pytest.skip("the extension was not built")
    chance = random.Random(1)
    for seed in range(5):
        its = drawn(seed)
        for _ in range(50):
            traits = tuple(chance.choice([0.0, 0.5, 1, 10.0, 15.5, 20.0, 30.0, 1e12, True]) for _ in EDGES)
            assert its.value(traits) == its.slow_value(traits)
            assert isinstance(its.value(traits), float)


def test_without_the_extension_python_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "native", None)
    its = drawn(0)
    assert its.value((1.0, 2.0, 15.0)) == its.slow_value((1.0, 2.0, 15.0))


@pytest.mark.parametrize(
    "odd",
    [
        [],
        [0],
        [3, 1, 0.5],
        [-1, *numbers([NO_QUESTION] * INNER, [0] * LEAVES)[1:]],
        [400, *[0] * 400],
        numbers([NO_QUESTION] * INNER, [0] * (LEAVES - 1)),
        numbers([3 * BINS + 1] * INNER, [0] * LEAVES),
        numbers([-1000] * INNER, [0] * LEAVES),
        [1, BINS, *range(BINS), *[0] * INNER, *[0] * LEAVES],
    ],
)
def test_odd_numbers_are_no_trees(odd: list[float]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Forest(odd)


@pytest.mark.skipif(module.native is None, reason="the extension was not built")
def test_c_refuses_what_it_cannot_read() -> None:
    value = drawn(0).value
    for traits in ((1.0, 2.0), (1.0, 2.0, 3.0, 4.0), [1.0, 2.0, 3.0], None):
        with pytest.raises(ValueError, match="needs a tuple of 3 numbers"):
            value(traits)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        value((1.0, "2", 3.0))  # type: ignore[arg-type]
    good = bytes(INNER), bytes(8 * INNER), bytes(8 * LEAVES)
    assert module.native.forest(5, 1, *good)((2.0,)) == 0.0
    for depth, traits_, asked, thresholds, leaves in (
        (0, 1, *good),
        (16, 1, *good),
        (5, 0, *good),
        (5, 256, *good),
        (5, 1, b"\1" * INNER, *good[1:]),
        (5, 1, good[0][1:], *good[1:]),
        (5, 1, good[0], good[1][1:], good[2]),
        (5, 1, *good[:2], good[2][1:]),
        (4, 1, *good),
    ):
        with pytest.raises(ValueError, match="no trees"):
            module.native.forest(depth, traits_, asked, thresholds, leaves)


@pytest.mark.skipif(module.native is None, reason="the extension was not built")
def test_c_finds_the_places_and_means_that_python_finds() -> None:
    chance, native = random.Random(2), module.native
    drawn_places = [tuple(chance.uniform(0, 6) for _ in range(5)) for _ in range(400)]
    places = sorted((a, b, c, d, e) for a, b, c, d, e in drawn_places)
    near = native.around(FARTHEST, array("d", [one for place in places for one in place]).tobytes())
    for here in places[::20]:
        expected = nearby.slow_around(FARTHEST, places, here)
        found = near(here)
        assert len(expected) > 1
        assert [at for _, at in found] == [at for _, at in expected]
        assert [square for square, _ in found] == pytest.approx([square for square, _ in expected])
    with pytest.raises(ValueError, match="no places"):
        native.around(1.0, bytes(41))
    weighted = [(chance.random(), {name: chance.random() for name in chance.sample("abcd", 2)}) for _ in range(30)]
    for name in "abcde":
        assert native.mean(0.1, weighted, name) == pytest.approx(nearby.slow_mean(0.1, weighted, name))
    with pytest.raises(TypeError):
        native.mean(0.1, [1.0], "a")
