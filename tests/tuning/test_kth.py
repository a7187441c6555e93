"""The k-th alone is tuned and explained as any workload is, and asked of kernels where k is large."""

from pathlib import Path

import pytest
import torch

import autotopk
from autotopk.candidate import TORCH_TOPK
from autotopk.cli import arguments
from autotopk.device import H100
from autotopk.problem import KTH, Problem
from autotopk.runtime.trial import Trial
from autotopk.strategies.wide_radix import strategy as wide_radix
from autotopk.tuning.tuner import tune
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload

WORKLOAD = Workload(4, 64, 5, answer=KTH)


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
def test_tuned_and_explained(tmp_path: Path) -> None:
    assert Workload.of(WORKLOAD.key) == WORKLOAD
    assert str(WORKLOAD) == "4x64 k=5 float32 kth"
    store_path, winners_path = tmp_path / "tuning.sqlite", tmp_path / "winners.sqlite"
    report = tune([WORKLOAD], device=torch.device("cpu"), store_path=store_path, winners_path=winners_path)
    assert [result.outcome for result in report.results] == ["tuned"]
    with Store.open(store_path) as store:
        assert {(one.status, one.candidate) for one in store.measurements()} == {("ok", TORCH_TOPK)}
    told = autotopk.explain_problem(Problem.contiguous(1, 10_000_000, 5_000_000, answer=KTH), H100)
    assert told.choice.strategy is wide_radix
    sizes: tuple[list[str], list[str], list[str], list[str], list[str]] = ([], ["4"], ["64"], ["5"], [])
    assert arguments.workloads(*sizes, "kth") == [WORKLOAD]


def test_answers_are_checked() -> None:
    problem, x = WORKLOAD.problem("cpu"), torch.randn(4, 64)
    trial = Trial.of(problem, "cpu")
    values, indices = trial.torchs(x)
    assert not trial.problems_with(x, (values, indices))
    assert trial.problems_with(x, (values + 1, indices))
    assert trial.problems_with(x, (values, (indices + 1) % 64))
    assert trial.problems_with(x, (values, indices + 64))
