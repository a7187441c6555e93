"""Levels of doubt, by trials that are made up and by those on record."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import inf, log, sqrt

import numpy as np
import pytest

from autotopk import doubt as doubt_module
from autotopk.candidate import Candidate
from autotopk.doubt import OFF, SPREAD, Contest, Level, bound_of, doubt_of
from autotopk.nearby import DOUBT, REACH
from autotopk.prediction import Model, Point, Region, place_of
from autotopk.runtime import predicting
from autotopk.tuning import bounds, doubts
from autotopk.tuning.boosting import Array
from autotopk.tuning.doubts import Trial
from autotopk.tuning.fitting import Fit, Sample, samples_of
from autotopk.workloads import Workload
from tests.tuning.test_predictions import KIND, a_fifth, on_record

KEY = Workload(64, 4096, 16).key


def trial(number: int, regret: float | None, off: float | None = None) -> Trial:
    """The larger the number the more in doubt, all far from each other; the regret is what a race would tell."""
    contest, place = Contest(0.0, (1e-3 * (1 + number)) ** 2), (100.0 * number, 0.0, 0.0, 0.0, 0.0)
    return Trial(place, [contest], None if regret is None else log(regret) + doubts.NOISE, off)


def trials(regrets: Sequence[float | None]) -> list[Trial]:
    return [trial(number, regret) for number, regret in enumerate(regrets)]


def in_doubt(its: Sequence[Trial]) -> Array:
    return np.array([doubt_of(one.contests, OFF) for one in its])


def bounds_of(its: Sequence[Trial], drawn: Sequence[Trial] | None = None) -> list[float]:
    """Where shapes are in doubt as those drawn are, or as the trials themselves."""
    levels = doubts.levels(its, in_doubt(its if drawn is None else drawn))
    return [bound_of(doubt, levels) for doubt in in_doubt(its)]


def test_a_level_is_as_large_as_its_share_allows() -> None:
    """Every hundredth of 1,900 is 1.1, some of the last 1.4: 8 may be beyond 1.05, 8 beyond 1.15, 18 in all."""
    regrets = [1.1 if number % 100 == 50 else 1.0 for number in range(1900)]
    regrets[1800:1820] = [1.4] * 20
    assert (doubts.BOUNDS, doubts.SHARES, doubts.BEYOND) == ((1.05, 1.15), (0.0045, 0.0045), 0.0095)
    found = bounds_of(trials(regrets))
    assert found[:850] == [1.05] * 850, "one more would be the ninth of 1.1"
    assert found[850:1808] == [1.15] * 958
    assert found[1808:] == [pytest.approx(1.4)] * 92
    assert beyond(regrets, found) == 16


def test_the_rest_has_what_leaves_few_beyond() -> None:
    regrets = [1.0] * 1000 + [1.2 + 0.001 * number for number in range(900)]
    found = bounds_of(trials(regrets))
    assert found[:1008] == [1.05] * 1008, "eight of these are beyond"
    assert found[1008:1016] == [1.15] * 8, "and all of these"
    assert found[-1] == pytest.approx(regrets[-3]), "two others may be"
    assert beyond(regrets, found) == 18


def test_what_no_level_used_up_is_left_to_the_rest() -> None:
    """Of those of one doubt 18 of 1,900 may be beyond: the bound is that of the nineteenth."""
    regrets = [1.6 + 0.001 * number for number in range(1900)]
    assert bounds_of(trials(regrets))[16:] == [pytest.approx(regrets[-3])] * 1884
    assert max(bounds_of(trials([1.5] * 1500))) == pytest.approx(1.5)
    assert bounds_of(trials([1.0] * 1500)) == [1.05] * 1500
    alike = [Trial(one.place, [Contest(0.0, 1e-4)], one.regret, None) for one in trials(regrets)]
    assert bounds_of(alike) == [pytest.approx(regrets[-19])] * 1900


def test_points_weigh_as_much_as_the_shapes_in_their_doubt() -> None:
    """Of 60 bad points, in more doubt than others: of shapes that are seldom so few are beyond."""
    its = trials([1.0] * 1800 + [1.4] * 60)
    assert max(bounds_of(its)) == pytest.approx(1.4)
    assert max(bounds_of(its, its[:1800])) == 1.15
    often = [*its[:1800:30], *its[1800:]]
    weights = doubts.weights_of(in_doubt(its), in_doubt(often))
    assert weights.sum() == pytest.approx(1.0)
    assert weights[1800:].sum() == pytest.approx(0.5, abs=0.01)
    assert bounds_of(its, often)[1801:] == [pytest.approx(1.4)] * 59
    for nothing_alike in (np.array([]), np.array([9.0])):
        assert {*doubts.weights_of(in_doubt(its), nothing_alike)} == {1 / 1860}


def beyond(regrets: Sequence[float], bounds_: Sequence[float]) -> int:
    return sum(regret > bound + 1e-9 for regret, bound in zip(regrets, bounds_, strict=True))


def test_points_where_not_all_was_measured_say_nothing() -> None:
    regrets = [1.0] * 1500
    drawn = in_doubt(trials(regrets))
    assert doubts.levels(trials([*regrets, *[None] * 500]), drawn) == doubts.levels(trials(regrets), drawn)
    assert doubts.levels(trials([*[1.0] * (doubts.LEAST_JUDGED - 1), *[None] * 500]), drawn) == []


def test_what_predictions_differ_in_around_is_told_by_the_others_as_run_time_does() -> None:
    keys = [Workload(1 << row, 4096, 16).key for row in range(4)]
    offs = [0.01, None, 0.05, 0.2]
    found = doubts.differing_around([Trial(place_of(key), (), None, off) for key, off in zip(keys, offs, strict=True)])
    for number, key in enumerate(keys):
        others = [
            Point(place_of(other), {}, off=off)
            for at, (other, off) in enumerate(zip(keys, offs, strict=True))
            if at != number
        ]
        assert Model(points=others).differing(key) == pytest.approx(found[number])
    one, two = np.exp(-1 / REACH**2), np.exp(-4 / REACH**2)
    assert found[1] == pytest.approx((one * 0.01 + one * 0.05 + two * 0.2 + DOUBT * OFF) / (2 * one + two + DOUBT))


def test_a_contest_is_told_by_the_residuals_around() -> None:
    """Variances of what weighs one here, and less away, beside what is believed of those that nothing is said of."""
    key, away = KEY, replace(KEY, rows=128)
    near = Point(place_of(key), {"a": 0.1, "a 1": 0.05, "b": -0.1})
    model = Model(points=[near, Point(place_of(away), {"a": 0.1, "a 1": -0.07})])
    found = [("a", "a 1", 10.0), ("a", "a 2", 11.0), ("b", "b 1", 10.0)]
    weight, usual = np.exp(-1 / REACH**2), SPREAD**2

    def square(*residuals: float) -> float:
        weights = np.array([1.0, weight][: len(residuals)])
        total = weights.sum() + DOUBT
        return float((weights @ np.square(residuals) + DOUBT * usual) / total - (weights @ residuals / total) ** 2)

    own, of_both = square(0.05, -0.07), square(0.1, 0.1) + square(-0.1)
    assert model.contests(key, found) == [
        pytest.approx((log(1.1), own + usual)),
        pytest.approx((0.0, own + usual + of_both)),
    ]


def test_a_model_has_levels_and_its_points_what_these_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [Workload(1 << row, 4096, 16).key for row in range(12)]
    told = [
        Trial(place_of(key), [Contest(0.0, 1e-4)], 0.0, None if number == 3 else 0.01 * number)
        for number, key in enumerate(keys)
    ]
    model = Model(points=[Point(place_of(key), {}) for key in [*keys, KEY, replace(KEY, cols=64)]])
    device = on_record()[1]
    bounds.tell_doubts(model, KIND, told, device)
    assert not model.levels, "too few points"
    assert {one.off for one in model.points} == {None}
    monkeypatch.setattr(doubts, "LEAST_JUDGED", 12)
    monkeypatch.setattr(doubts, "drawn_doubts", lambda *_: np.array([0.01]))
    bounds.tell_doubts(model, KIND, told, device)
    assert model.levels == [(inf, 1.05)]
    assert [one.off for one in model.points] == [*[one.off for one in told], told[6].off, None]


def test_predictions_differ_in_what_is_near_the_least() -> None:
    """Of 10, 10.5 and 12 us by predictions, which took 10, 11.55 and 12: the third is not near."""
    model = Model({"block_radix": (1.0, 1e9)})
    said = {"a": (10.0, 10.0), "b": (10.5, 11.55), "c": (12.0, 12.0)}
    samples = [
        Sample(KEY, Candidate("block_radix", name), measured, (), (predicted,))
        for name, (predicted, measured) in said.items()
    ]
    assert doubts.off_of(model, KEY, samples) == pytest.approx(log(1.1))
    nearer = [replace(samples[2], terms=(10.9,)), *samples[:2]]
    assert doubts.off_of(model, KEY, nearer) == pytest.approx(sqrt((log(1.1) ** 2 + log(12 / 10.9) ** 2) / 2))
    wild = [samples[0], replace(samples[1], time_us=100.0)]
    assert doubts.off_of(model, KEY, wild) == doubts.MOST_OFF
    assert doubts.off_of(model, KEY, [samples[0], samples[2]]) is None


@cache
def tried() -> list[Trial]:
    """Of a fifth of the record."""
    times, device = a_fifth()
    samples = samples_of(times, device)[KIND]
    return [doubts.trial_of(*one, device) for one in bounds.left_out(Fit(samples), samples)]


def test_a_strategy_that_raises_is_no_reason_to_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    times, device = a_fifth()
    few = [one for one in samples_of(times, device)[KIND] if one.key.cols < 200]
    model, key = Fit(few, trees=False).model(), max(few, key=lambda one: len(times[one.key])).key
    its = [one for one in few if one.key == key]
    assert doubts.trial_of(model, key, its, device).contests
    monkeypatch.setattr(predicting, "proposals", lambda *_: 1 / 0)
    told = doubts.trial_of(model, key, its, device)
    assert (told.contests, told.regret) == ((), None)
    assert doubts.doubt_at(model, Workload.of(key), device) is None


def test_drawn_shapes_of_a_kind_have_doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those by which run time tells the bound of a choice."""
    monkeypatch.setattr(doubts, "DRAWN", 20)
    times, device = a_fifth()
    few = [one for one in samples_of(times, device)[KIND] if one.key.cols < 200]
    model = Fit(few, trees=False).model()
    assert len(doubts.drawn_doubts(model, KIND, device)) == 0, "outside all regions"
    monkeypatch.setattr(Model, "region", lambda *_: Region(1.2, 9))
    found = doubts.drawn_doubts(model, KIND, device)
    assert 15 <= len(found) <= 20, "few have no prediction"
    assert len({*found}) > 5
    assert len(doubts.drawn_doubts(model, "windows", device)) == 0
    one = Workload(64, 4096, 16)
    doubt, near = doubts.doubt_at(model, one, device), predicting.proposals(one.problem(device.type), device, model)
    assert doubt is not None
    rivals = doubt_module.rivals(each.rival for each in predicting.careful(near, 1.2))
    for level, bound in ((doubt + 1e-9, 1.03), (doubt, 1.3)):
        model.levels = [Level(level, 1.03), Level(inf, 1.3)]
        assert model.bound_among(KEY, rivals, rivals[0][2]) == bound


