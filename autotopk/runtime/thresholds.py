"""The k-th element of a row, and who is among the k best: by kernels, or torch operators around top-k."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from autotopk.device import device_of
from autotopk.problem import KTH
from autotopk.runtime import operations
from autotopk.runtime.planning import Plan, Planner
from autotopk.runtime.state import Runtime, default
from autotopk.runtime.views import View

FEW = 4096
"""The largest k that kernels sort in every dtype; beyond it one that looks for the k-th alone answers on a GPU."""

TopK = Callable[[Tensor, int, int, bool, bool], Any]
"""With the arguments and the result of torch.topk."""


_UNKNOWN: Any = object()
"""In place of a plan that was not made yet; None stands for torch.kthvalue."""


class KthKernels(Planner):
    """The fastest known kernel for the k-th of every row on a GPU."""

    def __init__(self, name: str, *, runtime: Runtime = default) -> None:
        """`name` is its own among the operations of a runtime, whose winners, plans and failures count."""
        super().__init__(name, KTH, None, runtime)

    def __call__(self, x: Tensor, k: int, dim: int, largest: bool) -> tuple[Tensor, Tensor] | None:
        """Values and int64 indices with a size of 1 at `dim`, without derivatives; None where no kernel answers."""
        if not operations.is_plain(x, False) or operations.is_transformed() or operations.is_tracing() or x.is_neg():
            return None
        key = (x.shape, x.stride(), x.dtype, x.device, x.data_ptr() & 15, k, dim, largest)
        plan: Plan | None = self._plans.get(key, _UNKNOWN)
        if plan is _UNKNOWN:
            view = View.of(x.detach(), k, dim, largest, True)
            if view is not None:
                view = view._replace(problem=replace(view.problem, answer=KTH), size=(*view.size[:-1], 1))
            plan = self._first(key, x.detach(), view)
        if plan is None:
            return None
        try:
            found: tuple[Tensor, Tensor] = plan.run(x.detach())
        except torch.OutOfMemoryError:
            return None
        except Exception as error:  # the failed candidate is left out; the next one answers
            self._runtime.block(plan.choice.candidate, device_of(x.device), error)
            self._plans.pop(key, None)
            return self(x, k, dim, largest)
        return found


Kth = Callable[[Tensor, int, int, bool], tuple[Tensor, Tensor] | None]
"""As `KthKernels`."""


def kth_value(topk: TopK, kth: Kth, x: Tensor, k: int, dim: int, largest: bool) -> Any:
    """See `api.kth_value`. What torch.kthvalue refuses it is asked, so that it says why."""
    if type(largest) is not bool:
        raise TypeError(f"largest={largest!r} is not a bool")
    usual = isinstance(x, Tensor) and type(k) is int and type(dim) is int
    if not usual or not x.dim() or not -x.dim() <= dim < x.dim() or not 0 < k <= x.shape[dim]:
        return torch.kthvalue(x, k, dim)
    size = x.shape[dim]
    others = size - k + 1  # from the other end
    nearest, its_end = (k, largest) if k <= others else (others, not largest)
    if x.is_cuda and nearest > FEW and (found := kth(x, nearest, dim, its_end)) is not None:
        values, indices = found
        if x.requires_grad and torch.is_grad_enabled():
            values = x.gather(dim, indices)
        return torch.return_types.kthvalue((values.squeeze(dim), indices.squeeze(dim)))
    if not x.is_cuda or nearest > FEW:
        return torch.kthvalue(x, others if largest else k, dim)
    values, indices = topk(x, nearest, dim, its_end, True)
    return torch.return_types.kthvalue((values.select(dim, nearest - 1), indices.select(dim, nearest - 1)))


def topk_mask(topk: TopK, x: Tensor, k: int, fill: float | None, dim: int, largest: bool) -> Tensor:
    """See `api.topk_mask`."""
    if fill is not None and not isinstance(fill, int | float):
        raise TypeError(f"fill={fill!r} is not a number or None")
    indices = topk(x.detach() if isinstance(x, Tensor) else x, k, dim, largest, False)[1]
    chosen = torch.zeros_like(x, dtype=torch.bool)
    chosen = chosen.scatter(dim, indices, True) if x.dim() or indices.numel() else chosen
    return chosen if fill is None else x.masked_fill(~chosen, fill)
