"""Lists of shards merged by a kernel on a GPU, or by torch's operators."""

from typing import Any

import torch
from torch import Tensor

from autotopk.device import device_of
from autotopk.lists import GIVEN, Lists, Parts, listed
from autotopk.problem import DTYPE_BYTES, MERGED, MemoryLayout, Problem
from autotopk.runtime import operations
from autotopk.runtime.merging import merge_ordered
from autotopk.runtime.planning import Plan, Planner
from autotopk.runtime.state import Runtime, default
from autotopk.runtime.views import View
from autotopk.strategies.torch_fallback.merged import unpacked

_UNKNOWN: Any = object()
"""In place of a plan that was not made yet; None stands for torch's operators."""


class ListMerges(Planner):
    """The best of lists that are in order; of equals those of earlier lists, whoever answers."""

    def __init__(self, name: str, *, runtime: Runtime = default) -> None:
        """`name` is its own among the operations of a runtime, whose plans and failures count."""
        super().__init__(name, MERGED, (1 << 31) - 1, runtime)

    def __call__(
        self, memory: Tensor | Parts, lists: Lists, dtype: torch.dtype, largest: bool
    ) -> tuple[Tensor, Tensor]:
        """(rows, k) values and int64 places that count through all shards, in order."""
        own = memory.own if isinstance(memory, Parts) else memory
        if operations.is_plain(own, False) and own.is_cuda and not operations.is_transformed():
            found = self._of_kernel(memory, own, lists, dtype, largest)
            if found is not None:
                return found
        memory = memory.gathered() if isinstance(memory, Parts) else memory
        values, places = unpacked(memory, lists, dtype)
        values, places = merge_ordered(values, places, lists.k, largest, True)
        return values, places

    def _of_kernel(
        self, memory: Tensor | Parts, own: Tensor, lists: Lists, dtype: torch.dtype, largest: bool
    ) -> tuple[Tensor, Tensor] | None:
        """The same; None where no kernel answers."""
        cols = sum(lists.counts)
        key = (lists.rows, cols, lists.k, dtype, own.device, largest)
        plan: Plan | None = self._plans.get(key, _UNKNOWN)
        if plan is _UNKNOWN:
            plan = self._first(key, own, _view(lists, cols, dtype, largest))
        if plan is None or (len(lists.sizes) > GIVEN and listed(lists) is None):
            return None
        try:
            found: tuple[Tensor, Tensor] = plan.run(memory, lists)
        except torch.OutOfMemoryError:
            return None
        except Exception as error:  # the failed candidate is left out; the next one answers
            self._runtime.block(plan.choice.candidate, device_of(own.device), error)
            self._plans.pop(key, None)
            return self._of_kernel(memory, own, lists, dtype, largest)
        return found


def _view(lists: Lists, cols: int, dtype: torch.dtype, largest: bool) -> View | None:
    """Rows of all entries; None of dtypes that strategies do not know."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        return None
    problem = Problem(
        lists.rows, cols, lists.k, name, largest, answer=MERGED, device_type="cuda", layout=MemoryLayout(cols)
    )
    return View(problem, (lists.rows, lists.k), -1, copied=False)


merge_lists = ListMerges("merge_lists")
