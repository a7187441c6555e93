"""`kth_value` is torch.kthvalue from either end; `topk_mask` marks what `topk` returns."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES
from autotopk.runtime import thresholds
from tests.runtime.same import outcome, unwarned

pytestmark = [unwarned, pytest.mark.usefixtures("backend")]


class OnGpu(Tensor):
    """Data of the CPU that say otherwise."""

    is_cuda = True


def by_sorting(x: Tensor, k: int, dim: int, largest: bool) -> tuple[Tensor, Tensor]:
    """What a kernel finds that looks for large k alone, from the nearer end."""
    assert thresholds.FEW < k <= x.shape[dim] - k + 1
    found = x.detach().as_subclass(Tensor).sort(dim=dim, descending=largest)
    return found.values.narrow(dim, k - 1, 1), found.indices.narrow(dim, k - 1, 1)


def of_a_gpu(x: Tensor, k: int, dim: int, largest: bool, kth: Any = by_sorting) -> Any:
    """The way of a GPU, with torch.topk."""

    def topk(x: Tensor, *asked: Any) -> Any:
        return torch.topk(x.as_subclass(Tensor), *asked)

    return thresholds.kth_value(topk, kth, x.as_subclass(OnGpu), k, dim, largest)


def without_kernels(x: Tensor, k: int, dim: int, largest: bool) -> Any:
    """The same where no kernel answers."""
    found = of_a_gpu(x, k, dim, largest, lambda *_: None)
    return torch.return_types.kthvalue((found.values.as_subclass(Tensor), found.indices.as_subclass(Tensor)))


WAYS = {"CPU": lambda *asked: autotopk.kth_value(*asked), "GPU": of_a_gpu, "none": without_kernels}


@pytest.mark.parametrize("kth_value", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_kth_value(dtype: str, largest: bool, kth_value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every input, from either end, by topk and by torch.kthvalue."""
    monkeypatch.setattr(thresholds, "FEW", 9)
    for name in inputs.names_for(getattr(torch, dtype)):
        x = inputs.make(name, 4, 30, 7, getattr(torch, dtype), "cpu")
        for k, dim in ((1, -1), (7, 1), (15, -1), (25, -1), (30, 1), (3, 0)):
            found = kth_value(x, k, dim, largest)
            assert isinstance(found, torch.return_types.kthvalue)
            ordered = x.sort(dim=dim).values
            if largest:
                ordered = ordered.flip(dim)
            expected = ordered.select(dim, k - 1)
            torch.testing.assert_close(found.values, expected, rtol=0, atol=0, equal_nan=True)
            named = x.gather(dim, found.indices.unsqueeze(dim)).squeeze(dim)
            torch.testing.assert_close(named, expected, rtol=0, atol=0, equal_nan=True)


def test_derivatives_of_what_a_kernel_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "FEW", 2)
    x = torch.randn(2, 30, requires_grad=True)
    found = of_a_gpu(x, 9, 1, True)
    found.values.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.as_subclass(Tensor).nonzero()[:, 1], found.indices)


X = torch.randn(4, 9)

ASKED: dict[str, tuple[Any, ...]] = {
    "right": (X, 3),
    "dim": (X, 2, 0),
    "k zero": (X, 0),
    "k negative": (X, -1),
    "k too large": (X, 10),
    "k too large for its dim": (X, 5, 0),
    "k float": (X, 2.0),
    "k text": (X, "2"),
    "dim too large": (X, 2, 2),
    "dim float": (X, 2, 0.0),
    "bool input": (X > 0, 2),
    "list input": ([1.0], 1),
    "0-d": (torch.tensor(1.0), 1),
    "0-d, k too large": (torch.tensor(1.0), 2),
    "empty": (torch.randn(3, 0), 1),
    "no rows": (torch.randn(0, 3), 2),
}


@pytest.mark.parametrize("name", ASKED)
def test_takes_and_refuses_what_kthvalue_does(name: str) -> None:
    expected = outcome(torch.kthvalue, *ASKED[name])
    assert outcome(autotopk.kth_value, *ASKED[name]) == expected
    if "too large" in name or "zero" in name or "negative" in name:
        assert expected[0] in (RuntimeError, IndexError)
        assert outcome(autotopk.kth_value, *ASKED[name], largest=True) == expected


