"""`out=` is written as torch.topk writes it."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.oracle.reference import problems_with
from tests.runtime.same import unwarned

pytestmark = [unwarned, pytest.mark.usefixtures("backend")]

X = torch.randn(6, 9, generator=torch.Generator().manual_seed(1))
Out = tuple[Tensor, Tensor]

OUTS: dict[str, Callable[[], Out]] = {
    "fitting": lambda: (torch.zeros(6, 3), torch.zeros(6, 3, dtype=torch.int64)),
    "empty": lambda: (torch.empty(0), torch.empty(0, dtype=torch.int64)),
    "too small": lambda: (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.int64)),
    "too large": lambda: (torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.int64)),
    "one fits": lambda: (torch.zeros(6, 3), torch.zeros(1, dtype=torch.int64)),
    "broadcastable": lambda: (torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.int64)),
    "transposed": lambda: (torch.zeros(3, 6).t(), torch.zeros(3, 6, dtype=torch.int64).t()),
    "strided": lambda: (torch.zeros(6, 6)[:, ::2], torch.zeros(12, 3, dtype=torch.int64)[::2]),
}


@pytest.mark.parametrize("kind", OUTS)
def test_written_as_torch_writes(kind: str) -> None:
    ours, theirs = OUTS[kind](), OUTS[kind]()
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        expected_result = torch.topk(X, 3, out=theirs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = autotopk.topk(X, 3, out=ours)
    told = {str(warning.message) for warning in caught if warning.category is not autotopk.AutotopkWarning}
    assert told == {str(warning.message) for warning in expected}
    assert type(result) is type(expected_result)
    for returned, own, their in zip(result, ours, theirs, strict=True):
        assert returned is own
        assert own.shape == their.shape
        assert own.stride() == their.stride()
        assert torch.equal(own, their)


def test_memory_around_is_left_alone() -> None:
    values, indices = torch.full((8, 5), 7.0), torch.full((8, 5), 7)
    autotopk.topk(X, 3, out=(values[1:7, 1:4], indices[1:7, 1:4]))
    assert not problems_with(X, values[1:7, 1:4].contiguous(), indices[1:7, 1:4].contiguous(), 3)
    for memory in (values, indices):
        memory[1:7, 1:4] = 7
        assert (memory == 7).all()


def test_out_that_is_the_input() -> None:
    ours, theirs = X.clone(), X.clone()
    indices = torch.empty(6, 9, dtype=torch.int64)
    autotopk.topk(ours, 9, out=(ours, indices))
    torch.topk(theirs, 9, out=(theirs, indices.clone()))
    assert torch.equal(ours, theirs)


def test_out_and_gradients() -> None:
    x = X.clone().requires_grad_()
    out = OUTS["fitting"]()
    with pytest.raises(RuntimeError) as expected:
        torch.topk(x, 3, out=out)
    with pytest.raises(RuntimeError) as found:
        autotopk.topk(x, 3, out=out)
    assert str(found.value) == str(expected.value)
    with torch.no_grad():
        autotopk.topk(x, 3, out=out)
    assert not problems_with(x, *out, 3)


def test_along_another_dim() -> None:
    ours, theirs = ((torch.zeros(2, 9), torch.zeros(2, 9, dtype=torch.int64)) for _ in range(2))
    autotopk.topk(X, 2, 0, False, out=ours)
    torch.topk(X, 2, 0, False, out=theirs)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
