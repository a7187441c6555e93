"""A problem that kernels are tried out on: how they are called for it, and what is wrong with their answers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autotopk.asked import Asked, Checked
from autotopk.oracle.inputs import make_bias
from autotopk.oracle.reference import problems_with
from autotopk.oracle.routing import problems_with_routes
from autotopk.oracle.windows import draw, problems_with_windows
from autotopk.problem import KTH, MERGED, WINDOWS, Problem
from autotopk.runtime.views import Run
from autotopk.strategies.torch_fallback import kth_by_torch
from autotopk.strategies.torch_fallback.merged import lists_in_order, merge_by_torch
from autotopk.strategies.torch_fallback.routed import route
from autotopk.strategies.torch_fallback.selected import windows_by_torch
from autotopk.told import task_of
from autotopk.torch_topk import torch_topk

SCALE = 2.5
"""Of weights."""

Call = Callable[[Tensor], Any]
"""From (rows, cols) to (values, int64 indices), (values, int32 indices) of windows, or to weights and indices."""


@dataclass(frozen=True)
class Trial:
    """A problem with what beside its rows is given."""

    problem: Problem
    bias: Tensor | None
    ends: Tensor | None
    """Of windows that begin with their rows."""

    @classmethod
    def of(cls, problem: Problem, device: str) -> "Trial":
        """With a bias where it takes one, and windows."""
        biased = problem.routing is not None and problem.routing.biased
        bias = make_bias(problem.cols, device) if biased else None
        return cls(problem, bias, draw(problem.rows, problem.cols, device) if problem.operation == WINDOWS else None)

    def call(self, run: Run) -> Call:
        """The call of what `launch.bind` gives."""
        if self.ends is not None:
            return partial(self._windows, run)
        if self.problem.operation == MERGED:
            return partial(self._merged, run)
        return run if self.problem.routing is None else lambda x: run(x, self.bias, SCALE)

    @property
    def torchs(self) -> Call:
        """The same by torch alone."""
        one = self.problem
        if self.ends is not None:
            return partial(self._windows, partial(windows_by_torch, largest=one.largest))
        if one.operation == KTH:
            return partial(kth_by_torch, k=one.k, largest=one.largest)
        if one.operation == MERGED:
            return partial(self._merged, partial(merge_by_torch, dtype=getattr(torch, one.dtype), largest=one.largest))
        if one.routing is None:
            return partial(torch_topk, k=one.k, dim=-1, largest=one.largest, sorted=one.sorted)
        return partial(route, bias=self.bias, scale=SCALE, k=one.k, routing=one.routing)

    def problems_with(self, x: Tensor, answer: tuple[Tensor, Tensor]) -> list[str]:
        """What the oracle says to an answer for rows, which may be fewer than the problem's."""
        one = self.problem
        if self.ends is not None:
            return problems_with_windows(x, self.ends[: len(x)], answer, one.k, one.largest, sorted=False)
        if one.operation == KTH:
            return problems_with_kth(x, answer, kth_by_torch(x, one.k, one.largest)[0])
        if one.routing is None:
            return problems_with(x, *answer, one.k, largest=one.largest, sorted=one.sorted)
        return problems_with_routes(x, self.bias, *answer, one.k, one.routing, SCALE)

    def _windows(self, run: Run, x: Tensor) -> tuple[Tensor, Tensor]:
        assert self.ends is not None
        form = Checked(len(x), self.problem.k, -1, torch.int32, sorted=False)
        asked: Asked = {"ends": self.ends[: len(x)], "return_values": True}
        task = task_of(x, self.problem.k, form, asked)
        run(x, task)
        assert task.values is not None
        return task.values, task.indices

    def _merged(self, run: Run, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of lists of k that have all columns between them, the first of what is left over."""
        cols, k = self.problem.cols, self.problem.k
        sizes = [cols % k or k, *[k] * (-(-cols // k) - 1)]
        memory, lists = lists_in_order(x.reshape(-1, cols), k, sizes, self.problem.largest)
        found: tuple[Tensor, Tensor] = run(memory, lists)
        return found


def problems_with_kth(x: Tensor, answer: tuple[Tensor, Tensor], expected: Tensor) -> list[str]:
    """What is wrong with (values, indices) of the k-th of every row; all are (rows, 1)."""
    values, indices = answer
    if bool(((indices < 0) | (indices >= x.shape[1])).any()):
        return ["indices are beyond the rows"]
    found = x.gather(1, indices)
    both = {"values": values, "elements at indices": found}
    wrong = {name: (one != expected) & ~(one.isnan() & expected.isnan()) for name, one in both.items()}
    return [f"{name} are not the k-th" for name, some in wrong.items() if bool(some.any())]
