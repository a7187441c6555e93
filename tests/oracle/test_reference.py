"""The oracle accepts torch.topk's answers and reports every kind of planted error."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with

DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
)
ORDERS = list(itertools.product((True, False), (True, False)))


def bits(*patterns: int) -> Tensor:
    """(1, n) float32 with these bits."""
    return torch.tensor([patterns], dtype=torch.int64).to(torch.int32).view(torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_accepts_torch(dtype: torch.dtype) -> None:
    for name, (rows, cols, k) in itertools.product(inputs.names_for(dtype), ((1, 1, 1), (3, 7, 7), (5, 300, 10))):
        x = inputs.make(name, rows, cols, k, dtype, "cpu")
        for largest, order in ORDERS:
            answer = torch.topk(x, k, -1, largest, order)
            assert not problems_with(x, *answer, k, largest=largest, sorted=order), (name, rows, cols, k, largest)


@pytest.mark.parametrize(
    ("shape", "k", "dim"), [((), 1, 0), ((), 1, -1), ((5,), 2, 0), ((4, 6), 3, 0), ((3, 4, 5), 2, 1)]
)
def test_accepts_any_dim(shape: tuple[int, ...], k: int, dim: int) -> None:
    x = torch.randn(shape)
    for largest, order in ORDERS:
        assert not problems_with(x, *torch.topk(x, k, dim, largest, order), k, dim=dim, largest=largest, sorted=order)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (3, 4)])
def test_accepts_empty(shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    assert not problems_with(x, *torch.topk(x, 0), 0)


def test_accepts_any_choice_among_equals() -> None:
    x = torch.tensor([[2.0, 1.0, 1.0, 1.0], [-0.0, 0.0, -1.0, 0.0]])
    indices = torch.tensor([[0, 2], [3, 0]])
    assert not problems_with(x, x.gather(1, indices), indices, 2)


def test_accepts_any_order_only_where_it_is_free() -> None:
    x = torch.tensor([[3.0, float("nan"), 1.0, 2.0]])
    indices = torch.tensor([[0, 1, 3]])
    assert not problems_with(x, x.gather(1, indices), indices, 3, sorted=False)
    [problem] = problems_with(x, x.gather(1, indices), indices, 3)
    assert "wrong order" in problem


# Each plants one error in the right answer of `planted_input`, in row 2 of 4, and names what the oracle must say.
Plant = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def with_value(value: float) -> Plant:
    def plant(x: Tensor, values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        values[2, 1] = value
        return values, indices

    return plant


def with_index(index: int) -> Plant:
    def plant(x: Tensor, values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        indices[2, 1] = index
        return values, indices

    return plant


def other_element(x: Tensor, values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Consistent, but the last of the k is not among the largest."""
    indices[2, -1] = x[2].argmin()
    values[2, -1] = x[2].min()
    return values, indices


def duplicate(x: Tensor, values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    indices[2, 1], values[2, 1] = indices[2, 0], values[2, 0]
    return values, indices


def swapped(x: Tensor, values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    order = torch.tensor([1, 0, 2])
    values[2], indices[2] = values[2, order], indices[2, order]
    return values, indices


def misindexed(x: Tensor, values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    indices[2] = indices[2].flip(0)
    return values, indices


PLANTS: dict[str, tuple[Plant, str]] = {
    "wrong value": (with_value(7.5), "without the bits of x[index]"),
    "wrong multiset": (with_value(7.5), "other than torch.topk's"),
    "nan for a number": (with_value(float("nan")), "other than torch.topk's"),
    "element not among the largest": (other_element, "other than torch.topk's"),
    "duplicate": (duplicate, "an index more than once"),
    "index -1": (with_index(-1), "an index outside [0, 9)"),
    "index past the end": (with_index(9), "an index outside [0, 9)"),
    "index far outside": (with_index(1 << 40), "an index outside [0, 9)"),
    "order": (swapped, "the right values in the wrong order"),
    "indices of other values": (misindexed, "without the bits of x[index]"),
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("largest", [True, False])
def test_reports_planted_error(plant: str, largest: bool) -> None:
    change, message = PLANTS[plant]
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(3))
    values, indices = change(x, *torch.topk(x, 3, largest=largest))
    problems = problems_with(x, values, indices, 3, largest=largest)
    found = [problem for problem in problems if message in problem]
    assert len(found) == 1, problems
    assert found[0].startswith("1 of 4 rows")
    assert "row 2" in found[0]


def test_reports_changed_nan_payload() -> None:
    x = bits(0x7FC00001, 0x3F800000)
    [problem] = problems_with(x, bits(0x7FC00002), torch.tensor([[0]]), 1)
    assert "bits 0x7fc00002" in problem
    assert "expected nan (bits 0x7fc00001)" in problem


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_reports_a_signalling_nan_made_quiet(dtype: torch.dtype) -> None:
    """Those of bfloat16 are made quiet by torch.topk itself on a CPU."""
    infinity = torch.full((1, 1), float("inf"), dtype=dtype)
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    signalling = (infinity.view(integer) + 1).view(dtype)
    assert not problems_with(signalling, signalling.clone(), torch.tensor([[0]]), 1)
    assert problems_with(signalling, torch.full_like(infinity, float("nan")), torch.tensor([[0]]), 1)


def test_reports_changed_sign_of_zero() -> None:
    x = torch.tensor([[0.0, -1.0]])
    [problem] = problems_with(x, torch.tensor([[-0.0]]), torch.tensor([[0]]), 1)
    assert "-0.0 (bits 0x80000000), expected 0.0 (bits 0x0)" in problem


def test_reports_number_ahead_of_nan() -> None:
    x = torch.tensor([[1.0, float("nan"), float("inf")]])
    problems = problems_with(x, torch.tensor([[float("inf")]]), torch.tensor([[2]]), 1)
    assert any("other than torch.topk's" in problem for problem in problems)


def test_tells_integers_apart_beyond_doubles() -> None:
    x = torch.tensor([[1 << 53, (1 << 53) + 1]])
    problems = problems_with(x, x[:, :1].clone(), torch.tensor([[0]]), 1)
    assert any("9007199254740992, expected 9007199254740993" in problem for problem in problems)


def test_reports_layout() -> None:
    x = torch.randn(4, 9)
    values, indices = torch.topk(x, 3)
    assert "values are torch.float64" in problems_with(x, values.double(), indices, 3)[0]
    assert "indices are torch.int32" in problems_with(x, values, indices.int(), 3)[0]
    assert "values have shape (4, 2), not (4, 3)" in problems_with(x, values[:, :2].contiguous(), indices, 3)[0]
    strided = indices.t().contiguous().t()
    assert "indices are not contiguous" in problems_with(x, values, strided, 3)[0]
    assert "values are on meta, not cpu" in problems_with(x, values.to("meta"), indices, 3)[0]


def test_reports_errors_along_another_dim() -> None:
    x = torch.randn(5, 3)
    values, indices = torch.topk(x, 2, 0)
    indices[1, 2] = indices[0, 2]
    assert any("row 2 at position 1" in problem for problem in problems_with(x, values, indices, 2, dim=0))


@pytest.mark.gpu
def test_works_where_the_tensors_are() -> None:
    x = inputs.make("nan", 64, 5000, 100, torch.float32, "cuda")
    values, indices = torch.topk(x, 100)
    assert not problems_with(x, values, indices, 100)
    indices[63, 99] = -1
    assert "row 63 at position 99: -1" in problems_with(x, values, indices, 100)[0]
