"""The time of a configuration: by terms, trees and what is off around; in C as in Python."""

import random
from collections.abc import Sequence
from math import exp
from typing import Any

import pytest

from autotopk import curve as module
from autotopk.curve import Curve
from autotopk.forest import BINS, DEPTH, INNER, LEAVES, NO_QUESTION, UNIT, Forest
from autotopk.nearby import Said, native

needs_c = pytest.mark.skipif(native is None, reason="the extension was not built")

SIZES, KNOBS = (1.0, 30.0), (15.0,)

COSTS, LARGEST = (2.0, 0.0, 0.5), (1e30, 100.0, 7.0)
"""Of three terms: what each costs, and the largest; only one that seems to cost nothing has a limit."""

AROUND: Said = {"radix": 0.3, "radix a": 0.2, "radix b": 1.0}


def trees(seed: int, traits: int = 6) -> Forest:
    chance = random.Random(seed)
    edges = [[0.5, 10.0, 20.0, 30.0]] * traits
    asked = [NO_QUESTION, *(BINS * trait + which for trait in range(traits) for which in range(4))]
    codes = [chance.choice(asked) for _ in range(17 * INNER)]
    leaves = [chance.randint(-500, 500) for _ in range(17 * LEAVES)]
    return Forest([traits, *(number for its in edges for number in (len(its), *its)), *codes, *leaves])


def curve(forest: Forest | None = None) -> Curve:
    return Curve((*COSTS, *LARGEST), forest)


def ways(its: Curve) -> list[module.TimeUs]:
    return [its.slow_time_us, *([its.time_us] if native else [])]


def test_terms_cost_what_was_fitted_and_points_around_say_what_that_is_off_by() -> None:
    its = curve()
    for time_us in ways(its):
        assert time_us(SIZES, 0.0, {}, "radix a", KNOBS, (1.0, 0.0, 3.0)) == pytest.approx(3.5)
        assert time_us(SIZES, 0.7, AROUND, "radix a", KNOBS, (1.0, 0.0, 3.0)) == pytest.approx(3.5 * exp(0.7 + 0.2))
        assert time_us(SIZES, 0.7, AROUND, "radix c", KNOBS, (1.0, 0.0, 3.0)) == pytest.approx(3.5 * exp(0.7))


@pytest.mark.parametrize("terms", [(), (1.0, 0.0), (1.0, 0.0, 3.0, 0.0), (1.0, 100.1, 3.0), (0.0, 1.0, 0.0)])
def test_nothing_is_said_of_other_terms_or_far_larger_ones_or_none(terms: Sequence[float]) -> None:
    for time_us in ways(curve()):
        assert time_us(SIZES, 0.0, {}, "radix a", KNOBS, (1.0, 100.0, 1e9)) is not None
        assert time_us(SIZES, 0.0, {}, "radix a", KNOBS, terms) is None


def test_trees_are_asked_of_sizes_then_knobs_then_terms() -> None:
    forest, terms = trees(1), (1.0, 20.5, 3.0)
    said = forest.value((*SIZES, *KNOBS, *terms))
    assert said
    for time_us in ways(curve(forest)):
        assert time_us(SIZES, 0.1, {}, "radix a", KNOBS, terms) == pytest.approx(3.5 * exp(0.1 + said))
        assert time_us((), 0.1, {}, "radix a", KNOBS, terms) == pytest.approx(3.5 * exp(0.1)), "no sizes, no trees"
        assert time_us(SIZES, 0.1, {}, "radix a", (1.0, 2.0), terms) is None, "of other knobs they know nothing"


@pytest.mark.parametrize("count", [250, 252, 253, 255, 256, 400])
def test_any_number_of_terms(count: int) -> None:
    its = Curve((*[1.0] * count, *[1e30] * count), None)
    for terms, expected in ((1.0,) * count, count), ((1.0,) * 600, None), ((1.0,) * (count - 1), None):
        for time_us in ways(its):
            found = time_us((), 0.0, {}, "a", (), terms)
            assert found == (None if expected is None else pytest.approx(expected))
            assert time_us((1.0,) * 300, 0.0, {}, "a", (), terms) in (found, None)


@needs_c
def test_c_says_what_python_says() -> None:
    chance = random.Random(1)
    drawn = [0.0, 0.5, 1, 10.0, 15.5, 20.0, 30.0, 1e12, True]
    for seed in range(5):
        its = curve(trees(seed))
        for _ in range(100):
            sizes, knobs, terms = (tuple(chance.choice(drawn) for _ in range(count)) for count in (2, 1, 3))
            asked = sizes, chance.random(), AROUND, chance.choice(["radix a", "radix b", "c"]), knobs, terms
            expected = its.slow_time_us(*asked)
            assert its.time_us(*asked) == (None if expected is None else pytest.approx(expected, rel=1e-12))
            assert its.time_us(list(sizes), *asked[1:5], list(terms)) == its.time_us(*asked), "of lists as of tuples"


def test_without_the_extension_python_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "native", None)
    its = curve(trees(0))
    assert its.time_us == its.slow_time_us


@needs_c
def test_c_refuses_what_it_cannot_read() -> None:
    time_us, terms = curve(trees(0)).time_us, (1.0, 0.0, 3.0)
    odd: tuple[Any, ...]
    for odd in (
        (SIZES, 0.0, (), "a", KNOBS, terms),
        (SIZES, 0.0, [1.0], "a", KNOBS, terms),
        (SIZES, 0.0, {"a": "b"}, "a", KNOBS, terms),
        (SIZES, 0.0, {}, [], KNOBS, terms),
        (SIZES, "0", {}, "a", KNOBS, terms),
        (1.0, 0.0, {}, "a", KNOBS, terms),
        (SIZES, 0.0, {}, "a", KNOBS, (1.0, "2", 3.0)),
        (SIZES, 0.0, {}, "a", KNOBS),
    ):
        with pytest.raises(TypeError):
            time_us(*odd)
    numbers, good = bytes(16), (bytes(8 * 3 * (BINS - 1)), bytes(2 * INNER), bytes(2 * LEAVES))
    assert native.curve(numbers, numbers, DEPTH, 3, UNIT, *good)((1.0,), 0.0, {}, "a", (), (0.0, 0.0)) is None
    for costs, limits, depth, traits, thresholds, nodes, leaves in (
        (numbers, numbers, 0, 3, *good),
        (numbers, numbers, 16, 3, *good),
        (numbers, numbers, DEPTH, 256, *good),
        (numbers, numbers, DEPTH, 0, *good),
        (numbers, numbers, DEPTH, 3, bytes(8 * 3 * 256), *good[1:]),
        (numbers, numbers, DEPTH, 3, good[0][8:], *good[1:]),
        (numbers, numbers, DEPTH, 3, good[0], b"\3\0" * INNER, good[2]),
        (numbers, numbers, DEPTH, 3, good[0], good[1][1:], good[2]),
        (numbers, numbers, DEPTH, 3, *good[:2], good[2][1:]),
        (numbers, numbers, DEPTH - 1, 3, *good),
        (numbers, numbers[8:], DEPTH, 3, *good),
        (numbers[1:], numbers[1:], DEPTH, 3, *good),
    ):
        with pytest.raises(ValueError, match="no trees"):
            native.curve(costs, limits, depth, traits, UNIT, thresholds, nodes, leaves)
