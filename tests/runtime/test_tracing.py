"""Tracers record torch's own operator, whatever would answer a plain call."""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.runtime.state import default
from tests.runtime.same import unwarned

pytestmark = [
    unwarned,
    pytest.mark.usefixtures("backend"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("error::torch.jit.TracerWarning"),
]


class Model(torch.nn.Module):
    """Both operations, along a dimension."""

    def __init__(self, k: int, dim: int) -> None:
        super().__init__()
        self.k, self.dim = k, dim

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, indices = autotopk.topk(x * 2, self.k, self.dim)
        return values, indices, autotopk.topk_indices(x, self.k, self.dim, False)


def expected(x: Tensor, k: int, dim: int) -> tuple[Tensor, ...]:
    return (*torch.topk(x * 2, k, dim), torch.topk(x, k, dim, False).indices.to(torch.int32))


TRACED: dict[str, Callable[[Any, Tensor], Any]] = {
    "function": lambda model, x: torch.jit.trace(model.forward, x, check_trace=False),
    "module": lambda model, x: torch.jit.trace(model, x, check_trace=False),
    "frozen": lambda model, x: torch.jit.freeze(torch.jit.trace(model.eval(), x, check_trace=False)),
}


@pytest.mark.parametrize("how", TRACED)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_a_trace_holds_at_every_size(how: str, known: bool, dim: int) -> None:
    example = torch.randn(6, 7, 8)
    if known:
        Model(3, dim)(example)
    before = {name: dict(default.plans(name)) for name in ("topk", "topk_indices")}
    traced = TRACED[how](Model(3, dim), example)
    assert {name: dict(default.plans(name)) for name in before} == before
    assert not default._blocked
    kinds = [node.kind() for node in traced.graph.nodes() if "Constant" not in node.kind()]
    assert kinds.count("aten::topk") == 2
    assert set(kinds) <= {"aten::mul", "aten::topk", "aten::to", "prim::TupleConstruct"}
    for shape in ((6, 7, 8), (3, 3, 3), (5, 1000, 4), (40, 9, 70)):
        x = torch.randn(shape)
        assert all(map(torch.equal, traced(x), expected(x, 3, dim)))


def test_plain_calls_after_a_trace_are_answered_as_before() -> None:
    x = torch.randn(5, 9)
    torch.jit.trace(Model(2, -1), x)
    assert torch.equal(autotopk.topk(x, 2).values, torch.topk(x, 2).values)
    assert torch.equal(autotopk.topk_indices(x, 2).to(torch.int64), torch.topk(x, 2).indices)


def test_no_size() -> None:
    traced = torch.jit.trace(Model(1, -1), torch.tensor(2.0))
    assert [one.item() for one in traced(torch.tensor(3.0))] == [6.0, 0, 0]


def test_tracing_warns_of_nothing() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.jit.trace(Model(2, 0), torch.randn(4, 8))
    messages = [str(one.message) for one in caught if one.category is not DeprecationWarning]
    assert [one for one in messages if not one.startswith("nothing like")] == []


def test_exporter_that_traces(tmp_path: Path) -> None:
    if find_spec("onnx") is None:
        pytest.skip("needs onnx")
    torch.onnx.export(Model(2, -1), (torch.randn(4, 8),), tmp_path / "model.onnx", dynamo=False)
