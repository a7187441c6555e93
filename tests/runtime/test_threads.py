"""A winner of a CPU holds for the number of threads that it was measured with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.device import cpu_device
from autotopk.problem import Problem
from autotopk.program import HostProgram
from autotopk.runtime.state import default
from autotopk.strategies.torch_fallback import strategy
from autotopk.strategies.torch_fallback.chunked import sort_topk
from autotopk.tuning_db import artifact
from tests.runtime.same import check, unwarned
from tests.runtime.winners import SORT, winner

X = torch.randn(64, 4096)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads of every call that the winner answered."""
    calls: list[int] = []

    def run(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        calls.append(torch.get_num_threads())
        return sort_topk(x, k=k, largest=True, sorted=True)

    def program(config: object, problem: Problem, device: object) -> HostProgram:
        return HostProgram(lambda x: run(x, problem.k))

    monkeypatch.setattr(strategy, "program", program)
    return calls


def test_a_device_has_the_threads_of_now() -> None:
    assert cpu_device().processors == 2
    assert cpu_device().fingerprint.endswith("|2 cores")
    torch.set_num_threads(1)
    assert cpu_device().processors == 1


@unwarned
def test_a_winner_serves_the_number_of_threads_it_was_tuned_with(cache_dir: Path, sorts: list[int]) -> None:
    artifact.publish([winner(64, 4096, 128, SORT)], cache_dir / "winners.sqlite")
    for threads in (2, 1, 2, 1):
        torch.set_num_threads(threads)
        assert autotopk.explain(X, 128).choice.step == ("exact" if threads == 2 else "torch")
        check(X, 128)
    assert sorts == [2, 2]


@unwarned
def test_a_winner_of_another_number_is_found_once_it_is_set(cache_dir: Path, sorts: list[int]) -> None:
    """Also where torch.topk answered everything before."""
    artifact.publish([winner(64, 4096, 128, SORT)], cache_dir / "winners.sqlite")
    torch.set_num_threads(1)
    for x in (X, X[:5], X):
        check(x, 128)
    assert sorts == []
    torch.set_num_threads(2)
    check(X, 128)
    assert sorts == [2]


@unwarned
def test_nothing_is_planned_where_torch_topk_serves_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for cols in range(10, 60):
        check(torch.randn(3, cols), 2)
        autotopk.topk_indices(torch.randn(3, cols), 2)
    assert sum(len(default.plans(name)) for name in ("topk", "topk_indices")) == 1
    monkeypatch.setenv("AUTOTOPK_MISSES", str(tmp_path / "misses.jsonl"))  # what was asked for is to be told
    autotopk.reload()
    for cols in range(10, 60):
        check(torch.randn(3, cols), 2)
    assert len((tmp_path / "misses.jsonl").read_text().splitlines()) == 50
    monkeypatch.delenv("AUTOTOPK_MISSES")
    monkeypatch.setenv("AUTOTOPK_STRATEGY", "torch_fallback")
    autotopk.reload()
    for cols in range(10, 60):
        check(torch.randn(3, cols), 2)
    assert len(default.plans("topk")) == 50


@unwarned
def test_a_registered_strategy_is_asked(planted: object) -> None:
    for cols in range(10, 60):
        check(torch.randn(3, cols), 2)
    assert planted.answers == 50  # type: ignore[attr-defined]
