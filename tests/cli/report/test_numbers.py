"""What the report says of planted records."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.cli.report import numbers
from autotopk.device import H100, Device
from autotopk.key import TuningKey
from autotopk.prediction import Model, Region
from autotopk.tuning_db.records import Status, Tried
from tests.tuning_db.examples import KEY, winner

WIDE = replace(KEY, cols=4096)


def turn(name: str, ratio: float | None, *, status: Status = "ok", key: TuningKey = KEY, stage: str = "race") -> Tried:
    error = None if status == "ok" else "no room"
    return Tried(H100.fingerprint, key, Candidate(name, "{}"), stage, status, ratio, 0.01, error)  # type: ignore[arg-type]


def test_summary_takes_torch_topk_as_even() -> None:
    kept = winner(candidate=TORCH_TOPK, ratio=1.4)
    found = numbers.summary([winner(ratio=0.25), winner(ratio=0.0625), kept])
    assert (found.count, found.least, found.most, found.kept) == (3, 1.0, 16.0, 1)
    assert math.isclose(found.mean, 64 ** (1 / 3))


def test_shares() -> None:
    kept = winner(candidate=TORCH_TOPK, ratio=1.4)
    found = numbers.shares([winner(ratio=0.5), kept, winner(ratio=0.125)])
    assert [(one.strategy, one.wins) for one in found] == [("masked_argmax", 2), ("torch.topk", 1)]
    assert math.isclose(found[0].speedup, 4)


def test_floor_is_a_launch_and_every_byte_once() -> None:
    key = TuningKey("bfloat16", 1000, 3000, 12, sorted=True)
    bytes_ = 1000 * (3000 * 2 + 12 * (2 + 8))  # 6.12 MB
    assert math.isclose(numbers.floor_us(key, H100) or 0, 1.0 + bytes_ / 3.12e6)
    assert numbers.floor_us(key, Device("cpu", "a CPU")) is None


def test_fates_of_candidates() -> None:
    won = winner(candidate=Candidate("best", "{}"))
    tried = [
        turn("best", 0.9, stage="screen"),
        turn("best", 0.2),  # counts once, by this one
        turn("near", 0.21),
        turn("clear", 0.3, stage="screen"),
        turn("far", 0.5, stage="screen"),
        turn("noisy", None, status="noisy"),
        turn("bad", None, status="wrong"),
        turn("bad", None, status="timeout", key=WIDE),
    ]
    by_name = {one.strategy: one for one in numbers.losses(tried, [won])}
    best = by_name["best"]
    assert (best.tried, best.won, best.close, best.screened) == (1, 1, 0, 0)
    assert (by_name["near"].close, by_name["near"].screened) == (1, 0)
    assert (by_name["clear"].clear, by_name["clear"].screened) == (1, 1)
    assert by_name["far"].far == by_name["noisy"].noisy == 1
    assert by_name["bad"].failed == {"timeout": 1, "wrong": 1}
    assert numbers.failures(tried, 1) == [("bad", "wrong", "no room", 1)]


def test_regret_is_of_the_last_races() -> None:
    other = replace(KEY, rows=1)
    tried = [
        turn("a", 0.1),
        turn("a", 0.22),
        turn("b", 0.2),
        turn("c", 0.05, stage="screen"),
        turn("d", 0.1, status="noisy"),
        turn("a", 0.5, key=other),
    ]
    winners = [winner(candidate=Candidate("a", "{}"), key=key) for key in (KEY, other)]
    found = numbers.regrets(tried, [*winners, winner(candidate=Candidate("never raced", "{}"))])
    assert found is not None
    assert (found.count, found.least) == (2, 0.0)
    assert found.most == pytest.approx(0.1)
    assert numbers.regrets([], winners) is None


def test_bounds_are_told_by_operation_width_and_order() -> None:
    regions = {(3, 6, at, 2, 1): Region(1.01 + at / 100, 9) for at in range(5)}
    regions[2, 5, 1, 1, 0] = Region(1.2, 3)
    narrow, wide = numbers.predicted({"topk": Model(regions=regions), "kth": Model()})
    assert (narrow.elements, narrow.sorted, narrow.bounds.count, narrow.bounds.most) == (
        "floats of 16 bits",
        False,
        1,
        1.2,
    )
    assert narrow.where == "16 to 63 rows, 1,024 to 4,095 columns, k 4 to 15"
    assert (wide.kind, wide.elements, wide.sorted, wide.bounds.count) == ("topk", "floats of 32 bits", True, 5)
    assert wide.bounds.middle == pytest.approx(1.03)
    assert wide.high == wide.bounds.most == pytest.approx(1.05)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ok", "noisy", "wrong", "timeout"])), max_size=40))
def test_every_candidate_has_one_fate(turns: list[tuple[str, Status]]) -> None:
    tried = [
        turn(name, 0.5 + at / 50 if status == "ok" else None, status=status, key=replace(KEY, rows=at % 3 + 1))
        for at, (name, status) in enumerate(turns)
    ]
    found = numbers.losses(tried, [winner(candidate=Candidate("a", "{}"), key=replace(KEY, rows=1))])
    for one in found:
        assert one.tried == one.won + one.close + one.clear + one.far + one.noisy + sum(one.failed.values())
    assert sum(one.tried for one in found) == len({(one.candidate, one.key) for one in tried})


def test_spread() -> None:
    assert numbers.spread([None]) is None
    assert numbers.spread([3.0, None]) == numbers.Spread(1, 3, 3, 3, 3, 3)
    assert numbers.spread([5.0, 1, 2, 4, 3]) == numbers.Spread(5, 1, 2, 3, 4, 5)


def test_grids_set_routing_apart() -> None:
    routed = winner(key=replace(KEY, routing="softmax"))
    found = numbers.grids([routed, winner(), winner(key=replace(KEY, k=2)), winner(key=replace(KEY, sorted=False))])
    assert [*found] == [("float32", "any order"), ("float32", "sorted"), ("float32", "softmax")]
    assert [*found["float32", "sorted"]] == [2, 8]


def test_compared_begins_with_what_lost_most() -> None:
    old = [winner(time_us=2.0), winner(key=WIDE, time_us=2.0)]
    new = [winner(time_us=1.0), winner(key=WIDE, time_us=4.0), winner(key=replace(KEY, rows=1))]
    assert [pair.faster for pair in numbers.compared(old, new)] == [0.5, 2.0]


def test_extremes() -> None:
    ones = [winner(margin=value) for value in (0.1, None, 0.3, 0.2)]
    assert [value for _, value in numbers.top(ones, lambda one: one.margin, 2)] == [0.3, 0.2]
    assert pytest.approx(4.0) == numbers.speedup(ones[0])
