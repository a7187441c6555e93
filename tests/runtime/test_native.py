"""What answers in C does as its twin in Python: on first calls of a layout, and on later ones, which are C's alone."""

import gc
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.runtime import declared, driver, launch
from autotopk.runtime.planning import Plan
from tests.runtime.conftest import Planted
from tests.runtime.modes import Called, Dispatched
from tests.runtime.same import unwarned
from tests.runtime.winners import environment, python

pytestmark = unwarned
needs_c = pytest.mark.skipif(launch.native is None, reason="was not built here")
in_c = pytest.mark.parametrize("twins", ["C"], indirect=True)

K = 4
X = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))


class Case(NamedTuple):
    """A call, and how many of two such are answered by a launch."""

    launches: int
    of: Callable[[Tensor], Tensor] = torch.clone
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    k: Any = K
    dim: Any = -1
    out: Callable[[], Any] = lambda: None


def outputs() -> tuple[Tensor, Tensor]:
    return torch.zeros(6, K), torch.zeros(6, K, dtype=torch.int64)


CASES = {
    "plain": Case(2),
    "parameter": Case(2, torch.nn.Parameter),
    "leaf": Case(2, lambda x: x.clone().requires_grad_()),
    "leaf without derivatives": Case(2, lambda x: x.clone().requires_grad_(), torch.no_grad),
    "inference": Case(2, within=torch.inference_mode),
    "device": Case(2, within=lambda: torch.device("cpu")),
    "function mode": Case(2, within=Called),
    "dispatch mode": Case(2, within=Dispatched),
    "negated when read": Case(0, torch._neg_view),
    "number of NumPy's": Case(2, k=np.int64(K)),
    "nothing": Case(0, k=0),
    "out": Case(2, out=outputs),
    "out of a leaf": Case(0, lambda x: x.clone().requires_grad_(), torch.no_grad, out=lambda: list(outputs())),
    "out, transposed": Case(2, out=lambda: tuple(one.t().contiguous().t() for one in outputs())),
    "out, resized by torch": Case(1, out=lambda: (torch.empty(0), torch.empty(0, dtype=torch.int64))),
    "columns": Case(2, lambda x: x.t(), dim=0),
}


@pytest.mark.parametrize("name", CASES)
def test_as_torch_topk(name: str, twins: str, launches: list[tuple[int, ...]]) -> None:
    case = CASES[name]
    out = case.out()
    with case.within():
        x = case.of(-X if name == "negated when read" else X)
        for _ in range(2):
            found = autotopk.topk(x, case.k, case.dim, out=out)
    for one, expected in zip(found, torch.topk(X, int(case.k)), strict=True):
        assert torch.equal(one.t() if case.dim == 0 else one, expected)
    wanted = torch.return_types.topk if out is None else torch.return_types.topk_out  # type: ignore[attr-defined]
    assert type(found) is wanted
    assert found[0].requires_grad == (x.requires_grad and case.within is nullcontext)
    assert len(launches) == case.launches


