"""The rules by which measurements become winners, one by one, and what must hold for any measurements."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.device import H100
from autotopk.identity import Identity
from autotopk.tuning_db.records import Measurement, Winner
from autotopk.tuning_db.winners import Evidence, derive
from tests.tuning_db.examples import CPU, KEY, WARPS_4, measurement, measurements


def decide(*measured: Measurement, before: Sequence[Measurement] = (), native: Sequence[Measurement] = ()) -> Winner:
    """The only winner of these measurements of a run, and those of a run before."""
    evidence = [Evidence(one, "aten", run=2) for one in measured] + [Evidence(one, "native", run=2) for one in native]
    (only,) = derive([*evidence, *(Evidence(one, "aten", run=1) for one in before)]).values()
    return only


def won(*measured: Measurement, **others: Any) -> str:
    """Its strategy."""
    return decide(*measured, **others).candidate.strategy


def test_lowest_ratio_wins_and_names_the_runner_up() -> None:
    best = measurement("b", 0.5, config='{"warps":8}', adversarial_slowdown=1.5)
    assert decide(measurement("a", 0.75), best, measurement("c", 0.8)) == Winner(
        device=H100,
        key=KEY,
        candidate=Candidate("b", '{"warps":8}'),
        identity=Identity("source of v1", "v1"),
        time_us=5.0,
        baseline_us=10.0,
        ratio=0.5,
        baseline="aten",
        measured_at="2025-01-01T00:00:00+00:00",
        runner_up=Candidate("a", WARPS_4),
        gap=0.5,
        adversarial_slowdown=1.5,
        margin=0.01,
    )


def test_rank_is_by_ratio_and_not_by_time() -> None:
    slow_clock = measurement("a", 0.5, samples_us=(50.0,), baseline_us=(100.0,))
    assert won(slow_clock, measurement("b", 0.6)) == "a"


def test_equal_ratios_are_decided_by_name() -> None:
    assert won(measurement("b"), measurement("a")) == "a"
    assert (
        decide(measurement(config='{"warps":8}'), measurement(config='{"warps":4}')).candidate.config == '{"warps":4}'
    )


@pytest.mark.parametrize(
    ("slower", "margin", "first"),
    [(1.004, 0.01, "a"), (1.02, 0.1, "a"), (1.021, 0.1, "z"), (1.02, 0.01, "z"), (1.001, None, "z")],
)
def test_names_decide_between_those_that_no_margin_tells_apart(slower: float, margin: float | None, first: str) -> None:
    measured = measurement("z", 0.5, margin=margin), measurement("a", 0.5 * slower, margin=margin)
    assert won(*measured) == first
    assert won(*measured, measurement("n", 0.5 * slower, margin=margin)) == first
    later = measurement("a", 0.5 * slower, margin=margin, day=2)
    assert won(later, before=measured[:1]) == "z", "a winner stays"


def test_alone_there_is_no_runner_up() -> None:
    only = decide(measurement())
    assert only.runner_up is None
    assert only.gap is None


def test_devices_and_keys_are_decided_apart() -> None:
    places = [(device, replace(KEY, rows=rows)) for device in (H100, CPU) for rows in (1, 2)]
    measured = [measurement(device=device, key=key) for device, key in places]
    found = derive(Evidence(one, "aten") for one in measured)
    assert {uuid: (winner.device, winner.key) for uuid, winner in found.items()} == {
        one.uuid: place for one, place in zip(measured, places, strict=True)
    }


def test_older_code_counts_until_the_newer_is_measured() -> None:
    older = measurement("a", 0.4)
    assert won(older, measurement("b", 0.5)) == "a"
    assert won(older, measurement("a", 0.6, day=2, code="v2"), measurement("b", 0.5)) == "b"


def test_failing_newer_code_does_not_bring_the_older_back() -> None:
    assert (
        decide(measurement("a", 0.4), measurement("a", None, day=2, code="v2"), measurement("b")).candidate.strategy
        == "b"
    )


def test_older_code_does_not_count_for_having_been_raced() -> None:
    screened = measurement("a", 0.4, day=2, code="v2", stage="screen")
    assert won(measurement("a", 0.4), screened, measurement("b", 0.5)) == "b"


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout", "out_of_memory", "build_failed", "untimed"])
@pytest.mark.parametrize("day", [1, 2])
def test_later_failure_blocks_the_candidate(status: str, day: int) -> None:
    failure = measurement("a", None, day=day, status=status, stage="screen")
    assert won(measurement("a", 0.4), failure, measurement("b", 0.5)) == "b"


def test_failure_blocks_under_every_baseline() -> None:
    failure = measurement("a", None, day=2)
    assert won(measurement("a", 0.4), measurement("b", 0.5), native=[failure]) == "b"


def test_candidate_measured_well_again_is_back() -> None:
    assert won(measurement("a", None), measurement("a", 0.4, day=2), measurement("b", 0.5)) == "a"


def test_failures_alone_have_no_winner() -> None:
    assert derive([Evidence(measurement("a", None), "aten")]) == {}


def test_only_races_make_winners() -> None:
    screened = [measurement("a", 0.3, day=2, stage="screen"), measurement("b", 0.4, day=2, stage="screen")]
    assert derive(Evidence(one, "aten") for one in screened) == {}
    assert decide(*screened, measurement("b", 0.5)).ratio == 0.5


def test_baselines_are_not_mixed() -> None:
    older, newer = measurement("a", 0.2), measurement("b", 0.9, day=2)
    assert won(older, native=[newer]) == "b"
    assert decide(newer, native=[older]).baseline == "aten"
    assert decide(older, native=[newer]).runner_up is None


def test_last_measurement_of_a_candidate_counts() -> None:
    assert won(measurement("a", 0.7, day=2), measurement("a", 0.3), measurement("b", 0.5)) == "b"


@pytest.mark.parametrize(
    ("ratio", "margin", "stays"),
    [(0.98, None, True), (0.971, None, True), (0.97, None, False), (0.95, 0.03, False), (0.95, 0.04, True)],
)
def test_incumbent_stays_unless_beaten_by_three_percent_or_the_joint_margin(
    ratio: float, margin: float | None, *, stays: bool
) -> None:
    incumbent = measurement("z", 0.5, margin=margin)
    now = decide(measurement("a", ratio / 2, margin=margin, day=2), before=[incumbent])
    assert now.candidate.strategy == ("z" if stays else "a")
    assert now.runner_up == (Candidate("a", WARPS_4) if stays else Candidate("z", WARPS_4))
    assert now.gap == pytest.approx(ratio - 1 if stays else 1 / ratio - 1)


@pytest.mark.parametrize(
    ("others", "stays"), [([0.5], False), ([0.45], True), ([0.45, 0.5], False), ([0.53], True), ([], False)]
)
def test_incumbent_stays_where_processors_of_the_model_differ_by_more_than_it_is_beaten_by(
    others: Sequence[float], *, stays: bool
) -> None:
    """By 5 % on the first; the last race on the second counts, and one nobody knows where does not."""
    evidence = [Evidence(measurement("z"), "aten", "first", 1), Evidence(measurement("z", 0.3), "aten", "", 1)]
    evidence += [Evidence(measurement("z", one, day=2 + at), "aten", "second", 1) for at, one in enumerate(others)]
    evidence += [Evidence(measurement(*one, day=9), "aten", "first", 2) for one in (("z", 0.5), ("a", 0.475))]
    (found,) = derive(evidence).values()
    assert found.candidate.strategy == ("z" if stays else "a")


@pytest.mark.parametrize(
    ("runs", "stays"),
    [
        ([1.08, 0.93], True),
        ([1.08, 0.93, 0.93, 0.93, 0.93], False),
        ([1.20, 0.95], False),
        ([1.05, 0.95, 1.05, 0.95, 1.05, 0.95], True),
        ([1.03, 0.90], False),
        ([None, 0.95], False),
    ],
)
def test_incumbent_stays_unless_beaten_in_the_mean_of_the_runs(runs: Sequence[float | None], *, stays: bool) -> None:
    """How many times as slow the other was in each run; a fifth more than in the last was a mistake, None not raced."""
    evidence = []
    for run, times in enumerate(runs, 1):
        evidence.append(Evidence(measurement("z", 0.5, day=run), "aten", run=run))
        if times is not None:
            evidence.append(Evidence(measurement("a", 0.5 * times, day=run), "aten", run=run))
    (found,) = derive(evidence).values()
    assert found.candidate.strategy == ("z" if stays else "a")


def test_incumbent_is_not_protected_by_what_other_code_took() -> None:
    evidence = [Evidence(measurement("z", 0.5), "aten", run=1), Evidence(measurement("a", 0.9), "aten", run=1)]
    evidence += [Evidence(measurement("z", 0.5, day=2), "aten", run=2)]
    evidence += [Evidence(measurement("a", 0.45, day=2, code="v2"), "aten", run=2)]
    (found,) = derive(evidence).values()
    assert found.candidate.strategy == "a"


def test_incumbent_is_known_by_strategy_and_configuration_not_code() -> None:
    newer = measurement("z", 0.51, day=2, code="v2")
    assert won(newer, measurement("a", 0.5, day=2), before=[measurement("z", 0.9)]) == "z"


def test_incumbent_of_before_is_one_until_a_run_has_another() -> None:
    """What a database does not know of, as what is shipped, of that device and that key alone."""
    ran = [Evidence(measurement("z", 0.51), "aten", run=1), Evidence(measurement("a", 0.5), "aten", run=1)]
    one = ran[0].measurement
    place, held = (one.device.fingerprint, one.key), {one.candidate.strategy: one.candidate for one, *_ in ran}
    for incumbents, expected in (({}, "a"), ({place: held["z"]}, "z"), ({("another", one.key): held["z"]}, "a")):
        (found,) = derive(ran, incumbents).values()
        assert found.candidate.strategy == expected
    beaten = [Evidence(measurement(name, ratio, day=2), "aten", run=2) for name, ratio in (("z", 0.5), ("a", 0.4))]
    again = [Evidence(measurement(name, ratio, day=3), "aten", run=3) for name, ratio in (("z", 0.4), ("a", 0.405))]
    for later, expected in ((beaten, "a"), ([*beaten, *again], "a")):
        (found,) = derive([*ran, *later], {place: held["z"]}).values()
        assert found.candidate.strategy == expected


def test_incumbent_that_failed_protects_nothing() -> None:
    held = measurement("z", 0.5)
    assert won(measurement("z", None, day=2), measurement("a", 0.9, day=2), before=[held]) == "a"
    back = [measurement("z", None, day=2), measurement("a", 0.5, day=2)]
    evidence = [Evidence(held, "aten", run=1), *(Evidence(one, "aten", run=2) for one in back)]
    (found,) = derive([*evidence, Evidence(measurement("z", 0.49, day=3), "aten", run=3)]).values()
    assert found.candidate.strategy == "a"


def test_incumbent_of_another_place_protects_nothing() -> None:
    elsewhere = Evidence(measurement("z", 0.5, device=CPU), "aten", run=1)
    here = [Evidence(measurement(*one, day=2), "aten", run=2) for one in (("z", 0.51), ("a", 0.5))]
    assert {one.device: one.candidate.strategy for one in derive([elsewhere, *here]).values()} == {CPU: "z", H100: "a"}


def torchs(ratio: float = 1.0, **changes: Any) -> Measurement:
    return measurement(TORCH_TOPK.strategy, ratio, config=TORCH_TOPK.config, **changes)


@pytest.mark.parametrize(
    ("ratio", "margin", "wins"), [(0.9, 0.05, True), (0.9, 0.12, False), (0.995, 0.001, True), (1.5, 11.16, False)]
)
def test_who_is_not_faster_than_torch_topk_by_all_of_its_margin_leaves_it_to_torch_topk(
    ratio: float, margin: float, *, wins: bool
) -> None:
    found = decide(torchs(), measurement("a", ratio, margin=margin))
    assert (found.candidate == TORCH_TOPK) != wins
    assert found.runner_up == (TORCH_TOPK if wins else Candidate("a", WARPS_4))
    assert found.gap == pytest.approx(1 / ratio - 1 if wins else ratio - 1)
    assert derive([Evidence(measurement("a", ratio, margin=margin), "aten")]) == {} or wins, "nor alone"


def test_an_able_one_wins_though_a_noisier_one_is_before_it() -> None:
    measured = torchs(), measurement("a", 0.6, margin=0.9), measurement("b", 0.8)
    assert won(*measured) == "b"
    assert decide(*measured).runner_up == Candidate("a", WARPS_4)


@pytest.mark.parametrize("ratio", [0.7, 1.3])
def test_torch_topk_is_as_fast_as_itself(ratio: float) -> None:
    assert won(torchs(ratio), measurement("a", 0.9)) == "a"
    assert decide(torchs(ratio), measurement("a", 1.1)).ratio == 1.0


def test_torch_topk_held_stays_unless_beaten_by_three_percent() -> None:
    assert won(torchs(day=2), measurement("a", 0.975, day=2), before=[torchs()]) == TORCH_TOPK.strategy
    assert won(torchs(day=2), measurement("a", 0.965, day=2), before=[torchs()]) == "a"


@pytest.mark.parametrize("day", [1, 2])
def test_noisy_measurements_change_nothing(day: int) -> None:
    noisy = [measurement("b", 0.1, day=day, status="noisy"), measurement("a", 2.0, day=day, code="v2", status="noisy")]
    measured = [measurement("a", 0.4), measurement("b", 0.5)]
    assert decide(*measured, *noisy) == decide(*measured)
    assert derive(Evidence(one, "aten") for one in noisy) == {}


evidence = st.builds(
    Evidence, measurements(), st.sampled_from(["aten", "native"]), st.sampled_from(["", "1", "2"]), st.integers(1, 3)
)


@settings(max_examples=50, deadline=None)
@given(st.lists(evidence, max_size=12), st.integers())
def test_order_of_the_evidence_does_not_matter(measured: list[Evidence], seed: int) -> None:
    shuffled = Random(seed).sample(measured, len(measured))
    assert derive(shuffled) == derive(measured)


@settings(max_examples=50, deadline=None)
@given(st.lists(evidence, max_size=12), st.permutations([1, 2, 3]))
def test_numbers_of_runs_mean_nothing(measured: list[Evidence], numbers: list[int]) -> None:
    assert derive([one._replace(run=numbers[one.run - 1]) for one in measured]) == derive(measured)


def test_runs_come_one_after_the_other_by_their_last_measurement() -> None:
    """Each winner was within 3 % of the one before, that of the run that ended first."""
    turns = [("z", 0.5, 1, 1), ("y", 0.49, 2, 2), ("a", 0.9, 4, 1), ("b", 0.9, 3, 2)]
    ran = [Evidence(measurement(name, ratio, day=day), "aten", run=run) for name, ratio, day, run in turns]
    (found,) = derive(ran).values()
    assert found.candidate.strategy == "y"


@settings(max_examples=50, deadline=None)
@given(st.lists(evidence, max_size=12))
def test_winner_is_one_that_worked_in_each_place(measured: list[Evidence]) -> None:
    found = derive(measured)
    by_uuid = {one.measurement.uuid: one for one in measured}
    assert all(by_uuid[uuid].measurement.status == "ok" for uuid in found)
    assert all(by_uuid[uuid].baseline == winner.baseline for uuid, winner in found.items())
    assert len({(winner.device, winner.key) for winner in found.values()}) == len(found)
