"""Windows are tuned, missed, warmed up and explained as any workload is."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.candidate import TORCH_TOPK
from autotopk.cli import arguments
from autotopk.compilers.cuda import CudaSource
from autotopk.device import H100, cpu_device
from autotopk.oracle.windows import draw, problems_with_windows
from autotopk.problem import WINDOWS, Problem
from autotopk.runtime import addresses
from autotopk.runtime.trial import Trial
from autotopk.strategies.cluster_lists import strategy as cluster_lists
from autotopk.strategies.load_maxima import strategy as load_maxima
from autotopk.tuning.tuner import tune
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload, tagged

WORKLOAD = Workload(4, 64, 5, answer=WINDOWS)


def test_keys_tell_windows_apart() -> None:
    key, plain = WORKLOAD.key, Workload(4, 64, 5).key
    assert (key.routing, plain.routing) == ("windows", "")
    assert str(key) == "4x64 k=5 float32 windows"
    assert Workload.of(key) == WORKLOAD
    assert key.distance(plain) == float("inf")


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_drawn_windows_are_of_their_rows(rows: int) -> None:
    ends = draw(rows, 1000, "cpu")
    assert ends.shape == (rows,)
    assert ends.dtype is torch.int32
    assert int(ends.min()) >= 1
    assert int(ends.max()) <= 1000
    assert torch.equal(ends, ends.sort().values)


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
def test_tuned_and_explained(tmp_path: Path) -> None:
    store_path, winners_path = tmp_path / "tuning.sqlite", tmp_path / "winners.sqlite"
    report = tune([WORKLOAD], device=torch.device("cpu"), store_path=store_path, winners_path=winners_path)
    assert [result.outcome for result in report.results] == ["tuned"]
    with Store.open(store_path) as store:
        assert {(one.status, one.candidate) for one in store.measurements()} == {("ok", TORCH_TOPK)}
    told = autotopk.explain_problem(WORKLOAD.problem("cpu"), cpu_device())
    assert str(told).startswith("4x64 float32 k=5 (windows) on cpu\n  runs torch_fallback")
    told = autotopk.explain_problem(Problem.contiguous(64, 32768, 2048, answer="windows", stable=True), H100)
    assert told.choice.strategy is cluster_lists


def test_answers_are_checked() -> None:
    problem = Workload(6, 50, 9, answer=WINDOWS).problem("cpu")
    trial, x = Trial.of(problem, "cpu"), torch.randn(6, 50)
    values, indices = trial.torchs(x)
    assert not trial.problems_with(x, (values, indices))
    assert trial.ends is not None

    def wrong(values: Tensor, indices: Tensor) -> list[str]:
        assert trial.ends is not None
        return problems_with_windows(x, trial.ends, (values, indices), 9, True)

    assert wrong(values, indices.roll(1, 0))
    assert wrong(values + 1, indices)
    short = Workload(300, 10, 9, answer=WINDOWS).problem("cpu")
    trial, x = Trial.of(short, "cpu"), torch.randn(300, 10)
    values, indices = trial.torchs(x)
    assert not trial.problems_with(x, (values, indices))
    assert trial.problems_with(x, (values, indices.where(indices >= 0, 0)))


def test_kernels_are_told_all_that_they_ask_for() -> None:
    problem = Problem.contiguous(64, 32768, 2048, answer="windows", stable=True)
    config = load_maxima.heuristic(problem, H100)
    assert config is not None
    program = load_maxima.program(config, problem, H100)
    places, garbage, zeros = addresses.places_of(program, problem)
    (source,) = program.sources
    assert isinstance(source, CudaSource)
    parameters = [one.name for one in source.generate(90).parameters]
    assert garbage == zeros == 0
    assert {*parameters} == {*places} | {"row_stride", "cols", "k", "smallest", "signed", "infinity"}


def test_the_command_line_names_windows() -> None:
    sizes: tuple[list[str], list[str], list[str], list[str], list[str]] = ([], ["4"], ["64"], ["5"], [])
    assert arguments.workloads(*sizes, "windows") == [WORKLOAD]
    assert all(one.answer == WINDOWS for one in tagged("selector"))
