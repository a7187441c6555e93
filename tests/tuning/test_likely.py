"""What a quick run leaves out, by what is shipped of an H200 and by what was recorded of one."""

from math import exp, fsum, log
from pathlib import Path

import pytest

from autotopk.candidate import TORCH_TOPK
from autotopk.device import H100, cpu_device
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.tuning import likely as likely_module
from autotopk.tuning.candidates import candidates, heuristics, rungs
from autotopk.tuning.dry_run import plan
from autotopk.tuning.fitting import Fit, samples_of
from autotopk.tuning.likely import likely, quick
from autotopk.workloads import Workload, spread
from scripts.predictions import thinned, tuned

SHAPES = [one.problem("cuda") for one in spread(24, 7)]


@pytest.fixture(autouse=True)
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")


def test_about_an_eighth_of_the_candidates_is_left() -> None:
    every = [candidates(one, H100) for one in SHAPES]
    left = [likely(one, H100) for one in SHAPES]
    assert 0.08 < sum(map(len, left)) / sum(map(len, every)) < 0.2
    for all_of_it, some in zip(every, left, strict=True):
        assert {*some} <= {*all_of_it}
        assert len({*some}) == len(some)


def test_the_quickest_come_first() -> None:
    model = Fit(samples_of(*tuned())["topk"], trees=False).model()
    for problem in SHAPES:
        near = model.near(TuningKey.of(problem))
        told = [
            likely_module._time_us(one, problem, H100, model, near)
            for one in quick(candidates(problem, H100), (), problem, H100, model)
        ]
        known = [time for time in told if time is not None]
        assert known == sorted(known)
        assert told[: len(known)] == known


def test_rungs_and_rules_are_left_unless_they_are_hopeless() -> None:
    problem = Problem.contiguous(64, 16384, 500)
    sure, left = {*rungs(problem, H100), *heuristics(problem, H100)}, {*likely(problem, H100)}
    assert {one.strategy for one in sure & left} >= {"block_radix", "cluster_lists"}
    assert {one for one in candidates(problem, H100) if one.strategy == "block_radix"} > {
        one for one in left if one.strategy == "block_radix"
    }, "of points of its shortlist"
    assert {one for one in sure if one.strategy == "wide_radix"} > {one for one in left if one.strategy == "wide_radix"}
    long_row = Problem.contiguous(1, 100_000_000, 32)
    assert {one.strategy for one in candidates(long_row, H100)} > {"block_radix", "wide_radix"}
    assert not {one.strategy for one in likely(long_row, H100)} & {"block_radix", "cluster_radix"}


def test_where_nothing_is_shipped_all_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu = Problem.contiguous(64, 32768, 2048)
    assert likely(on_cpu, cpu_device()) == candidates(on_cpu, cpu_device())
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "0")
    for one in SHAPES:
        assert likely(one, H100) == candidates(one, H100)


def test_where_no_bound_is_known_all_are_measured() -> None:
    problem = Problem.contiguous(1, 1 << 34, 1 << 33, "int8")
    assert likely(problem, H100) == candidates(problem, H100)


def test_a_dry_run_counts_what_a_quick_run_measures(tmp_path: Path) -> None:
    workload = Workload(64, 32768, 2048)
    planned = plan([workload], H100, tmp_path / "none.sqlite")
    assert planned.workloads[0].candidates == len(likely(workload.problem("cuda"), H100))


def test_on_record_the_best_is_left() -> None:
    """Every fifth point, without what was measured there."""
    times, device = tuned()
    times = thinned(times, 5)
    fit = Fit(samples_of(times, device)["topk"])
    lost = []
    for fold in range(8):
        held = fit.keys[fold::8]
        model = fit.model(frozenset(held))
        for key in held:
            problem, measured = Workload.of(key).problem("cuda"), times[key]
            ours = [one for one in measured if one != TORCH_TOPK]
            left = quick(ours, rungs(problem, device), problem, device, model)
            if left:
                lost.append(min(measured[one] for one in left) / min(measured[one] for one in ours))
    assert len(lost) > 300
    assert exp(fsum(map(log, lost)) / len(lost)) < 1.002
    assert sum(one > 1.02 for one in lost) <= 0.02 * len(lost)
