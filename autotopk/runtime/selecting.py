"""Windows by a kernel that serves them whole; see `selection` for what torch's operators do elsewhere."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from autotopk.asked import Asked, Checked
from autotopk.device import device_of
from autotopk.runtime import operations
from autotopk.runtime.planning import Plan, Planner
from autotopk.runtime.state import Runtime, default
from autotopk.runtime.views import View
from autotopk.told import task_of

_UNKNOWN: Any = object()
"""In place of a plan that was not made yet; None stands for torch's operators."""


class WindowKernels(Planner):
    """The fastest known kernel for the windows of a matrix on a GPU."""

    def __init__(self, name: str, *, runtime: Runtime = default) -> None:
        """`name` is its own among the operations of a runtime, whose winners, plans and failures count."""
        super().__init__(name, "windows", (1 << 31) - 1, runtime)

    def __call__(
        self, x: Tensor, k: int | Tensor, form: Checked, largest: bool, asked: Asked
    ) -> tuple[Tensor, ...] | None:
        """Indices, and positions and values as asked for, stable, in order where asked; None where none answers."""
        if not self._serves(x, form, asked):
            return None
        key = (x.shape, x.stride(), x.dtype, x.device, x.data_ptr() & 15, form.count, form.width, largest)
        plan: Plan | None = self._plans.get(key, _UNKNOWN)
        if plan is _UNKNOWN:
            plan = self._first(key, x, view_of(x, form, largest))
        if plan is None:
            return None
        task = task_of(x, k, form, asked)
        try:
            plan.run(x, task)
        except torch.OutOfMemoryError:
            return None
        except Exception as error:  # the failed candidate is left out; the next one answers
            self._runtime.block(plan.choice.candidate, device_of(x.device), error)
            self._plans.pop(key, None)
            return self(x, k, form, largest, asked)
        return tuple(one for one in (task.indices, task.positions, task.values) if one is not None)

    def _serves(self, x: Tensor, form: Checked, asked: Asked) -> bool:
        """Whether it is a call for windows of plain data on a GPU, without derivatives."""
        windows = any(asked.get(name) is not None for name in ("starts", "ends", "lengths", "rows"))
        if not windows or not x.is_cuda or not form.count or not form.width or not x.numel() or x.is_neg():
            return False
        if asked.get("return_values", False) and x.requires_grad and torch.is_grad_enabled():
            return False
        plain = all(operations.is_plain(one, False) for one in (x, *asked.values()) if isinstance(one, Tensor))
        return plain and not operations.is_transformed() and not operations.is_tracing()


def view_of(x: Tensor, form: Checked, largest: bool) -> View | None:
    """The rows of the matrix; None where their columns are not adjacent."""
    view = View.of(x, min(form.width, x.shape[1]), 1, largest, True, True)
    if view is None or view.copied:
        return None
    return view._replace(problem=replace(view.problem, rows=form.count, answer="windows"))
