"""The tuner with real processes on the CPU: what it measures, keeps, publishes, and survives."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from autotopk.tuning.events import CandidateMeasured, Event, TuneReport, TuneStarted, WorkloadFinished
from autotopk.tuning.tuner import tune
from autotopk.tuning_db import artifact, leases
from autotopk.tuning_db.leases import Leases
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload
from tests.tuning.scenario import KILLS, TOGETHER, WORKLOADS

ROOT = Path(__file__).parents[2]
Tune = Callable[..., TuneReport]
Runs = list[tuple[int, list[str]]]


@pytest.fixture
def run(tmp_path: Path) -> Tune:
    """`tune` on the CPU with databases of its own."""

    def run(workloads: list[Workload], **options: Any) -> TuneReport:
        paths = {"store_path": tmp_path / "tuning.sqlite", "winners_path": tmp_path / "winners.sqlite"}
        return tune(workloads, device=torch.device("cpu"), **(paths | options))

    return run


def play(scenario: str, folder: Path) -> Runs:
    script = Path(__file__).with_name("scenario.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command: list[str | Path] = [sys.executable, script, scenario, folder]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    runs: Runs = json.loads(process.stdout)
    return runs


def stored(folder: Path) -> set[str]:
    with Store.open(folder / "tuning.sqlite", read_only=True) as store:
        return {one.uuid for one in store.measurements()}


def test_every_way_to_end_is_recorded_and_the_right_one_wins(
    run: Tune, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotopk.tuning.log.AGREE", 9.0)  # other tests run beside this one, and sleeps vary
    workload = Workload(4, 64, 5)
    events: list[Event] = []
    options: dict[str, Any] = {
        "strategies": [planted],
        "preload": ["tests.tuning.planted", "tests.tuning.slow_torch"],
        "timeout_s": 6,
        "budget_s": 120,
    }
    report = run([workload], on_event=events.append, **options)
    with Store.open(report.store_path) as store:
        statuses = {str(one.candidate.knobs.get("way", "topk")): one.status for one in store.measurements()}
    assert statuses.pop("topk") == "ok"
    assert statuses == {
        "right": "ok",
        "slow": "ok",
        "wrong_on_ties": "wrong",
        "wrong_on_denormals": "wrong",
        "crash": "crashed",
        "leave": "crashed",
        "fail": "crashed",
        "hang": "timeout",
        "exhaust": "out_of_memory",
        "exhaust_host": "out_of_memory",
        "refuse": "unsupported",
        "unbuildable": "build_failed",
    }
    (result,) = report.results
    assert (report.outcome, result.outcome) == ("finished", "tuned")
    assert result.winner is not None
    assert result.winner.candidate.config == '{"way":"right"}'
    assert artifact.read(report.winners_path) == (result.winner,)
    assert sum(report.counts().values()) == result.candidates == len(statuses) + 1
    assert isinstance(events[0], TuneStarted)
    assert isinstance(events[-1], WorkloadFinished)
    assert events[-1].result == result

    events.clear()
    again = run([workload], on_event=events.append, **options)
    assert again.results[0].outcome == "confirmed"
    assert again.results[0].winner is not None
    assert again.results[0].winner.candidate == result.winner.candidate
    events.clear()
    once_more = run([workload], on_event=events.append, **options)
    assert once_more.results[0].outcome == "known"
    assert once_more.results[0].winner == again.results[0].winner
    assert not any(isinstance(event, CandidateMeasured) for event in events)


def test_what_was_tuned_is_served_and_predicts_what_is_near(tmp_path: Path) -> None:
    import autotopk

    folder = Path(os.environ["AUTOTOPK_CACHE_DIR"])
    report = tune([Workload(4, cols, 5) for cols in (64, 128, 256)], device=torch.device("cpu"))
    assert report.store_path == folder / "tuning.sqlite"
    assert report.winners_path.parent == folder
    assert autotopk.explain(torch.randn(4, 64), 5).choice.step == "exact"
    predicted = autotopk.explain(torch.randn(4, 200), 5).choice.prediction
    assert predicted is not None
    assert 0.1 < predicted.time_us < 1e5
    assert predicted.region.points == 3
    assert predicted.region.bound >= 1
    assert artifact.contents(report.winners_path).fitted


def test_a_spent_budget_skips_the_rest_and_publishes(run: Tune) -> None:
    report = run(WORKLOADS, budget_s=0)
    assert report.outcome == "budget"
    assert {result.outcome for result in report.results} == {"skipped"}
    assert [result.workload for result in report.results] == WORKLOADS
    assert artifact.read(report.winners_path) == ()


def test_a_workload_that_torch_topk_cannot_do_fails_alone(run: Tune) -> None:
    report = run([Workload(1, 10**14, 5), Workload(4, 64, 5)], strategies=["torch_fallback"])
    assert [result.outcome for result in report.results] == ["failed", "tuned"]
    assert "out_of_memory" in (report.results[0].error or "")


def test_a_repeated_workload_is_one(run: Tune) -> None:
    assert len(run([Workload(4, 64, 5)] * 3, budget_s=0).results) == 1


def test_ctrl_c_keeps_and_publishes_what_is_finished(tmp_path: Path) -> None:
    ((code, lines),) = play("interrupt", tmp_path)
    assert code == 0
    assert lines[-1] == "interrupted"
    assert stored(tmp_path) >= set(lines[:-1])
    winners = artifact.read(tmp_path / "winners.sqlite")
    assert 0 < len(winners) < len(WORKLOADS)


@pytest.mark.parametrize("step", ["claim", "complete"])
@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_within_a_step_of_sharing_leaves_nothing_held(
    run: Tune, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    take = getattr(Leases, step)

    def interrupted(*arguments: Any) -> None:
        if after:
            take(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Leases, step, interrupted)
    report = run([Workload(4, 64, 5), Workload(4, 128, 5)], strategies=["torch_fallback"], campaign="all")
    assert report.outcome == "interrupted"
    with Store.open(report.store_path) as store:
        ((progress,), held) = leases.status(store)
    assert held == []
    assert (progress.claimed, progress.done) == (0, 1 if (step, after) == ("complete", True) else 0)


def test_two_tuners_share_a_database(tmp_path: Path) -> None:
    runs = play("together", tmp_path)
    assert [(code, lines[-1]) for code, lines in runs] == [(0, "finished")] * 2
    assert stored(tmp_path) == {line for _, lines in runs for line in lines[:-1]}
    winners = artifact.read(tmp_path / "winners.sqlite")
    assert {winner.key for winner in winners} == {workload.key for workload in TOGETHER}


def test_ten_kills_lose_nothing_that_was_finished(tmp_path: Path) -> None:
    *killed, (code, lines) = play("kill", tmp_path)
    assert len(killed) == KILLS
    assert sum(code == -9 for code, _ in killed) >= KILLS / 2, "kills came while it worked"
    assert (code, lines[-1]) == (0, "finished")
    told = [line for _, run in [*killed, (code, lines)] for line in run if len(line) == 32]
    assert len(told) == len(set(told))
    assert stored(tmp_path) >= set(told)
    with Store.open(tmp_path / "tuning.sqlite") as store:
        screened = [(one.key, one.candidate) for one in store.measurements(stage="screen")]
    assert len(screened) == len(set(screened)), "nothing finished was measured again"
    winners = artifact.read(tmp_path / "winners.sqlite")
    assert {winner.key for winner in winners} == {workload.key for workload in WORKLOADS}
