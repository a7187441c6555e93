"""`topk`: check, fast path, slow path."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from autotopk.device import device_of
from autotopk.errors import AutotopkWarning
from autotopk.runtime import dispatch, launch
from autotopk.runtime.dispatch import Choice
from autotopk.runtime.layout import Layout, Plan
from autotopk.runtime.plan_cache import PlanCache
from autotopk.runtime.state import default
from autotopk.strategy import HostProgram

Result = torch.return_types.topk
_ResultOut: Any = getattr(torch.return_types, "topk_out", Result)  # missing from torch's stubs

_plans: PlanCache[tuple[Plan, Choice | None]] = default.plans("topk")
"""How to run a layout, and the choice behind it; None where torch.topk itself is called."""


def _always(*_: object) -> bool:
    return True


# Cheap tests of what makes a tensor more than its data. Where a later torch has no such private function,
# every tensor counts as more, and torch.topk serves.
_is_compiling = torch.compiler.is_compiling
_overridden: Callable[[object], bool] = getattr(torch._C, "_has_torch_function_unary", _always)
_dispatch_modes: Callable[[], object] = getattr(torch._C, "_len_torch_dispatch_stack", _always)
_functorch = getattr(torch._C, "_functorch", None) if hasattr(forward_ad, "_current_level") else None
_transforms: Callable[[], object | None] = getattr(_functorch, "peek_interpreter_stack", _always)
_grad_enabled = torch.is_grad_enabled
_Parameter = torch.nn.Parameter
_strided = torch.strided


def is_plain(input: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> bool:
    """Whether a tensor is no more than its data, and the arguments have the very types of plan keys."""
    return not (
        type(k) is not int  # 2.0 and True would find the plans of 2 and 1
        or type(dim) is not int
        or not (largest is True or largest is False)
        or not (sorted is True or sorted is False)
        # tracing, modes, transforms, subclasses and autograd belong to torch.topk
        or _is_compiling()
        or not (type(input) is Tensor or type(input) is _Parameter)
        or _overridden(input)
        or _dispatch_modes()
        or _transforms() is not None
        or forward_ad._current_level >= 0
        or (input.requires_grad and _grad_enabled())
        or input.layout is not _strided
        or input.is_neg()
    )


def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: tuple[Tensor, Tensor] | None = None,
) -> Any:
    """The k largest or smallest elements along a dimension: what `torch.topk` returns, from the fastest known kernel.

    Args:
        input: a tensor of any shape and any dtype that torch.topk takes on its device.
        k: how many, 0 <= k <= input.size(dim).
        dim: along which dimension.
        largest: the largest rather than the smallest; NaN counts as the largest of all.
        sorted: in order; otherwise in any order.
        out: (values, int64 indices) to write to.

    Returns:
        `torch.return_types.topk` of values and int64 indices. Which of equal elements is returned is not specified.

    Raises:
        Whatever torch.topk raises for the same arguments.
    """
    if out is not None or not is_plain(input, k, dim, largest, sorted):
        return _topk_of_torch(input, k, dim, largest, sorted, out)
    try:
        layout = input.shape, input.stride(), input.dtype, input.device, input.data_ptr() & 15
    except RuntimeError:  # nested and other tensors without sizes or data
        return _topk_of_torch(input, k, dim, largest, sorted, out)
    key = layout, k, dim, largest, sorted
    planned = _plans.get(key)
    if planned is None:
        planned = _plans.remember(key, _plan(input, k, dim, largest, sorted))
    try:
        return Result(planned[0](input))
    except Exception as error:
        if planned[1] is None:
            raise  # what torch.topk itself raises
        return _after_failure(error, planned[1], key, input, k, dim, largest, sorted)


def _topk_of_torch(
    input: Tensor, k: int, dim: int, largest: bool, sorted: bool, out: tuple[Tensor, Tensor] | None
) -> Any:
    """torch.topk, except that fitting plain outputs are filled from our own results."""
    if out is None:
        return torch.topk(input, k, dim, largest, sorted)
    if _fits_plainly(out, input):
        values, indices = topk(input, k, dim, largest, sorted)
        if out[0].shape == values.shape == out[1].shape:
            out[0].copy_(values)
            out[1].copy_(indices)
            return _ResultOut(out)
    return torch.topk(input, k, dim, largest, sorted, out=out)


def _fits_plainly(out: tuple[Tensor, Tensor], input: Tensor) -> bool:
    """Whether outputs can be written by copies without any of the adjustments or errors that torch.topk has."""
    return (
        type(out) is tuple
        and len(out) == 2
        and all(type(tensor) is Tensor for tensor in (input, *out))
        and not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (input, *out)))
        and out[0].dtype == input.dtype
        and out[1].dtype == torch.int64
        and input.device == out[0].device == out[1].device
        and not _is_compiling()
        and _transforms() is None
    )


def _after_failure(
    error: Exception, choice: Choice, key: Any, input: Tensor, k: int, dim: int, largest: bool, sorted: bool
) -> Any:
    """Answer with the next candidate; the failed one is left out unless memory was short."""
    if isinstance(error, torch.OutOfMemoryError):
        return torch.topk(input, k, dim, largest, sorted)
    default.block(choice.candidate, device_of(input.device), error)
    _plans.pop(key, None)
    return topk(input, k, dim, largest, sorted)


def _plan(input: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> tuple[Plan, Choice | None]:
    def of_torch(x: Tensor) -> Any:
        return torch.topk(x, k, dim, largest, sorted)

    rows = Layout.of(input, k, dim, largest, sorted)
    if rows is None:
        return of_torch, None
    device = device_of(input.device)
    try:
        for layout in rows.ways(input):
            for choice in dispatch.choices(layout.problem, device):
                try:
                    program = choice.program(layout.problem, device)
                    if isinstance(program, HostProgram) and program.is_torch_topk:
                        return of_torch, None
                    run = launch.bind(program, layout.problem, device, index=input.device.index, size=layout.size)
                except Exception as error:  # also what a third party's strategy raises
                    default.block(choice.candidate, device, error)
                else:
                    return layout.around(run), choice
    except Exception as error:  # a third party's strategy raised when asked what it serves
        warnings.warn(f"no strategy could be chosen for {rows.problem}: {error!r}", AutotopkWarning, stacklevel=3)
    return of_torch, None


def reload() -> None:
    """Forget plans and winners: after tuning, or when environment variables changed."""
    default.reload()
