"""How tensors are seen as rows: in place wherever they lie evenly, side by side where columns are not adjacent."""

import pytest
import torch
from torch import Tensor

from autotopk.problem import MemoryLayout
from autotopk.runtime.views import View


def ways(x: Tensor, dim: int, k: int = 1) -> list[View]:
    rows = View.of(x, k, dim, True, True)
    assert rows is not None
    return list(rows.ways(x))


@pytest.mark.parametrize(
    ("x", "dim", "inner", "row_stride", "col_stride"),
    [
        (torch.empty(7, 5), 0, 5, 0, 5),
        (torch.empty(3, 7, 5), 1, 5, 35, 5),
        (torch.empty(2, 3, 7, 5), -2, 5, 35, 5),
        (torch.empty(3, 7, 5, 2), 1, 10, 70, 10),
        (torch.empty(7, 5).t(), 1, 1, 1, 5),
        (torch.empty(3, 14)[:, ::2], 1, 1, 14, 2),
        (torch.empty(6, 7, 5)[::2], 1, 5, 70, 5),
        (torch.empty(3, 1).expand(3, 7), 1, 1, 1, 0),
    ],
)
def test_side_by_side(x: Tensor, dim: int, inner: int, row_stride: int, col_stride: int) -> None:
    beside, rows = ways(x, dim)
    assert beside.problem.layout.side_by_side
    assert not beside.copied
    assert beside.problem.layout == MemoryLayout(row_stride, col_stride, inner)
    expected = list(x.shape)
    expected[dim] = 1
    assert list(beside.size) == expected
    assert not rows.problem.layout.side_by_side
    assert (rows.problem.rows, rows.problem.cols) == (beside.problem.rows, beside.problem.cols)
    # every element is where the problem says
    offsets = torch.zeros(x.shape, dtype=torch.int64)
    for at, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        offsets += (torch.arange(size) * stride).view([-1 if at == axis else 1 for axis in range(x.dim())])
    matrix = offsets.movedim(dim, -1).reshape(-1, x.shape[dim])
    row = torch.arange(beside.problem.rows)[:, None]
    column = torch.arange(beside.problem.cols)
    assert torch.equal(matrix, row // inner * row_stride + row % inner + column * col_stride)
    assert beside.problem.layout.extent(*matrix.shape) == matrix.max() + 1


@pytest.mark.parametrize(
    ("x", "dim"),
    [
        (torch.empty(3, 7), 1),  # columns adjacent
        (torch.empty(3, 7).t(), 0),  # columns adjacent, the results are moved
        (torch.empty(6, 7, 5)[:, :, ::2], 1),  # neither rows nor columns adjacent
        (torch.empty(4, 3, 7, 5).transpose(0, 1), 2),  # rows not even
    ],
)
def test_rows_alone(x: Tensor, dim: int) -> None:
    (only,) = ways(x, dim)
    assert not only.problem.layout.side_by_side


def test_what_32_bits_cannot_count_is_not_read_side_by_side() -> None:
    x = torch.empty(1 << 25, dtype=torch.int8).expand(100, -1)
    assert [way.problem.layout.side_by_side for way in ways(x, 0, 63)] == [True, False]
    assert [way.problem.layout.side_by_side for way in ways(x, 0, 64)] == [False]
