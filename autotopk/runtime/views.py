"""How a tensor of any shape is seen as the rows of a matrix."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from autotopk.problem import DTYPE_BYTES, VECTOR_BYTES, MemoryLayout, Problem, vector_width

_DTYPES = {getattr(torch, name): name for name in DTYPE_BYTES}

Run = Callable[..., Any]
"""From a tensor to the tensors of an answer, a tuple of them or one."""


class View(NamedTuple):
    """One way to see a tensor as the rows of a matrix."""

    problem: Problem
    size: tuple[int, ...]
    """Sizes of what the kernel writes: k in place of the dimension that top-k runs along, or at the end."""
    dim: int
    """Where that dimension is, counted from the end: -1 is the last."""
    copied: bool
    """Rows are not evenly spaced or columns not adjacent: a contiguous copy is made first."""

    @classmethod
    def of(cls, x: Tensor, k: int, dim: int, largest: bool, sorted: bool, stable: bool = False) -> "View | None":
        """None where the call must go to torch.topk: 0-d, empty, k = 0, bad arguments, other dtypes and devices."""
        dtype, batch = _DTYPES.get(x.dtype), [*x.shape]
        place = "cuda" if x.is_cuda else "cpu" if x.is_cpu else None  # a device's type is a new text every time
        dims = len(batch)
        if dtype is None or not -dims <= dim < dims or place is None:
            return None
        cols, dim = batch.pop(dim), dim % dims - dims
        rows = prod(batch)
        if not (rows and 0 < k <= cols):
            return None
        row_stride: int | None = cols  # of most tensors, whose strides need not be looked at
        if dim != -1 or not x.is_contiguous():
            strides = [*x.stride()]
            step = strides.pop(dim)
            row_stride = _row_stride(batch, strides, cols, step)
        address, stride = (0, cols) if row_stride is None else (x.data_ptr(), row_stride)  # of the copy, of the tensor
        vector = vector_width(address, stride, cols, DTYPE_BYTES[dtype])
        layout = MemoryLayout(stride, vector=vector, aligned=address % VECTOR_BYTES == 0)
        sizes = rows, cols, k, dtype
        problem = Problem(*sizes, largest, sorted, stable=stable, device_type=place, layout=layout)
        return cls(problem, (*batch, k), dim, row_stride is None)

    def beside(self, x: Tensor) -> "View | None":
        """The same tensor seen as rows side by side, without a copy.

        None where the tensor has no such layout, where its rows are adjacent in memory anyway, and where an offset
        into it or into the outputs would not fit 32 bits.
        """
        if self.dim == -1 and not self.copied:
            return None
        at = x.dim() + self.dim
        sizes, strides = x.shape, x.stride()
        row_stride = _even_stride(sizes[:at], strides[:at], alone=0)
        if row_stride is None or _even_stride(sizes[at + 1 :], strides[at + 1 :], alone=1) != 1:
            return None
        layout = MemoryLayout(row_stride, col_stride=strides[at], inner=prod(sizes[at + 1 :]))
        rows, cols, k = self.problem.rows, self.problem.cols, self.problem.k
        if not layout.side_by_side or max(layout.extent(rows, cols), rows * k) >= 1 << 31:
            return None
        size = (*sizes[:at], k, *sizes[at + 1 :])
        return View(replace(self.problem, layout=layout), size, self.dim, copied=False)

    def ways(self, x: Tensor) -> "Sequence[View]":
        """Every way to see the tensor, the one without copies first."""
        beside = self.beside(x)
        return (self,) if beside is None else (beside, self)

    @property
    def result_size(self) -> tuple[int, ...]:
        """Of the results for the original tensor."""
        if self.dim == -1 or self.problem.layout.side_by_side:
            return self.size
        *batch, k = self.size
        batch.insert(len(self.size) + self.dim, k)
        return tuple(batch)

    @property
    def reach(self) -> int:
        """Bytes from the tensor's first element to its last, where it is not copied."""
        return self.problem.layout.extent(self.problem.rows, self.problem.cols) * self.problem.itemsize

    def around(self, run: Run) -> Run:
        """The call for the original tensor from the one for its rows."""
        dim, copied = self.dim, self.copied
        if (dim == -1 and not copied) or self.problem.layout.side_by_side:
            return run

        size = self.result_size
        strides = fresh_strides(size)

        def back(rows: Tensor) -> Tensor:
            return laid_out(rows.movedim(-1, dim), size, strides)

        def moved(x: Tensor, *more: Any) -> Any:
            rows = x.movedim(dim, -1)
            found = run(rows.contiguous() if copied else rows, *more)
            return back(found) if isinstance(found, Tensor) else tuple(map(back, found))

        return moved


def fresh_strides(size: Sequence[int]) -> tuple[int, ...]:
    """The strides that torch gives to a new tensor."""
    strides = [1]  # asking torch takes 10 ms the first time
    for one in size[:0:-1]:
        strides.append(strides[-1] * one)
    return tuple(strides[::-1]) if size else ()


def laid_out(x: Tensor, size: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """The elements as a new tensor of a size has them, copied only where they are in another order.

    `contiguous` alone leaves any strides to dimensions of size 1, and those decide what may be viewed as another dtype.
    """
    x = x.contiguous()
    return x if x.shape == size and x.stride() == strides else x.as_strided(size, strides)


def even_row_stride(x: Tensor) -> int | None:
    """Distance between rows where all leading dimensions step evenly and columns are adjacent, else None."""
    *batch, cols = x.shape
    *strides, step = x.stride()
    return _row_stride(batch, strides, cols, step)


def _row_stride(batch: Sequence[int], strides: Sequence[int], cols: int, step: int) -> int | None:
    """The same by the sizes and strides of the leading dimensions, and of the columns."""
    return None if cols > 1 and step != 1 else _even_stride(batch, strides, alone=cols)


def _even_stride(sizes: Sequence[int], strides: Sequence[int], *, alone: int) -> int | None:
    """Distance between neighbours where these dimensions step evenly as one, else None; `alone` for one element."""
    wide = [one for one in zip(sizes, strides, strict=True) if one[0] > 1]
    for (_, outer), (size, inner) in pairwise(wide):
        if outer != size * inner:
            return None
    return wide[-1][1] if wide else alone
