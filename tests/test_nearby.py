"""What is said around a place, and means of it: in C as in Python."""

import random
from functools import partial
from math import dist, exp

import pytest

from autotopk import nearby
from autotopk.nearby import FARTHEST, JUDGES, REACH, Place, around, native, slow_around, slow_mean

needs_c = pytest.mark.skipif(native is None, reason="the extension was not built")


def drawn(seed: int, count: int = 400) -> list[Place]:
    chance = random.Random(seed)
    place = partial(chance.uniform, 0, 6)
    return sorted((place(), place(), place(), 0.5 * chance.randrange(3), 0.5) for _ in range(count))


def test_what_is_near_is_found_the_nearest_first_and_weighted() -> None:
    places = drawn(2)
    said = [{"number": float(at)} for at in range(len(places))]
    found, met = around(places, said, range(len(places))), 0
    for here in [*places[::3], (-9.0, 0.0, 0.0, 0.0, 0.0), (3.0, 3.0, 3.0, 0.5, 0.0)]:
        away = sorted((dist(here, place) ** 2, at) for at, place in enumerate(places))
        expected = [(square, at) for square, at in away if square < FARTHEST]
        met += len(expected)
        for weighted, judges in (found(here), slow_around(places, said, range(len(places)), here)):
            assert [int(its["number"]) for _, its in weighted] == [at for _, at in expected]
            weights = [exp(-square / REACH**2) for square, _ in expected]
            assert [weight for weight, _ in weighted] == pytest.approx(weights)
            assert list(judges) == [at for _, at in expected[:JUDGES]]
    assert met > 1000


def test_none_is_left_out_at_the_ends_of_what_is_near() -> None:
    places: list[Place] = [(0.25 * at, 3.0, 3.0, 0.5, 0.0) for at in range(64)]
    said = [{"number": float(at)} for at in range(64)]
    found = around(places, said, places)
    for at, here in enumerate(places):
        reached = int(FARTHEST**0.5 / 0.25)
        expected = {other for other in range(64) if abs(other - at) <= reached}
        for weighted, _ in (found(here), slow_around(places, said, places, here)):
            assert {int(its["number"]) for _, its in weighted} == expected


def test_a_mean_is_pulled_towards_nothing() -> None:
    weighted: nearby.Weighted = [(0.5, {"a": 1.0}), (0.25, {"b": 3.0}), (0.25, {"a": 2.0, "b": 1.0})]
    for mean in (slow_mean, nearby.mean):
        assert mean(0.25, weighted, "a") == pytest.approx(1.0)
        assert mean(0.5, weighted, "b") == pytest.approx(1.0)
        assert mean(0.1, weighted, "c") == 0.0


@needs_c
def test_c_refuses_what_it_cannot_read() -> None:
    for count in (1, 2, 6):
        with pytest.raises(ValueError, match="needs 5 numbers"):
            around(drawn(1), [{}] * 400, [0] * 400)((0.0,) * count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no places"):
        native.around(1.0, 1.0, 1, bytes(41), [{}], [0])
    with pytest.raises(ValueError, match="no places"):
        around(drawn(1), [{}] * 399, [0] * 400)
    with pytest.raises(TypeError):
        native.mean(0.1, [1.0], "a")
