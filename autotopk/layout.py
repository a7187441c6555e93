"""How a tensor of any shape is seen as the rows of a matrix."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from torch import Tensor

from autotopk.problem import DTYPE_BYTES, Problem, vector_width

Plan = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From a tensor to values and int64 indices."""


@dataclass(frozen=True)
class Layout:
    """How a tensor of any shape is seen as the rows of a matrix."""

    problem: Problem
    batch: tuple[int, ...]
    """Sizes of all dimensions but the one that top-k runs along."""
    dim: int
    """Where that dimension is, counted from the end: -1 is the last."""
    copied: bool
    """Rows are not evenly spaced or columns not adjacent: a contiguous copy is made first."""

    @classmethod
    def of(cls, x: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> "Layout | None":
        """None where torch.topk must answer itself: 0-d, empty, k = 0, bad arguments, other dtypes and devices."""
        dtype = str(x.dtype).removeprefix("torch.")
        if x.dim() == 0 or x.numel() == 0 or not -x.dim() <= dim < x.dim():
            return None
        if not 0 < k <= x.shape[dim] or dtype not in DTYPE_BYTES or x.device.type not in ("cpu", "cuda"):
            return None
        rows_last = x.movedim(dim, -1)
        *batch, cols = rows_last.shape
        rows = x.numel() // cols
        row_stride = _row_stride(rows_last)
        problem = Problem.contiguous(rows, cols, k, dtype, x.device.type, largest=largest, sorted=sorted)
        if row_stride is not None:
            vector = vector_width(x.data_ptr(), row_stride, cols, x.element_size())
            problem = replace(problem, row_stride=row_stride, vector=vector)
        return cls(problem, tuple(batch), dim % x.dim() - x.dim(), copied=row_stride is None)

    def around(self, run: Plan) -> Plan:
        """The plan for the original tensor from the one for its rows."""
        dim, copied = self.dim, self.copied
        if dim == -1 and not copied:
            return run

        def moved(x: Tensor) -> tuple[Tensor, Tensor]:
            rows = x.movedim(dim, -1)
            values, indices = run(rows.contiguous() if copied else rows)
            return values.movedim(-1, dim).contiguous(), indices.movedim(-1, dim).contiguous()

        return moved


def _row_stride(x: Tensor) -> int | None:
    """Distance between rows where all leading dimensions step evenly and columns are adjacent, else None."""
    cols = x.shape[-1]
    if cols > 1 and x.stride(-1) != 1:
        return None
    leading = [(size, stride) for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True) if size > 1]
    for (_, outer), (size, inner) in pairwise(leading):
        if outer != size * inner:
            return None
    return leading[-1][1] if leading else cols
