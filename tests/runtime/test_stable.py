"""`stable=True`: of equal elements those of the lowest indices, in that order, whoever answers."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from autotopk.oracle.selection import select
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.program import HostProgram
from autotopk.runtime import dispatch
from autotopk.strategies.torch_fallback.stable import stable_topk
from autotopk.strategy import Features
from tests.registered import registered
from tests.runtime.conftest import Planted
from tests.runtime.same import outcome, unwarned

pytestmark = unwarned

TIES = torch.tensor([0.0, -0.0, 1.0, torch.nan, -0.0, 1.0, torch.inf, 0.0, -torch.nan, torch.inf, -1.0, -torch.inf])


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", DTYPE_BYTES)
@pytest.mark.parametrize(("rows", "cols", "k"), [(3, 40, 7), (2, 9, 9), (1, 300, 64), (4, 1, 1)])
def test_lowest_index_first(rows: int, cols: int, k: int, dtype: str, largest: bool) -> None:
    for name in inputs.names_for(getattr(torch, dtype)):
        x = inputs.make(name, rows, cols, k, getattr(torch, dtype), "cpu")
        for order in (True, False):
            values, indices = autotopk.topk(x, k, -1, largest, order, stable=True)
            assert not problems_with(x, values, indices, k, largest=largest), name
            assert torch.equal(indices, select(x, k, largest=largest, index_dtype=torch.int64)[0]), name
            assert torch.equal(autotopk.topk_indices(x, k, -1, largest, order, stable=True), indices.int()), name


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("cols", [65_535, 65_536])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int16, torch.uint8])
def test_ranks_of_either_width(dtype: torch.dtype, cols: int, largest: bool) -> None:
    """At both ends of the row, and of the dtype."""
    x = inputs.make("extremes", 3, cols, 9, dtype, "cpu")
    x[1] = x[1, :1]
    for one in (x, x.flip(1)):
        for k in (1, 9, cols):
            expected = one.sort(dim=1, descending=largest, stable=True).indices[:, :k]
            assert torch.equal(autotopk.topk(one, k, largest=largest, stable=True).indices, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_zeros_are_equal_and_so_are_nans(dtype: torch.dtype) -> None:
    x = TIES.to(dtype)
    assert autotopk.topk(x, 12, stable=True).indices.tolist() == [3, 8, 6, 9, 2, 5, 0, 1, 4, 7, 10, 11]
    assert autotopk.topk(x, 12, largest=False, stable=True).indices.tolist() == [11, 10, 0, 1, 4, 7, 2, 5, 6, 9, 3, 8]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_any_dimension(dim: int, dtype: torch.dtype) -> None:
    x = inputs.make("ties", 20, 6, 3, dtype, "cpu").view(4, 5, 6)
    for one in (x, x.transpose(0, 2), x[::2], x.expand(2, 4, 5, 6)):
        k = min(3, one.shape[dim])
        values, indices = autotopk.topk(one, k, dim, stable=True)
        assert not problems_with(one, values, indices, k, dim=dim)
        rows = one.movedim(dim, -1).reshape(-1, one.shape[dim])
        assert torch.equal(indices.movedim(dim, -1).reshape(-1, k), select(rows, k, index_dtype=torch.int64)[0])


X = torch.randint(0, 4, (4, 9)).float()

ASKED: dict[str, tuple[Any, ...]] = {
    "k too large": (X, 10),
    "k negative": (X, -1),
    "k float": (X, 2.0),
    "k bool": (X, True),
    "k tensor": (X, torch.tensor(2)),
    "dim too large": (X, 2, 2),
    "dim float": (X, 2, 0.0),
    "largest int": (X, 2, -1, 1),
    "largest None": (X, 2, -1, None),
    "sorted text": (X, 2, -1, True, "yes"),
    "bool input": (X > 0, 2),
    "complex input": (X.to(torch.complex64), 2),
    "sparse input": (X.to_sparse(), 2),
    "list input": ([1.0], 1),
    "0-d": (torch.tensor(1.0), 1),
    "0-d, k too large": (torch.tensor(1.0), 2),
    "nothing": (X, 0),
    "empty": (torch.randn(3, 0), 0),
    "no rows": (torch.randn(0, 3), 2),
}


@pytest.mark.parametrize("name", ASKED)
def test_takes_and_refuses_what_topk_does(name: str) -> None:
    expected = outcome(torch.topk, *ASKED[name])
    assert outcome(autotopk.topk, *ASKED[name], stable=True) == expected
    if expected[0] is torch.return_types.topk:
        found, known = autotopk.topk(*ASKED[name], stable=True), torch.topk(*ASKED[name])
        assert [one.shape for one in found] == [one.shape for one in known]
        assert torch.equal(found.values, known.values)


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_stable_is_a_bool(value: Any) -> None:
    for function in (autotopk.topk, autotopk.topk_indices, autotopk.topk_mask):
        with pytest.raises(TypeError, match=f"stable={value!r} is not a bool"):
            function(X, 2, stable=value)


def test_outputs() -> None:
    expected = autotopk.topk(X, 3, stable=True)
    out = torch.empty(4, 3), torch.empty(4, 3, dtype=torch.int64)
    found = autotopk.topk(X, 3, out=out, stable=True)
    assert found.values is out[0]
    assert all(map(torch.equal, found, expected))


def test_derivatives_and_transforms() -> None:
    x = X.clone().requires_grad_()
    weights = torch.randn(4, 3)
    found = autotopk.topk(x, 3, stable=True)
    (found.values * weights).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.zeros(4, 9).scatter(1, found.indices, weights))
    for one in (X, X.half(), X.double()):
        expected = autotopk.topk(one, 3, stable=True)
        batched = torch.vmap(lambda row: tuple(autotopk.topk(row, 3, stable=True)))(one)
        assert all(map(torch.equal, batched, expected))
        tangents = torch.randn(4, 9).to(one.dtype)
        derived = torch.func.jvp(lambda x: autotopk.topk(x, 3, stable=True).values, (one,), (tangents,))[1]
        assert torch.equal(derived, tangents.gather(1, expected.indices))


def test_compiles_whole() -> None:
    torch.compiler.reset()
    for x in (X, X.half(), X.long()):
        compiled = torch.compile(lambda x: autotopk.topk(x, 3, stable=True), fullgraph=True, backend="aot_eager")
        assert all(map(torch.equal, compiled(x), autotopk.topk(x, 3, stable=True)))


@pytest.mark.usefixtures("deterministic")
def test_deterministic_algorithms_are_stable() -> None:
    x = torch.zeros(2, 200)
    assert autotopk.topk(x, 3).indices.tolist() == [[0, 1, 2]] * 2
    assert autotopk.topk_indices(x, 3).tolist() == [[0, 1, 2]] * 2
    assert autotopk.topk_indices(x, 3, fill=-1).tolist() == [[0, 1, 2]] * 2
    assert autotopk.topk_mask(x, 3).sum(0).tolist() == [2, 2, 2] + [0] * 197


def test_deterministic_algorithms_are_stable_where_a_kernel_answered_before(planted: Planted, twins: str) -> None:
    expected = select(X, 3, index_dtype=torch.int64)[0]
    out = torch.empty(4, 3), torch.empty(4, 3, dtype=torch.int64)
    three: Any = np.int64(3)
    asked: tuple[Callable[[], Any], ...] = (
        lambda: autotopk.topk(X, 3).indices,
        lambda: autotopk.topk(X, three).indices,
        lambda: autotopk.topk(X.clone().requires_grad_(), 3).indices,
        lambda: autotopk.topk(X, 3, out=out).indices,
        lambda: autotopk.topk_indices(X, 3).long(),
        lambda: torch.vmap(lambda row: autotopk.topk(row, 3).indices)(X),
        lambda: torch.compile(lambda x: autotopk.topk(x, 3).indices, fullgraph=True, backend="aot_eager")(X),
    )
    for one in asked:
        before = planted.answers
        one()
        usual = planted.answers - before
        torch.use_deterministic_algorithms(True)
        try:
            assert torch.equal(one(), expected)
        finally:
            torch.use_deterministic_algorithms(False)
        before = planted.answers
        one()
        assert planted.answers - before == usual


@pytest.mark.usefixtures("deterministic")
def test_deterministic_algorithms_let_answers_of_data_alone_be(planted: Planted, twins: str) -> None:
    """torch.topk under `patch()`, and our operators, whose graphs say which of them is asked."""
    values, _ = torch.ops.autotopk.topk(X, 3)
    assert torch.equal(values, X.topk(3).values)
    assert planted.answers == 1


# Strategies


class PlantedStable(Planted):
    """Declares to be stable for float32."""

    features = Features(stable=frozenset({"float32"}))

    def program(self, config: Any, problem: Problem, device: Any) -> HostProgram:
        def run(x: Tensor) -> tuple[Tensor, Tensor]:
            self.answers += 1
            values, indices = stable_topk(x, problem.k, -1, problem.largest)
            return values, indices

        return HostProgram(run)


def test_only_who_is_stable_is_asked(planted: Planted) -> None:
    autotopk.topk(X, 3)
    assert planted.answers == 1
    autotopk.topk(X, 3, stable=True)
    assert planted.answers == 2  # of the ranks, which are all different
    autotopk.topk(X.double(), 3, stable=True)
    assert planted.answers == 2


def test_who_is_stable_serves() -> None:
    with registered(PlantedStable()) as strategy:
        for _ in range(2):
            assert torch.equal(autotopk.topk(X, 3, stable=True).indices, select(X, 3, index_dtype=torch.int64)[0])
        assert strategy.answers == 2
        assert autotopk.explain(X, 3, stable=True).choice.strategy is strategy
        assert autotopk.explain(X.double(), 3, stable=True).choice.strategy is not strategy
        assert autotopk.explain(X.double(), 3).choice.strategy is strategy
        autotopk.topk_indices(X, 3, stable=True)
        assert strategy.answers == 3
        autotopk.topk(X.double(), 3, stable=True)
        assert strategy.answers == 3


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_the_order_of_choice_passes_over_who_is_not(dtype: str) -> None:
    for problem in (Problem.contiguous(64, 4096, 64, dtype), Problem.contiguous(1, 1 << 25, 64, dtype)):
        assert "stable" not in str(problem)
        asked = Problem.contiguous(problem.rows, problem.cols, problem.k, dtype, stable=True)
        assert "stable" in str(asked)
        *choices, last = dispatch.choices(asked, H100)
        assert all(dtype in one.strategy.features.stable for one in choices)
        assert (last.step, last.strategy.name) == ("torch", "torch_fallback")
        program = last.program(asked, H100)
        assert isinstance(program, HostProgram)
        x = inputs.make("ties", 2, 50, 5, getattr(torch, dtype), "cpu")
        small = Problem.contiguous(2, 50, 5, dtype, "cpu", stable=True)
        for config in last.strategy.shortlist(small, H100):
            run: Any = last.strategy.program(config, small, H100)
            assert torch.equal(run.run(x)[1], select(x, 5, index_dtype=torch.int64)[0])