def test_regrets_are_judged_where_all_that_is_near_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the choice over the best of all that was measured, whether that was proposed or not."""
    times, device = on_record()
    key = max(times, key=lambda key: len(times[key]))
    samples = samples_of(times, device)[KIND]
    model, its = Fit(samples).model(), [one for one in samples if one.key == key]
    problem = Workload.of(key).problem(device.type)
    found = predicting.careful(predicting.proposals(problem, device, model), predicting.ALIKE)
    first, second, *_ = found = [one for one in found if one.strategy.candidate(one.config) in times[key]]
    monkeypatch.setattr(predicting, "proposals", lambda *_: found)
    best, chosen = min(times[key].values()), times[key][first.strategy.candidate(first.config)]
    told = doubts.trial_of(model, key, its, device)
    assert told.regret == pytest.approx(log(chosen / best))
    near = [one for one in found if one.time_us <= doubts.NEAR * min(one.time_us for one in found)]
    assert len(near) > 1
    for one, judged in ((near[-1], False), (found[-1], True)):
        candidate = one.strategy.candidate(one.config)
        told = doubts.trial_of(model, key, [one for one in its if one.candidate != candidate], device)
        assert (told.regret is not None) == judged


def test_bounds_by_doubt_hold_for_points_that_they_are_not_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """One half for the other, in the mean of many halves; and many have a narrow one, who lose less than others."""
    monkeypatch.setattr(doubts, "LEAST_JUDGED", 300)
    around, within, narrow = doubts.differing_around(tried()), list[bool](), list[bool]()
    by_doubt = [(doubt_of(one.contests, float(off)), one) for one, off in zip(tried(), around, strict=True)]
    for seed in range(20):
        halves = np.array_split(np.random.default_rng(seed).permutation(len(by_doubt)), 2)
        for its, others in (halves, halves[::-1]):
            drawn = np.array([by_doubt[number][0] for number in others])
            levels = doubts.levels([tried()[number] for number in its], drawn)
            judged = [by_doubt[number] for number in others if by_doubt[number][1].regret is not None]
            told = [(bound_of(doubt, levels), one.regret) for doubt, one in judged]
            within += [regret <= log(bound) + 1e-9 for bound, regret in told]
            narrow += [bound <= doubts.BOUNDS[0] for bound, _ in told]
    assert np.mean(within) >= 0.98, "of all points 99 of 100 are; of a tenth of them what is beyond is seldom seen"
    assert 0.25 <= np.mean(narrow) <= 0.8
    loses = [(one.regret > log(1.05), doubt) for doubt, one in by_doubt if one.regret is not None]
    doubtful = np.median([doubt for bad, doubt in loses if bad])
    assert np.mean([doubt < doubtful for bad, doubt in loses if not bad]) > 0.75, "doubt tells bad choices from good"
