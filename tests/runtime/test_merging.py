"""Merges of lists against a stable sort of their union by index."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk import merge_topk
from tests.runtime.test_distributed import DTYPES, bits, drawn


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=5),
    st.integers(0, 3),
    st.sampled_from(DTYPES),
    st.sampled_from(["random", "special"]),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_the_best_of_all_lists(
    sizes: list[int], rows: int, dtype: torch.dtype, kind: str, largest: bool, sorted: bool, data: Any
) -> None:
    cols, seed = sum(sizes), data.draw(st.integers(0, 1000))
    x = drawn([rows, cols], dtype, kind, seed)
    k = data.draw(st.integers(0, cols))
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(rows, cols, generator=generator).argsort(1)  # which list has which element: any
    whole = torch.stack([x[row][order[row]] for row in range(rows)]) if rows else x
    values, indices = merge_topk(whole.split(sizes, 1), order.split(sizes, 1), k, largest, sorted)
    chosen = x.sort(dim=1, descending=largest, stable=True).indices[:, :k]
    if not sorted:  # in any order: both by index
        chosen, places = chosen.sort(1).values, indices.sort(1).indices
        indices, values = indices.gather(1, places), values.gather(1, places)
    expected = x.gather(1, chosen)
    assert torch.equal(indices, chosen)
    assert values.dtype is dtype
    assert bits(values) == bits(expected) or dtype.itemsize == 2
    torch.testing.assert_close(values, expected, rtol=0, atol=0, equal_nan=True)


def test_stacked_lists_and_gradients() -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)  # (lists, rows, n)
    indices = torch.arange(15).view(3, 1, 5).expand(3, 4, 5) * 1000 + 2**60
    values, found = merge_topk(x, indices, 6)
    rows = x.transpose(0, 1).flatten(1)
    assert torch.equal(values, rows.topk(6).values)
    assert torch.equal(found, rows.topk(6).indices * 1000 + 2**60)
    assert torch.autograd.gradcheck(lambda x: merge_topk(x, indices, 6).values, x)


LIST = torch.zeros(2, 3)
PLACES = torch.zeros(2, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("values", "indices", "error", "said"),
    [
        ([LIST], [PLACES.int()], TypeError, "int32, not torch.int64"),
        ([LIST], [PLACES[:, 1:]], ValueError, "differ in shape"),
        ([LIST, LIST[1:]], [PLACES, PLACES], ValueError, "same rows"),
        ([LIST, LIST.double()], [PLACES, PLACES], TypeError, "several dtypes"),
        ([], [], ValueError, "at least one"),
        (LIST, PLACES, ValueError, "not \\(lists, rows, n\\)"),
        ([LIST], [PLACES], RuntimeError, "k"),
    ],
)
def test_what_is_refused(values: Any, indices: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        merge_topk(values, indices, 4)
