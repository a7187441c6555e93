"""What users call: `topk` and `topk_indices`, two declared operations."""

from typing import Any

import torch
from torch import Tensor

from autotopk.runtime import operations
from autotopk.runtime.operations import Operation, torch_topk
from autotopk.runtime.state import default

Result = torch.return_types.topk
_ResultOut: Any = getattr(torch.return_types, "topk_out", Result)  # missing from torch's stubs


def _narrowed(pairs: tuple[Tensor, Tensor]) -> Tensor:
    return pairs[1].to(torch.int32)


_topk = Operation("topk", of_pairs=Result).__call__
_topk_indices = Operation("topk_indices", answer="indices", of_pairs=_narrowed, longest=(1 << 31) - 1).__call__


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
    if out is not None:
        return _topk_into(out, input, k, dim, largest, sorted)
    return _topk(input, k, dim, largest, sorted)


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


def _topk_into(out: tuple[Tensor, Tensor], input: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """As torch.topk, but that fitting plain outputs are filled from our own results."""
    if _fits_plainly(out, input):
        values, indices = _topk(input, k, dim, largest, sorted)
        if out[0].shape == values.shape == out[1].shape:
            out[0].copy_(values)
            out[1].copy_(indices)
            return _ResultOut(out)
    return torch_topk(input, k, dim, largest, sorted, out=out)


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
        and not operations.is_transformed()
    )


def reload() -> None:
    """Forget plans and winners: after tuning, or when environment variables changed."""
    default.reload()
