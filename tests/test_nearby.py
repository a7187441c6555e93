"""What is said around a place: in C as in Python."""

import random
from collections.abc import Iterable, Mapping
from functools import partial
from math import dist, exp

import pytest

from autotopk.nearby import DOUBT, FARTHEST, JUDGES, REACH, Place, Said, around, native, said_of, slow_around

needs_c = pytest.mark.skipif(native is None, reason="the extension was not built")


def drawn(seed: int, count: int = 400) -> list[Place]:
    chance = random.Random(seed)
    place = partial(chance.uniform, 0, 6)
    return sorted((place(), place(), place(), 0.5 * chance.randrange(3), 0.5) for _ in range(count))


def told(said: Said, names: Iterable[str]) -> dict[str, float]:
    """Of those names, what is something."""
    return {name: found for name in names if (found := said_of(said, name))}


def test_what_is_near_is_found_the_nearest_first_and_weighted() -> None:
    places = drawn(2)
    said = [{str(at): 1.0} for at in range(len(places))]
    found, met = around(places, said, range(len(places))), 0
    for here in [*places[::3], (-9.0, 0.0, 0.0, 0.0, 0.0), (3.0, 3.0, 3.0, 0.5, 0.0)]:
        away = sorted((dist(here, place) ** 2, at) for at, place in enumerate(places))
        expected = [(exp(-square / REACH**2), at) for square, at in away if square < FARTHEST]
        met += len(expected)
        for means, judges in (found(here), slow_around(places, said, range(len(places)), here)):
            its = {str(at): pytest.approx(weight / (weight + DOUBT)) for weight, at in expected}
            assert told(means, map(str, range(len(places) + 1))) == its
            assert list(judges) == [at for _, at in expected[:JUDGES]]
    assert met > 1000


def test_none_is_left_out_at_the_ends_of_what_is_near() -> None:
    places: list[Place] = [(0.25 * at, 3.0, 3.0, 0.5, 0.0) for at in range(64)]
    said = [{str(at): 1.0} for at in range(64)]
    found = around(places, said, places)
    for at, here in enumerate(places):
        reached = int(FARTHEST**0.5 / 0.25)
        expected = {str(other) for other in range(64) if abs(other - at) <= reached}
        for means, _ in (found(here), slow_around(places, said, places, here)):
            assert told(means, map(str, range(65))).keys() == expected


@pytest.mark.parametrize(("least", "most", "count"), [(0, 20, 3000), (-40, 40, 3000), (3, 4, 700), (0, 40, 40)])
def test_places_are_found_however_far_they_lie_apart(least: float, most: float, count: int) -> None:
    """Few are near enough to judge, or more than are kept at first, and some lie beyond all bands."""
    chance = random.Random(count)
    at_a_band = [(float(round(one[0])), float(round(one[1])), *one[2:]) for one in drawn(3)]
    some = [(*(chance.uniform(least, most) for _ in range(3)), 0.5, 0.0) for _ in range(count)]
    places: list[Place] = sorted([*some, *at_a_band])  # type: ignore[list-item]
    said = [{str(at % 50): 0.1 * (at % 7) + 0.05} for at in range(len(places))]
    found = around(places, said, range(len(places)))
    for here in [*places[::29], *((*(chance.uniform(least, most) for _ in range(3)), 0.5, 0.0) for _ in range(100))]:
        means, judges = found(here)  # type: ignore[arg-type]
        expected, slowly = slow_around(places, said, range(len(places)), here)  # type: ignore[arg-type]
        assert list(judges) == list(slowly)
        assert told(means, map(str, range(50))) == pytest.approx(told_slowly(expected))


def told_slowly(said: Mapping[str, float]) -> dict[str, float]:
    return {name: found for name, found in said.items() if found}


def test_a_mean_is_of_those_that_know_the_name_and_pulled_towards_nothing() -> None:
    places: list[Place] = [(at, 3.0, 3.0, 0.5, 0.0) for at in (1.0, 2.0, 2.0, 9.0)]
    said: list[Mapping[str, float]] = [{"a": 1.0}, {"b": 3.0}, {"a": 2.0, "b": 1.0}, {"a": 7.0, "c": 1.0}]
    away, here = exp(-1 / REACH**2), (2.0, 3.0, 3.0, 0.5, 0.0)
    for means, _ in (around(places, said, places)(here), slow_around(places, said, places, here)):
        assert told(means, "abcd") == {
            "a": pytest.approx((away * 1.0 + 2.0) / (away + 1.0 + DOUBT)),
            "b": pytest.approx((3.0 + 1.0) / (2.0 + DOUBT)),
        }


@needs_c
def test_c_refuses_what_it_cannot_read() -> None:
    for count in (1, 2, 6):
        with pytest.raises(ValueError, match="needs 5 numbers"):
            around(drawn(1), [{}] * 400, [0] * 400)((0.0,) * count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no places"):
        native.around(1.0, 1.0, 0.1, 1, bytes(41), [{}], [0])
    with pytest.raises(ValueError, match="no places"):
        around(drawn(1), [{}] * 399, [0] * 400)
    means, _ = around(drawn(1), [{"a": 1.0}] * 400, [0] * 400)(drawn(1)[0])
    for given in ((), (means,), (means, "a", "b")):
        with pytest.raises(TypeError, match="and a name"):
            native.said_of(*given)
    with pytest.raises(TypeError, match="or what around says"):
        native.said_of(1.0, "a")
    with pytest.raises(TypeError, match="unhashable"):
        native.said_of(means, [])
    assert native.said_of({"a": 2.0}, "a") == 2.0
    for odd in ([1.0], [{"a": "b"}], [{"a": 1.0, "c": None}]):
        with pytest.raises(TypeError):
            native.around(1.0, 1.0, 0.1, 1, bytes(40), odd, [0])
