"""Trees in plain numbers: what is read says what was written, and odd numbers are refused."""

from collections.abc import Sequence

import pytest

from autotopk.forest import BINS, INNER, LEAVES, NO_QUESTION, UNIT, Forest

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


@pytest.mark.parametrize(
    "odd",
    [
        [],
        [0],
        [3, 1, 0.5],
        [1, 1, 0.5],
        [-1, *numbers([NO_QUESTION] * INNER, [0] * LEAVES)[1:]],
        [400, *[0] * 400],
        numbers([NO_QUESTION] * INNER, [0] * (LEAVES - 1)),
        numbers([3 * BINS + 1] * INNER, [0] * LEAVES),
        numbers([-1000] * INNER, [0] * LEAVES),
        [1, BINS, *range(BINS), *[0] * INNER, *[0] * LEAVES],
        numbers([NO_QUESTION] * INNER, [1 << 15, *[0] * (LEAVES - 1)]),
    ],
)
def test_odd_numbers_are_no_trees(odd: list[float]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Forest(odd)
