"""How much choices are in doubt, worked out by hand."""

from math import exp, inf, log

import pytest

from autotopk.doubt import (
    LEAST,
    REACH,
    RIVAL,
    SHARE,
    Contest,
    Level,
    bound_of,
    contests,
    doubt_of,
    levels_in,
    numbers_of,
    rivals,
)

LEVELS = [Level(0.01, 1.05), Level(0.02, 1.15), Level(inf, 1.3)]


def test_rivals_are_near_the_choice_whether_before_or_behind_it() -> None:
    found = [("a", "a 1", 10.0), ("b", "b 1", 9.0), ("a", "a 2", 11.4), ("a", "a 3", 11.6), ("c", "c 1", 30.0)]
    assert RIVAL == 1.15
    assert rivals(found) == found[:3]
    assert rivals([]) == []


def test_a_contest_is_as_far_off_as_both_are_and_their_strategies_where_these_differ() -> None:
    squares = {"a": 0.04, "b": 0.05, "a 1": 0.001, "a 2": 0.002, "b 1": 0.003}
    found = [("a", "a 1", 10.0), ("a", "a 2", 11.0), ("b", "b 1", 9.0)]
    alike, other = contests(found, squares.__getitem__)
    assert alike == pytest.approx((log(1.1), 0.003))
    assert other == pytest.approx((0.0, 0.094)), "who is ahead is as near as can be"
    assert contests(found[:1], squares.__getitem__) == []


def test_doubt_is_of_the_worst_rival_and_less_the_farther_that_is_behind() -> None:
    off = (0.0004 + SHARE * 0.02**2) ** 0.5
    assert doubt_of([Contest(0.03, 0.0004)], 0.02) == pytest.approx(off * exp(-0.03 / (REACH * off)))
    one, farther, surer = Contest(0.01, 0.0004), Contest(0.05, 0.0004), Contest(0.01, LEAST)
    assert doubt_of([surer, one, farther], 0.02) == doubt_of([one], 0.02) > doubt_of([farther], 0.02)
    assert doubt_of([one], 0.02) > doubt_of([surer], 0.02)
    assert doubt_of([one], 0.04) > doubt_of([one], 0.02)
    assert doubt_of([], 0.02) == 0.0


@pytest.mark.parametrize(("doubt", "bound"), [(0.0, 1.05), (0.0099, 1.05), (0.01, 1.15), (0.02, 1.3), (9.0, 1.3)])
def test_more_doubt_has_a_wider_bound(doubt: float, bound: float) -> None:
    assert bound_of(doubt, LEVELS) == bound


def test_beyond_all_levels_nothing_is_known() -> None:
    assert bound_of(0.02, LEVELS[:2]) == inf


@pytest.mark.parametrize("levels", [LEVELS, LEVELS[2:], []])
def test_levels_survive_their_numbers(levels: list[Level]) -> None:
    assert levels_in(numbers_of(levels)) == levels


@pytest.mark.parametrize(
    "numbers",
    [[1.05, 0.01], [0.9], [1.05, 0.01, 0.99], [1.05, 0.02, 1.1, 0.01, 1.2], [1.05, 0.01, 1.1, 0.01, 1.2]],
)
def test_other_numbers_are_refused(numbers: list[float]) -> None:
    with pytest.raises(ValueError, match="no bounds by doubt"):
        levels_in(numbers)
