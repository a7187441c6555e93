"""What users call: `topk` and `topk_indices`, two declared operations."""

from typing import Any

import torch
from torch import Tensor

from autotopk.runtime import operators
from autotopk.runtime.operations import Operation
from autotopk.runtime.outputs import Outputs
from autotopk.runtime.state import default
from autotopk.torch_topk import torch_topk

INPUTS = {"x", "a", "x1"}
"""Other names of `input` that torch.topk takes, from NumPy, where `dim` is called axis."""

_UNNAMED: Any = None
"""Stands for what is passed by another name, or is missing."""


def _narrowed(pairs: tuple[Tensor, Tensor]) -> Tensor:
    return pairs[1].to(torch.int32)


def _gathered(input: Tensor, dim: int, pairs: tuple[Tensor, Tensor]) -> Any:
    return torch.return_types.topk((input.gather(dim, pairs[1]), pairs[1]))


pairs = Operation("topk", of_pairs=torch.return_types.topk, attach=_gathered)
_indices = Operation(
    "topk_indices", answer="indices", of_pairs=_narrowed, attach=lambda *found: found[-1], longest=(1 << 31) - 1
)
operators.register(pairs, "(Tensor values, Tensor indices)")
operators.register(_indices, "Tensor")
_topk, _topk_indices = pairs.__call__, _indices.__call__


def topk(
    input: Tensor = _UNNAMED,
    k: int = _UNNAMED,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: Outputs | None = None,
    **aliases: Any,
) -> Any:
    """The k largest or smallest elements along a dimension: what `torch.topk` returns, from the fastest known kernel.

    Args:
        input: a tensor of any shape and any dtype that torch.topk takes on its device.
        k: how many, 0 <= k <= input.size(dim).
        dim: along which dimension.
        largest: the largest rather than the smallest; NaN counts as the largest of all.
        sorted: in order; otherwise in any order.
        out: (values, int64 indices) to write to.
        aliases: torch.topk's other names of `input` (x, a, x1) and `dim` (axis).

    Returns:
        `torch.return_types.topk` of values and int64 indices. Which of equal elements is returned is not specified.

    Raises:
        Whatever torch.topk raises for the same arguments.
    """
    if aliases:
        for name in INPUTS & aliases.keys():
            input = aliases.pop(name) if input is _UNNAMED else input
        if dim == -1 and "axis" in aliases:
            dim = aliases.pop("axis")
        if aliases:
            return torch_topk(input, k, dim, largest, sorted, out=out, **aliases)  # says what is wrong
    return _topk(input, k, dim, largest, sorted, out)


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
    indices: Tensor = _topk_indices(input, k, dim, largest, sorted)
    return indices


operators.script(topk, pairs)
operators.script(topk_indices, _indices)


def reload() -> None:
    """Forget plans and winners: after tuning, or when environment variables changed."""
    default.reload()
