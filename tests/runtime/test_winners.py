"""Winners near a key are found without looking at all of them, and are those that looking at all would find."""

import random
from dataclasses import astuple, replace
from itertools import pairwise

import pytest

from autotopk.key import NEIGHBOUR_RADIUS, TuningKey
from autotopk.problem import DTYPE_BYTES
from autotopk.runtime.winners import Winners
from tests.runtime.winners import CHUNKED, winner


def drawn(draw: random.Random, dtypes: list[str]) -> TuningKey:
    rows, cols = int(2 ** draw.uniform(0, 16)), int(2 ** draw.uniform(0, 24))
    k = min(cols, int(2 ** draw.uniform(0, 12)))
    return TuningKey(draw.choice(dtypes), rows, cols, k, draw.random() < 0.5)


def winners(keys: list[TuningKey]) -> Winners:
    one, known = winner(1, 8, 1, CHUNKED), Winners()
    for key in keys:
        known.add(("a device", *astuple(key)), lambda row: replace(one, key=TuningKey(*row[1:])))
    return known


@pytest.mark.parametrize("count", [1, 60, 400])
@pytest.mark.parametrize("seed", range(10))
def test_near_and_alike(seed: int, count: int) -> None:
    draw = random.Random(seed)
    keys = list({drawn(draw, ["float32", "int64"]): None for _ in range(count)})
    known = winners(keys)
    for asked in [*keys[:20], *(drawn(draw, ["float32", "int64"]) for _ in range(20))]:
        alike = [one for one in keys if one != asked and one.bucket() == asked.bucket()]
        near = [one for one in keys if one.bucket() != asked.bucket() and asked.distance(one) <= NEIGHBOUR_RADIUS]
        for found, expected in ((known.like(asked), alike), (list(known.near(asked)), near)):
            assert {one.key for one in found} == set(expected)
            distances = [asked.distance(one.key) for one in found]
            assert all(one <= next for one, next in pairwise(distances))


def test_a_new_shape_does_not_cost_a_look_at_every_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    known = winners([drawn(draw, list(DTYPE_BYTES)) for _ in range(30_000)])
    looked, distance = [], TuningKey.distance

    def counted(self: TuningKey, other: TuningKey) -> float:
        looked.append(other)
        return distance(self, other)

    monkeypatch.setattr(TuningKey, "distance", counted)
    asked = TuningKey("float32", 64, 4096, 128, True)
    assert list(known.near(asked))
    assert len(looked) < 1500