def test_kth_value_from_above_says_what_is_no_bool() -> None:
    with pytest.raises(TypeError, match="largest=1 is not a bool"):
        autotopk.kth_value(X, 2, -1, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("kth_value", [lambda *asked: autotopk.kth_value(*asked), of_a_gpu], ids=["CPU", "GPU"])
@pytest.mark.parametrize("largest", [True, False])
def test_derivatives_of_kth_value(largest: bool, kth_value: Any) -> None:
    x, weights = X.clone().requires_grad_(), torch.randn(4)
    found = kth_value(x, 3, -1, largest)
    (found.values * weights).sum().backward()
    assert x.grad is not None
    expected = torch.zeros(4, 9).scatter(1, found.indices.detach()[:, None], weights[:, None])
    assert torch.equal(x.grad, expected)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_mask(dtype: str, largest: bool) -> None:
    for name in inputs.names_for(getattr(torch, dtype)):
        x = inputs.make(name, 4, 30, 7, getattr(torch, dtype), "cpu")
        for k, dim in ((0, -1), (1, 1), (7, -1), (30, -1), (2, 0)):
            mask = autotopk.topk_mask(x, k, dim=dim, largest=largest)
            assert mask.dtype == torch.bool
            assert mask.shape == x.shape
            assert (mask.sum(dim) == k).all()
            chosen = (
                x.movedim(dim, -1)[mask.movedim(dim, -1)]
                .view(x.numel() // x.shape[dim], k)
                .sort(1, descending=largest)
                .values
            )
            expected = torch.topk(x, k, dim, largest).values.movedim(dim, -1).reshape(chosen.shape)
            torch.testing.assert_close(chosen, expected, rtol=0, atol=0, equal_nan=True)
            filled = autotopk.topk_mask(x, k, 3, dim, largest)
            assert torch.equal(filled.isnan(), x.isnan() & mask)
            torch.testing.assert_close(filled, torch.where(mask, x, 3).to(x.dtype), equal_nan=True)
            lowest = autotopk.topk_mask(x, k, dim=dim, largest=largest, stable=True)
            indices = autotopk.topk(x, k, dim, largest, stable=True).indices
            assert torch.equal(lowest, torch.zeros_like(lowest).scatter(dim, indices, True))


def test_mask_of_numbers() -> None:
    assert autotopk.topk_mask(torch.tensor(2.0), 1).item() is True
    assert autotopk.topk_mask(torch.tensor(2.0), 1, 0.0).item() == 2.0


MASKED: dict[str, tuple[Any, ...]] = {
    "k too large": (X, 10),
    "k negative": (X, -1),
    "k float": (X, 2.0),
    "bool input": (X > 0, 2),
    "list input": ([1.0], 1),
}


@pytest.mark.parametrize("name", MASKED)
def test_mask_refuses_what_topk_does(name: str) -> None:
    assert outcome(autotopk.topk_mask, *MASKED[name]) == outcome(torch.topk, *MASKED[name])


def test_fill_is_a_number() -> None:
    with pytest.raises(TypeError, match="fill='no' is not a number or None"):
        autotopk.topk_mask(X, 2, "no")  # type: ignore[arg-type]


def test_derivatives_of_what_is_left() -> None:
    x, weights = X.clone().requires_grad_(), torch.randn(4, 9)
    (autotopk.topk_mask(x, 3, -torch.inf).exp() * weights).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, X.exp() * weights * autotopk.topk_mask(X, 3))
    for fill in (None, 0.0):
        batched: Any = torch.vmap(partial(autotopk.topk_mask, k=3, fill=fill))
        assert torch.equal(batched(X), autotopk.topk_mask(X, 3, fill))


def test_compile_whole() -> None:
    torch.compiler.reset()
    for function in (partial(autotopk.topk_mask, k=3, fill=0.0), partial(autotopk.kth_value, k=3, largest=True)):
        compiled: Any = torch.compile(function, fullgraph=True, backend="aot_eager")
        found, expected = compiled(X), function(X)
        assert all(map(torch.equal, found, expected))
