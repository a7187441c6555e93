"""Every operation takes the one way: what is shown for one here holds for a further one that is only declared."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.device import Device
from autotopk.errors import LaunchError
from autotopk.problem import Problem
from autotopk.program import HostProgram
from autotopk.runtime import declared
from autotopk.runtime.operations import Operation
from autotopk.runtime.state import default
from autotopk.strategy import Features
from tests.runtime.conftest import Planted, PlantedConfig
from tests.runtime.same import told

X = torch.randn(4, 6, 50)

kth = Operation("kth", of_pairs=lambda pairs: pairs[0][..., -1])
"""The k-th largest of every row: a third operation, by its declaration alone."""


def kth_of_torch(x: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Tensor:
    return torch.topk(x, k, dim, largest, sorted).values[..., -1]


OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "topk": (autotopk.topk, torch.topk),
    "topk_indices": (autotopk.topk_indices, lambda *asked: torch.topk(*asked).indices.to(torch.int32)),
    "kth": (kth, kth_of_torch),
}
"""Ours, and what it must return on these inputs, whose elements all differ."""


@pytest.fixture(params=OPERATIONS)
def operation(request: pytest.FixtureRequest) -> Iterator[tuple[Callable[..., Any], Callable[..., Any]]]:
    yield OPERATIONS[request.param]
    default.plans("kth").clear()


def same(found: Any, expected: Any) -> bool:
    if isinstance(found, Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    return len(found) == len(expected) and all(map(same, found, expected))


QUESTIONS = [
    (X, 5, -1, True, True),
    (X, 50, -1, False, True),
    (X[..., ::2], 3, -1, True, True),
    (X[0, 0], 7, 0, False, True),
]


def test_every_operation_is_answered_by_the_chosen_strategy(operation: Any, planted: Planted) -> None:
    ours, torchs = operation
    for question in QUESTIONS:
        before = planted.answers
        assert same(ours(*question), torchs(*question))
        assert same(ours(*question), torchs(*question))
        assert planted.answers == before + 2


def test_every_operation_leaves_the_rest_to_torch(operation: Any, planted: Planted) -> None:
    ours, torchs = operation
    for bad in ((X, 51, -1, True, True), (X, 5, 3, True, True), (X, -1, -1, True, True)):
        with pytest.raises((RuntimeError, IndexError)):
            ours(*bad)
    assert planted.answers == 0


def test_without_a_word_of_derivatives_torch_answers(planted: Planted) -> None:
    weights = X.clone().requires_grad_()
    kth(weights, 5, -1, True, True).sum().backward()
    assert planted.answers == 0
    assert weights.grad is not None
    assert weights.grad.sum() == weights.shape[0] * weights.shape[1]


FAILURES: dict[str, Exception] = {
    "launch": LaunchError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    "memory": torch.OutOfMemoryError("out of memory"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_every_operation_survives_a_failure(
    operation: Any, kind: str, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory is short torch answers this one call; any other failure leaves the candidate out."""
    ours, torchs = operation
    failing = [False]

    def program(config: PlantedConfig, problem: Problem, device: Device) -> HostProgram:
        def run(x: Tensor) -> tuple[Tensor, Tensor]:
            if failing[0]:
                raise FAILURES[kind]
            planted.answers += 1
            return tuple(torch.topk(x, problem.k, largest=problem.largest))  # type: ignore[return-value]

        return HostProgram(run)

    monkeypatch.setattr(planted, "program", program)
    asked = (X, 5, -1, True, True)
    assert same(ours(*asked), torchs(*asked))
    failing[0] = True
    messages = told(lambda: ours(*asked))
    assert len(messages) == (kind == "launch")
    assert same(ours(*asked), torchs(*asked))
    failing[0] = False
    before = planted.answers
    assert same(ours(*asked), torchs(*asked))
    assert planted.answers == before + (kind == "memory")


class PlantedIndices(Planted):
    """Writes int32 indices alone where it is asked to; its values would be wrong then."""

    features = Features(answers=frozenset({"pairs", "indices"}))

    def program(self, config: PlantedConfig, problem: Problem, device: Device) -> HostProgram:
        def run(x: Tensor) -> tuple[Tensor, Tensor]:
            self.answers += 1
            values, indices = torch.topk(x, problem.k, largest=problem.largest)
            return (values * 0, indices.to(torch.int32)) if problem.answer == "indices" else (values, indices)

        return HostProgram(run)


def test_a_strategy_is_asked_for_the_form_that_it_can_write(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = PlantedIndices()
    autotopk.registry.register(strategy)
    try:
        for name in ("topk", "topk_indices"):
            ours, torchs = OPERATIONS[name]
            for question in QUESTIONS:
                assert same(ours(*question), torchs(*question)), name
        assert strategy.answers == 2 * len(QUESTIONS)
    finally:
        autotopk.registry.unregister(strategy.name)
        autotopk.reload()


def test_a_strategy_is_never_asked_for_a_form_that_it_cannot_write(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, program = [], planted.program

    def noted(config: PlantedConfig, problem: Problem, device: Device) -> HostProgram:
        asked.append(problem.answer)
        return program(config, problem, device)

    monkeypatch.setattr(planted, "program", noted)
    for ours, _ in OPERATIONS.values():
        ours(X, 9, -1, True, True)
    assert asked == ["pairs"] * len(OPERATIONS)
    default.plans("kth").clear()


@pytest.mark.parametrize("name", ["topk", "topk_indices"])
def test_indices_of_a_library_are_converted(name: str, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library may return int32 where int64 is asked for."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = torch.topk(x, 5)
        return values, indices.to(torch.int32)

    monkeypatch.setattr(planted, "program", lambda *_: HostProgram(run))
    ours, torchs = OPERATIONS[name]
    assert same(ours(X, 5, -1, True, True), torchs(X, 5, -1, True, True))


def test_a_library_is_prepared_once_before_it_is_called(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def prepare() -> None:
        calls.append("prepare")

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        calls.append("run")
        return tuple(torch.topk(x, 5))  # type: ignore[return-value]

    monkeypatch.setattr(planted, "program", lambda *_: HostProgram(run, prepare=prepare))
    for cols in (50, 51, 50):
        autotopk.topk(torch.randn(3, cols), 5)
    assert calls == ["prepare", "run", "run", "run"]


def test_what_cannot_be_prepared_is_left_out(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare() -> None:
        raise OSError("no compiler")

    monkeypatch.setattr(planted, "program", lambda *_: HostProgram(torch.sort, prepare=prepare))
    [message] = told(lambda: autotopk.topk(X, 5))
    assert "no compiler" in message
    assert same(autotopk.topk(X, 5), torch.topk(X, 5))


def test_dimensions_longer_than_int32_counts_are_refused() -> None:
    """A tensor whose memory is one element; torch answers, and only then it is told."""
    small = Operation("small", answer="indices", of_pairs=declared.narrowed, longest=40)
    with pytest.raises(OverflowError, match="dimension -1 is 50 long, small counts to 40"):
        small(X, 5, -1, True, True)
    assert same(small(X[..., :40], 5, -1, True, True), torch.topk(X[..., :40], 5).indices.to(torch.int32))
