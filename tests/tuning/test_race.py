"""Races replayed from samples: made-up ones with a known truth, and a recorded one."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import pytest

from autotopk.tuning.race import Estimate, Race, estimate, separated, survivors, tied

RECORDED = json.loads(Path(__file__).with_name("recorded_race.json").read_text())


def replay(race: Race[str], baseline: Sequence[float], samples: Mapping[str, Sequence[float]]) -> None:
    """Feed rounds of samples until the race is over."""
    while order := race.next_round():
        times: dict[str | None, float] = {name: samples[name][race.rounds] for name in order if name is not None}
        race.record({**times, None: baseline[race.rounds]})


def noisy(level: float, noise: float, seed: int, rounds: int = 50) -> list[float]:
    draw = random.Random(seed)
    return [level * draw.lognormvariate(0, noise) for _ in range(rounds)]


def ranking(race: Race[str]) -> list[str]:
    results = race.results()
    return sorted(results, key=lambda name: estimate(*results[name]).ratio)


def test_a_clear_leader_ends_the_race_at_the_first_chance() -> None:
    race = Race(["fast", "slow"], 7, 41)
    replay(race, noisy(100, 0.01, 1), {"fast": noisy(50, 0.01, 2), "slow": noisy(80, 0.01, 3)})
    assert race.rounds == 7
    assert ranking(race) == ["fast", "slow"]


def test_who_is_beaten_retires_and_the_others_go_on() -> None:
    race = Race(["a", "b", "slow"], 7, 21)
    samples = {"a": noisy(50, 0.08, 2), "b": noisy(51, 0.08, 3), "slow": noisy(99, 0.01, 4)}
    replay(race, noisy(100, 0.01, 1), samples)
    rounds = {name: len(times) for name, (times, _) in race.results().items()}
    assert rounds["slow"] == 7
    assert rounds["a"] == rounds["b"] == 21


def test_a_tie_ends_as_soon_as_it_is_known_to_be_one() -> None:
    race = Race(["a", "b"], 7, 41)
    replay(race, noisy(100, 0.002, 1), {"a": noisy(50, 0.002, 2), "b": noisy(50.3, 0.002, 3)})
    assert race.rounds == 7


def test_noise_that_settles_nothing_is_cut_off() -> None:
    race = Race(["a", "b"], 7, 15)
    replay(race, noisy(100, 0.5, 1), {"a": noisy(50, 0.5, 2), "b": noisy(52, 0.5, 3)})
    assert race.rounds == 15


def test_without_retiring_everyone_runs_every_round() -> None:
    race = Race(["fast", "slow"], 7, 20, retire=False)
    replay(race, noisy(100, 0.01, 1), {"fast": noisy(50, 0.01, 2), "slow": noisy(80, 0.01, 3)})
    assert [len(times) for times, _ in race.results().values()] == [20, 20]


def test_disturbed_rounds_and_drift_do_not_change_the_ranking() -> None:
    """A third of the rounds twice as slow for all, clocks falling all the time, one lucky sample of the loser."""
    weather = [(1 + round_ / 20) * (2 if round_ % 3 == 0 else 1) for round_ in range(50)]
    clean = {"fast": noisy(50, 0.01, 2), "slow": noisy(54, 0.01, 3)}
    samples = {name: [t * w for t, w in zip(times, weather, strict=True)] for name, times in clean.items()}
    samples["slow"][4] = 20
    race = Race(["slow", "fast"], 9, 41)
    replay(race, [100 * w for w in weather], samples)
    assert ranking(race) == ["fast", "slow"]
    assert min(race.results()["slow"][0]) < min(race.results()["fast"][0]), "the minimum would have chosen wrong"


def test_a_recorded_race_ends_earlier_with_the_same_winner() -> None:
    everything = {name: estimate(times, RECORDED["baseline_us"]) for name, times in RECORDED["samples_us"].items()}
    best = min(everything, key=lambda name: everything[name].ratio)
    race = Race(list(everything), 7, len(RECORDED["baseline_us"]))
    replay(race, RECORDED["baseline_us"], RECORDED["samples_us"])
    winner = ranking(race)[0]
    assert winner == best or everything[winner].ratio / everything[best].ratio < 1.02
    samples_taken = sum(len(times) for times, _ in race.results().values())
    assert samples_taken < 0.7 * len(everything) * len(RECORDED["baseline_us"])


def test_rounds_are_shuffled_and_hold_everyone_and_torch() -> None:
    race = Race(list("abcd"), 7, 30, retire=False)
    orders = set()
    while order := race.next_round():
        assert set(order) == {*"abcd", None}
        orders.add(tuple(order))
        race.record(dict.fromkeys(order, 1.0))
    assert len(orders) > 15


def test_who_fails_is_dropped_without_a_result() -> None:
    race = Race(["a", "b"], 7, 9)
    race.next_round()
    race.drop("b")
    race.record({None: 2.0, "a": 1.0})
    assert None in race.next_round()
    assert "b" not in race.next_round()
    assert set(race.results()) == {"a"}
    race.drop("a")
    assert race.next_round() == []


@pytest.mark.parametrize("rounds", [6, 9, 15, 41])
def test_the_interval_holds_the_truth_as_often_as_it_says(rounds: int) -> None:
    draw = random.Random(rounds)
    held = 0
    for _ in range(1000):
        ratios = [draw.lognormvariate(0, 0.1) for _ in range(rounds)]
        found = estimate(ratios, [1.0] * rounds)
        held += abs(found.ratio - 1) <= found.margin * found.ratio
    assert held >= 930


def test_the_estimate_is_the_median_ratio() -> None:
    assert estimate([1, 30, 3], [2, 10, 4]) == Estimate(0.75, 3.0)
    assert estimate([5.0], [10.0]) == Estimate(0.5, 0.0)
    with pytest.raises(ValueError, match="no rounds"):
        estimate([], [])


def test_more_rounds_narrow_the_interval() -> None:
    margins = [median(estimate(noisy(1, 0.1, s, n), [1.0] * n).margin for s in range(50)) for n in (7, 15, 41)]
    assert margins == sorted(margins, reverse=True)


@pytest.mark.parametrize(
    ("fast", "slow", "apart", "alike"),
    [
        (Estimate(1.0, 0.001), Estimate(1.019, 0.001), False, True),
        (Estimate(1.0, 0.001), Estimate(1.021, 0.001), True, False),
        (Estimate(1.0, 0.03), Estimate(1.04, 0.04), False, False),
        (Estimate(1.0, 0.03), Estimate(1.06, 0.04), True, False),
        (Estimate(1.0, 0.03), Estimate(1.0, 0.0), False, False),
    ],
)
def test_apart_and_alike(fast: Estimate, slow: Estimate, apart: bool, alike: bool) -> None:
    assert separated(fast, slow) is apart
    assert tied(fast, slow) is alike
    assert tied(slow, fast) is alike


def test_survivors() -> None:
    screened = {"a": 1.0, "b": 1.9, "c": 2.1, "d": 0.999}
    assert survivors(screened) == ["d", "a", "b"]
    assert survivors(screened, limit=1) == ["d"]
    assert survivors(screened, limit=1, keep=["c", "d", "unknown"]) == ["d", "c"]
    assert survivors({}) == []