def test_failures_are_left_out(planted: Planted, twins: str, launches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a kernel answered before."""
    codes: list[int] = []
    monkeypatch.setattr(launch, "_launch", lambda *_: (lambda *_: sum(codes), "kernel"))
    monkeypatch.setattr(driver, "error_name", lambda code: "CUDA_ERROR_INVALID_VALUE")
    autotopk.topk(X, K)
    codes.append(1)
    with pytest.warns(autotopk.AutotopkWarning, match="CUDA_ERROR_INVALID_VALUE"):
        found = autotopk.topk(X, K)
    assert torch.equal(found.values, torch.topk(X, K).values)
    codes.clear()
    assert torch.equal(autotopk.topk(X, K).values, found.values)


def ask(x: Any, k: Any = K, dim: Any = -1, out: Any = None, data: bool = False) -> Any:
    return declared.pairs.ask(x, k, dim, True, True, out, data)


@in_c
def test_what_c_says(launches: list[tuple[int, ...]]) -> None:
    assert ask(X) is None
    autotopk.topk(X, K)
    out = outputs()
    answers = torch.return_types.topk, torch.return_types.topk_out  # type: ignore[attr-defined]
    assert (type(ask(X)), type(ask(X, out=out))) == answers
    assert [one._version for one in out] == [1, 1]
    ask(X, out=out, data=True)
    assert [one._version for one in out] == [1, 1], "torch's dispatcher counts"
    assert type(ask(X, out=(out[0].t(), out[1]))) is Plan
    assert ask(X, k=0) is NotImplemented
    for other in (X.to_sparse(), [1], None, X[:, 1:]):
        assert ask(other) is None
    assert (ask(X, k=True), ask(X, k=4.0), ask(X, dim=-1.0), ask(X, k=[4])) == (None,) * 4
    assert len(launches) == 4
    with pytest.raises(TypeError, match="7 arguments are needed, got 1"):
        declared.pairs.ask(X)


@in_c
def test_outputs_that_a_kernel_may_write(launches: list[tuple[int, ...]]) -> None:
    """Those that begin at 16 bytes, apart from the input; Python sees to others."""
    autotopk.topk(X, K)
    memory, columns = torch.zeros(24 + X.numel() + 24), torch.zeros(25, dtype=torch.int64)
    input = memory[24:-24].view(6, 50)
    input.copy_(X)

    def asked(values: Tensor, indices: Tensor) -> bool:
        return type(ask(input, out=(values.view(6, K), indices.view(6, K)))) is not Plan

    assert [asked(memory[begin:][:24], columns[:24]) for begin in (0, 4, 20, 24, 100, 300, 320, 324)] == [
        *(True, False, False, False, False, False, False, True)
    ]
    assert not asked(torch.zeros(25)[1:], columns[:24])
    assert not asked(torch.zeros(24), columns[1:])
    assert torch.equal(input, X)


def bind(launched: Callable[..., int], current_device: Callable[[], int] | None = None, values: bool = True) -> Any:
    of = [((6, K), (K, 1), dtype) for dtype in (torch.float32, torch.int64)]

    def empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(size, stride, dtype=dtype)

    def twin(*given: Any) -> Any:
        return "twin", *given

    return launch.native.bind(launched, twin, empty, of[0] if values else None, of[1], current_device, abs, 7)


@needs_c
def test_a_launch_with_its_tensors() -> None:
    given: list[tuple[int, ...]] = []

    def launched(*addresses: int) -> int:
        given.append(addresses)
        return 0

    values, indices = bind(launched)(X)
    alone = bind(launched, lambda: 7, values=False)(X)
    out = outputs()
    assert bind(launched)(X, out) == out
    x = X.data_ptr()
    assert given == [
        (7, x, values.data_ptr(), indices.data_ptr()),
        (7, x, 0, alone.data_ptr()),
        (7, x, out[0].data_ptr(), out[1].data_ptr()),
    ]


@needs_c
def test_the_twin_sees_to_what_is_not_usual() -> None:
    """Another device is current, or the driver refuses."""
    out = outputs()
    assert bind(lambda *_: 0, lambda: 6)(X) == ("twin", X)
    assert bind(lambda *_: 0, lambda: 6)(X, out) == ("twin", X, out)
    assert bind(lambda *_: 201)(X) == ("twin", X)


@needs_c
def test_errors_arrive() -> None:
    def fails(*_: int) -> int:
        raise ZeroDivisionError

    for of in (X, X.to_sparse(), 3):
        with pytest.raises((ZeroDivisionError, AttributeError, RuntimeError)):
            bind(fails)(of)
    for arguments in ((), (X, 3), (X, (X,)), (X, (X, 3)), (X, (X, X), X)):
        with pytest.raises((TypeError, AttributeError, SystemError)):
            bind(lambda *_: 0)(*arguments)


@in_c
def test_nothing_is_kept(launches: list[tuple[int, ...]]) -> None:
    """Not of answers, nor of what is refused, nor of functions made."""
    leaf, out = X.clone().requires_grad_(), outputs()
    for x in (X, leaf):
        autotopk.topk(x, K)
    asked: tuple[dict[str, Any], ...] = (
        *({"x": x, "data": data} for x in (X, leaf, X[1:], X.to_sparse(), 3) for data in (False, True)),
        *({"x": X, "out": one} for one in (out, (out[0], X), (out[0].t(), X), (X, 3), 3)),
        *({"x": X, "k": k} for k in (0, 4.0, [4])),
    )

    def everything() -> None:
        for one in asked:
            ask(**one)
        bind(lambda *_: 0)(X)

    def blocks() -> int:
        for _ in range(300):
            everything()
        launches.clear()
        gc.collect()
        return sys.getallocatedblocks()

    blocks()
    assert abs(blocks() - blocks()) < 150  # half of what one makes that is kept each time


def test_what_another_version_built_is_left_alone(cache_dir: Path) -> None:
    code = """
import sys, types
sys.modules["autotopk.runtime._launcher"] = types.ModuleType("an old one")
import torch, autotopk
from autotopk.runtime import launch
x = torch.randn(4, 64)
assert torch.equal(autotopk.topk(x, 3).values, torch.topk(x, 3).values)
print(launch.native)
"""
    assert python(code, environment(cache_dir)) == "None\n"
