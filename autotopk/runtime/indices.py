"""`topk_indices`: where the elements are, without the elements, in half the bytes."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from autotopk.device import device_of
from autotopk.runtime import dispatch, launch
from autotopk.runtime.api import is_plain, topk
from autotopk.runtime.dispatch import Choice
from autotopk.runtime.layout import Layout
from autotopk.runtime.plan_cache import PlanCache
from autotopk.runtime.state import default
from autotopk.strategy import KernelProgram

_plans: PlanCache[tuple[Callable[[Tensor], Tensor], Choice] | None] = default.plans("topk_indices")
"""How to run a layout, and the choice behind it; None where `topk` serves."""


def topk_indices(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Tensor:
    """The indices of the k largest or smallest elements along a dimension, as int32, as sparse attention takes them.

    Where the kernel that `topk` would run can write them alone, it does; elsewhere they are converted from topk's.

    Args:
        input: as for `topk`, at most 2**31 - 1 long in the dimension.
        k: how many, 0 <= k <= input.size(dim).
        dim: along which dimension.
        largest: the largest rather than the smallest; NaN counts as the largest of all.
        sorted: in the order of the elements; otherwise in any order.

    Returns:
        int32, the shape of input with k at `dim`. Which of equal elements is meant is not specified.

    Raises:
        OverflowError: the dimension is longer than int32 can count.
        Whatever torch.topk raises for the same arguments.
    """
    if not is_plain(input, k, dim, largest, sorted):
        return _converted(input, k, dim, largest, sorted)
    try:
        key = input.shape, input.stride(), input.dtype, input.device, input.data_ptr() & 15, k, dim, largest, sorted
    except RuntimeError:  # nested and other tensors without sizes or data
        return _converted(input, k, dim, largest, sorted)
    planned = _plans[key] if key in _plans else _plans.remember(key, _plan(input, k, dim, largest, sorted))
    if planned is None:
        return _converted(input, k, dim, largest, sorted)
    run, choice = planned
    try:
        return run(input)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        default.block(choice.candidate, device_of(input.device), error)
        _plans.pop(key, None)
        return topk_indices(input, k, dim, largest, sorted)


def _converted(input: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Tensor:
    indices: Tensor = topk(input, k, dim, largest, sorted).indices
    if input.dim() and input.shape[dim] >= 1 << 31:
        raise OverflowError(f"indices below {input.shape[dim]} do not fit int32")
    return indices.to(torch.int32)


def _plan(
    input: Tensor, k: int, dim: int, largest: bool, sorted: bool
) -> tuple[Callable[[Tensor], Tensor], Choice] | None:
    """The kernel that `topk` would run, made to write indices alone; None where it cannot."""
    layout = Layout.of(input, k, dim, largest, sorted)
    if layout is None or layout.copied or layout.dim != -1:
        return None
    device = device_of(input.device)
    problem = replace(layout.problem, indices_only=True)
    for choice in dispatch.choices(layout.problem, device):
        if not choice.strategy.indices_alone:
            return None
        try:
            program = choice.program(problem, device)
            if not isinstance(program, KernelProgram):
                return None
            run = launch.bind_indices(program, problem, device, index=input.device.index, size=layout.size)
        except Exception as error:  # also what a third party's strategy raises
            default.block(choice.candidate, device, error)
        else:
            return run, choice
    return None
