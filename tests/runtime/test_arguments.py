"""`topk` takes torch.topk's arguments, and refuses what it refuses with the same words."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch

import autotopk
from tests.runtime.conftest import Planted
from tests.runtime.same import check, outcome, unwarned

pytestmark = [unwarned, pytest.mark.usefixtures("backend")]


def test_signature() -> None:
    """As torch.topk's, and `stable`; `input` and `k` have defaults because the input may come by another name."""
    parameters = inspect.signature(autotopk.topk).parameters
    assert [(name, parameter.default) for name, parameter in parameters.items()] == [
        ("input", None),
        ("k", None),
        ("dim", -1),
        ("largest", True),
        ("sorted", True),
        ("out", None),
        ("stable", False),
        ("aliases", inspect.Parameter.empty),
    ]
    assert parameters["out"].kind is inspect.Parameter.KEYWORD_ONLY


X = torch.randn(4, 9)


ASKED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "k too large": ((X, 10), {}),
    "k too large for its dim": ((X, 5, 0), {}),
    "k negative": ((X, -1), {}),
    "k huge": ((X, 1 << 70), {}),
    "k bool": ((X, True), {}),
    "k float": ((X, 2.0), {}),
    "k text": ((X, "2"), {}),
    "k None": ((X, None), {}),
    "k numpy": ((X, np.int64(2)), {}),
    "k tensor": ((X, torch.tensor(2)), {}),
    "k float tensor": ((X, torch.tensor(2.0)), {}),
    "k list": ((X, [2]), {}),
    "dim too large": ((X, 2, 2), {}),
    "dim too small": ((X, 2, -3), {}),
    "dim bool": ((X, 2, True), {}),
    "dim float": ((X, 2, 0.0), {}),
    "dim None": ((X, 2, None), {}),
    "dim numpy": ((X, 2, np.int32(0)), {}),
    "largest int": ((X, 2, -1, 1), {}),
    "largest None": ((X, 2, -1, None), {}),
    "largest numpy": ((X, 2, -1, np.bool_(False)), {}),
    "sorted text": ((X, 2, -1, True, "yes"), {}),
    "sorted int": ((X, 2, -1, True, 0), {}),
    "bool input": ((X > 0, 2), {}),
    "complex input": ((torch.randn(4, 9, dtype=torch.complex64), 2), {}),
    "uint16 input": ((torch.zeros(4, 9, dtype=torch.uint16), 2), {}),
    "float8 input": ((X.to(torch.float8_e4m3fn), 2), {}),
    "sparse input": ((X.to_sparse(), 2), {}),
    "compressed input": ((X.to_sparse_csr(), 2), {}),
    "mkldnn input": ((X.to_mkldnn(), 2), {}),
    "list input": (([1.0, 2.0], 1), {}),
    "numpy input": ((X.numpy(), 1), {}),
    "None input": ((None, 1), {}),
    "number input": ((1.0, 1), {}),
    "0-d, k too large": ((torch.tensor(1.0), 2), {}),
    "0-d, dim too large": ((torch.tensor(1.0), 1, 1), {}),
    "empty, k too large": ((torch.randn(3, 0), 1), {}),
    "no rows, k too large": ((torch.randn(0, 3), 4), {}),
    "out of other dtype": (
        (X, 2),
        {"out": (torch.empty(4, 2, dtype=torch.float64), torch.empty(4, 2, dtype=torch.int64))},
    ),
    "out of other index dtype": ((X, 2), {"out": (torch.empty(4, 2), torch.empty(4, 2, dtype=torch.int32))}),
    "out on other device": ((X, 2), {"out": (torch.empty(4, 2), torch.empty(4, 2, dtype=torch.int64, device="meta"))}),
    "out too short": ((X, 2), {"out": (torch.empty(4, 2),)}),
    "out one tensor": ((X, 2), {"out": torch.empty(4, 2)}),
    "out list": ((X, 2), {"out": [torch.empty(4, 2), torch.empty(4, 2, dtype=torch.int64)]}),
    "out None": ((X, 2), {"out": None}),
    "out with k too large": ((X, 10), {"out": (torch.empty(4, 2), torch.empty(4, 2, dtype=torch.int64))}),
    "named, k float": ((), {"input": X, "k": 2.0}),
    "named, dim out of range": ((), {"input": X, "k": 2, "dim": 7}),
    "axis out of range": ((), {"x": X, "k": 2, "axis": 7}),
    "axis None": ((X, 2), {"axis": None}),
    "input by two names": ((), {"input": X, "x": X, "k": 2}),
    "input by position and by name": ((X, 2), {"x": X}),
    "dim by two names": ((X, 2), {"dim": 1, "axis": 1}),
    "unknown name": ((X, 2), {"unstable": True}),
    "a name of another operator": ((X, 2), {"keepdims": True}),
}


@pytest.mark.parametrize("asked", ASKED)
def test_same_outcome(asked: str) -> None:
    arguments, named = ASKED[asked]
    expected = outcome(torch.topk, *arguments, **named)
    # also once the layout has a plan
    check(X, 2)
    check(X, 1)
    check(X, 2, 0)
    assert outcome(autotopk.topk, *arguments, **named) == expected


NO_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "nothing": ((), {}),
    "no k": ((X,), {}),
    "out by position": ((X, 2, 0, True, True, None), {}),
    "k twice": ((X, 2), {"k": 2}),
    "dim by position and by name": ((X, 2, 0), {"axis": 0}),
    "other names alone": ((), {"x": X, "axis": 0}),
}


@pytest.mark.parametrize("asked", NO_CALLS)
def test_same_exception_for_what_is_no_call(asked: str) -> None:
    arguments, named = NO_CALLS[asked]
    for function in (torch.topk, autotopk.topk):
        assert outcome(function, *arguments, **named)[0] is TypeError


@pytest.mark.parametrize("name", ["input", "x", "a", "x1"])
@pytest.mark.parametrize("axis", ["dim", "axis"])
@pytest.mark.parametrize("dim", [0, -1])
def test_names_of_numpy(name: str, axis: str, dim: int) -> None:
    call: dict[str, Any] = {name: X, "k": 2, axis: dim, "largest": False}
    assert all(map(torch.equal, autotopk.topk(**call), torch.topk(**call)))


@pytest.mark.parametrize("name", ["input", "x"])
def test_names_of_numpy_are_answered_by_the_chosen_strategy(name: str, planted: Planted) -> None:
    call: dict[str, Any] = {name: X}
    autotopk.topk(**call, k=2, axis=0)
    assert planted.answers == 1
