"""`topk` answers what torch.topk answers, for tensors of every shape, memory layout and dtype."""

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import autotopk
from autotopk.oracle import inputs
from tests.runtime.conftest import Planted
from tests.runtime.same import check, unwarned

pytestmark = [unwarned, pytest.mark.usefixtures("backend")]

ORDERS = list(itertools.product((True, False), (True, False)))
DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
]


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (2, 1, 4, 5)], ids=str)
def test_every_dim_and_k(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    for dim in range(-len(shape), len(shape)):
        for k in (0, 1, 2, shape[dim]):
            if k <= shape[dim]:
                for largest, order in ORDERS:
                    check(x, k, dim, largest, order)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (2, 0, 3), (1,), (1, 1)], ids=str)
def test_small_and_empty_shapes(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    for dim in range(-max(1, len(shape)), max(1, len(shape))):
        for k in (0, 1):
            if k <= (shape[dim] if shape else 1):
                check(x, k, dim)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(0, 2),
    "permuted": lambda x: x.permute(1, 2, 0),
    "row slice": lambda x: x[:, 1:4],
    "column slice": lambda x: x[:, :, 1:6],
    "every other column": lambda x: x[:, :, ::2],
    "every other row": lambda x: x[:, ::2],
    "reversed": lambda x: x.flip(2),
    "repeated columns": lambda x: x[:, :, :1].expand(-1, -1, 9),
    "repeated rows": lambda x: x[:1, :1].expand(5, 6, -1),
    "repeated outer rows": lambda x: x[:1].expand(5, -1, -1),
    "overlapping": lambda x: x.flatten().as_strided((4, 5, 6), (3, 1, 1)),
    "sliding windows": lambda x: x.flatten().unfold(0, 8, 1),
    "misaligned": lambda x: x.flatten()[1:31],
    "offset": lambda x: x[1, 2:],
    "one column of many": lambda x: x[:, :, 2:3],
    "channels last": lambda x: x.unsqueeze(0).contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
def test_memory_layouts(layout: str, dtype: torch.dtype) -> None:
    x = LAYOUTS[layout](inputs.make("random", 20, 7, 3, dtype, "cpu").view(4, 5, 7))
    for dim, (largest, order) in itertools.product(range(x.dim()), ORDERS):
        check(x, min(3, x.shape[dim]), dim, largest, order)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_of_every_kind(dtype: torch.dtype) -> None:
    for name, (largest, order) in itertools.product(inputs.names_for(dtype), ORDERS):
        check(inputs.make(name, 4, 257, 9, dtype, "cpu"), 9, -1, largest, order)


@pytest.mark.parametrize("k", [1, 128, 4097])
def test_long_rows(k: int) -> None:
    check(inputs.make("ties", 3, 4097, k, torch.float32, "cpu"), k)


def test_more_rows_than_a_grid_dimension() -> None:
    check(torch.randn(70_001, 3), 2)


@given(data=st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_strided_views(data: st.DataObject) -> None:
    """Any view of some memory, whatever its strides."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    stride = data.draw(st.lists(st.integers(0, 7), min_size=len(shape), max_size=len(shape)))
    x = torch.randn(200).as_strided(shape, stride, data.draw(st.integers(0, 9)))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = data.draw(st.integers(0, shape[dim]))
    check(x, k, dim, data.draw(st.booleans()), data.draw(st.booleans()))


def test_parameters_and_buffers() -> None:
    x = torch.nn.Parameter(torch.randn(4, 9), requires_grad=False)
    check(x, 3)


def test_arguments_by_name() -> None:
    x = torch.randn(4, 9)
    result = autotopk.topk(input=x, k=2, dim=0, largest=False, sorted=True)
    assert torch.equal(result.values, torch.topk(x, 2, 0, largest=False).values)


def test_results_are_independent() -> None:
    x = torch.randn(4, 9)
    first = autotopk.topk(x, 3)
    kept = first.values.clone()
    autotopk.topk(-x, 3)
    assert torch.equal(first.values, kept)


def test_same_layout_other_values() -> None:
    """A plan remembers a layout, not a tensor."""
    memory = torch.randn(400)
    for start in range(0, 300, 20):
        check(memory[start : start + 60].view(4, 15), 3)


def test_planted_strategy_is_what_answers(backend: str, request: pytest.FixtureRequest) -> None:
    """Else half of this module would test torch against itself."""
    if backend == "planted":
        planted: Planted = request.getfixturevalue("planted")
        check(torch.randn(4, 9), 3)
        assert planted.answers == 1
