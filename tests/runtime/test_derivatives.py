"""What eager calls have in the place of `gather`: a run of a kernel that torch can differentiate."""

from typing import Any

import pytest
import torch
from torch import Tensor

from autotopk.runtime.derivatives import TopK, selected
from tests.runtime.modes import Dispatched


def run(x: Tensor) -> tuple[Tensor, Tensor]:
    """Reads memory alone, as kernels do."""
    values, indices = torch.topk(x.detach(), 3)
    return values.clone(), indices.clone()


def leaf() -> Tensor:
    return torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def test_derivatives() -> None:
    """First and second, also of batches of them."""

    def values(x: Tensor) -> Tensor:
        found: Tensor = selected(x, run, -1)[0]
        return found

    assert torch.autograd.gradcheck(values, leaf(), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(values, leaf(), check_batched_grad=True)


def test_as_torch_topk() -> None:
    x = leaf()
    values, indices = selected(x, run, 1)
    expected = torch.topk(x, 3)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)
    assert (values.requires_grad, indices.requires_grad) == (True, False)
    assert values.grad_fn.name() == "TopKBackward"
    weights = torch.arange(12.0, dtype=torch.float64).reshape(4, 3)
    found = [torch.autograd.grad((one[0].square() * weights).sum(), x)[0] for one in ((values, indices), expected)]
    assert torch.equal(*found)


def test_values_may_be_changed_in_place_and_indices_may_not() -> None:
    x = leaf()
    values, _ = selected(x, run, -1)
    values.mul_(2).relu_().sum().backward()
    expected = leaf()
    torch.topk(expected, 3).values.mul(2).relu().sum().backward()
    assert torch.equal(*(one.grad for one in (x, expected)))  # type: ignore[arg-type]
    values, indices = selected(x, run, -1)
    indices.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation: the indices of topk, which are at ver"):
        values.sum().backward()


def test_a_gradient_costs_two_operators() -> None:
    """Zeros, and what is put among them: nothing for the indices, and no copy."""
    values, weights = selected(leaf(), run, -1)[0], torch.ones(4, 3, dtype=torch.float64)
    with Dispatched() as mode:
        values.backward(weights)
    names = [func.overloadpacket.__name__ for func in mode.seen]
    assert [name for name in names if name != "detach"] == ["new_zeros", "scatter_"]


class Lost(torch.autograd.Function):
    """Its input, of which no gradient comes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> None:
        return None


def test_no_gradient_gives_none() -> None:
    x = leaf()
    lost: Any = Lost.apply(selected(x, run, -1)[0])  # type: ignore[no-untyped-call]
    lost.sum().backward()
    assert x.grad is None


def test_the_shorter_way_is_the_usual_one() -> None:
    x, y = leaf(), leaf()
    usual: Any = TopK.apply
    ways = [selected(x, run, -1)[0], usual(y, run, -1)[0]]
    for values in ways:
        values.sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert torch.equal(x.grad, y.grad)
