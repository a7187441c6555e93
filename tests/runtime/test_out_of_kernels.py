"""`out=` of kernels: written in place where that is what torch.topk would do, else copied to."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.runtime import driver, launch
from tests.runtime.conftest import Planted
from tests.runtime.same import unwarned

pytestmark = unwarned

K = 4
Out = tuple[Tensor, Tensor]


X = torch.randn(6, 50)


def fresh(rows: int = 6) -> Out:
    return torch.zeros(rows, K), torch.zeros(rows, K, dtype=torch.int64)


def right(out: Out, x: Tensor = X) -> bool:
    return all(map(torch.equal, out, torch.topk(x, K)))


def addresses_of(out: Out) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in out)


def test_kernels_write_to_plain_outputs(launches: list[tuple[int, ...]]) -> None:
    out = fresh()
    versions = [tensor._version for tensor in out]
    result = autotopk.topk(X, K, out=out)
    assert type(result) is torch.return_types.topk_out  # type: ignore[attr-defined]
    assert result.values is out[0]
    assert result.indices is out[1]
    assert launches == [addresses_of(out)]
    assert right(out)
    assert [tensor._version for tensor in out] == [version + 1 for version in versions]


def test_three_dimensions(launches: list[tuple[int, ...]]) -> None:
    x, out = X.view(2, 3, 50), (torch.zeros(2, 3, K), torch.zeros(2, 3, K, dtype=torch.int64))
    autotopk.topk(x, K, out=out)
    assert launches == [addresses_of(out)]
    assert right(out, x)


def misaligned() -> Out:
    values, indices = torch.zeros(100), torch.zeros(100, dtype=torch.int64)
    return values[1 : 1 + 6 * K].view(6, K), indices[1 : 1 + 6 * K].view(6, K)


OTHERS: dict[str, Callable[[], Out]] = {
    "misaligned": misaligned,
    "transposed": lambda: (torch.zeros(K, 6).t(), torch.zeros(K, 6, dtype=torch.int64).t()),
    "columns": lambda: (torch.zeros(6, 9)[:, :K], torch.zeros(6, 9, dtype=torch.int64)[:, :K]),
    "values negated when read": lambda: (torch._neg_view(torch.zeros(6, K)), fresh()[1]),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_outputs_are_copied_to(kind: str, launches: list[tuple[int, ...]]) -> None:
    out = OTHERS[kind]()
    autotopk.topk(X, K, out=out)
    assert len(launches) == 1
    assert not set(launches[0]) & set(addresses_of(out))
    assert right(out)


@pytest.mark.parametrize("kind", ["empty", "other shape", "other dtype", "list"])
def test_what_torch_adjusts_or_refuses_is_torchs(kind: str, launches: list[tuple[int, ...]]) -> None:
    out: dict[str, Any] = {
        "empty": (torch.empty(0), torch.empty(0, dtype=torch.int64)),
        "other shape": (torch.empty(0, 3), torch.empty(6, K, dtype=torch.int64)),
        "other dtype": (torch.zeros(6, K, dtype=torch.float64), torch.zeros(6, K, dtype=torch.int64)),
        "list": list(fresh()),
    }
    if kind == "other dtype":
        with pytest.raises(RuntimeError, match="dtype"):
            autotopk.topk(X, K, out=out[kind])
    else:
        autotopk.topk(X, K, out=out[kind])
        assert right(out[kind])
    assert launches == []


@pytest.mark.parametrize("at", [0, 8, 100])
def test_outputs_inside_the_input(at: int, launches: list[tuple[int, ...]]) -> None:
    """A kernel that wrote there would read its own results."""
    x = X.clone()
    out = x.view(-1)[at : at + 6 * K].view(6, K), torch.zeros(6, K, dtype=torch.int64)
    expected = torch.topk(X, K)
    autotopk.topk(x, K, out=out)
    assert all(map(torch.equal, out, expected))
    assert not set(launches[0]) & set(addresses_of(out))


def test_outputs_beside_the_input(launches: list[tuple[int, ...]]) -> None:
    """In one storage, right behind it and right before it."""
    memory = torch.zeros(24 + 300 + 24)
    x = memory[24:324].view(6, 50).copy_(X)
    for at in (0, 324):
        out = memory[at : at + 24].view(6, K), torch.zeros(6, K, dtype=torch.int64)
        autotopk.topk(x, K, out=out)
        assert launches.pop() == addresses_of(out)
        assert right(out)


def test_outputs_that_overlap_themselves(launches: list[tuple[int, ...]]) -> None:
    out = torch.zeros(1, K).expand(6, K), torch.zeros(6, K, dtype=torch.int64)
    with pytest.raises(RuntimeError) as expected:
        torch.topk(X, K, out=out)
    with pytest.raises(RuntimeError) as found:
        autotopk.topk(X, K, out=out)
    assert str(found.value) == str(expected.value)
    autotopk.topk(X, K)
    assert len(launches) == 2, "the strategy was not left out"


def test_what_autograd_kept_must_not_be_overwritten_unseen(launches: list[tuple[int, ...]]) -> None:
    out, weights = fresh(), torch.ones(6, K, requires_grad=True)
    product = (weights * out[0]).sum()
    autotopk.topk(X, K, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_inference_tensors(launches: list[tuple[int, ...]]) -> None:
    with torch.inference_mode():
        out = fresh()
        autotopk.topk(X, K, out=out)
        assert launches.pop() == addresses_of(out)
        assert right(out)
    with pytest.raises(RuntimeError) as expected:
        torch.topk(X, K, out=out)
    with pytest.raises(RuntimeError) as found:
        autotopk.topk(X, K, out=out)
    assert str(found.value) == str(expected.value)


def test_along_another_dimension(launches: list[tuple[int, ...]]) -> None:
    """Rows are moved, and so are their results."""
    out = torch.zeros(K, 6), torch.zeros(K, 6, dtype=torch.int64)
    autotopk.topk(X.t(), K, 0, out=out)
    assert all(map(torch.equal, out, torch.topk(X.t(), K, 0)))
    assert len(launches) == 1


def test_a_launch_that_fails(
    planted: Planted, launches: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.topk writes over what the kernel left."""
    monkeypatch.setattr(launch, "_launch", lambda *_: (lambda *_: 1, "kernel"))
    monkeypatch.setattr(driver, "error_name", lambda code: "CUDA_ERROR_INVALID_VALUE")
    out = fresh()
    with pytest.warns(autotopk.AutotopkWarning, match="CUDA_ERROR_INVALID_VALUE"):
        autotopk.topk(X, K, out=out)
    assert right(out)
