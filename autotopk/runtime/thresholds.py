"""The k-th element of a row, and who is among the k best: by torch operators around top-k."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

FEW = 4096
"""The largest k that kernels sort in every dtype; beyond it torch.kthvalue answers on a GPU, too."""

TopK = Callable[[Tensor, int, int, bool, bool], Any]
"""With the arguments and the result of torch.topk."""


def kth_value(topk: TopK, x: Tensor, k: int, dim: int, largest: bool) -> Any:
    """See `api.kth_value`. What torch.kthvalue refuses it is asked, so that it says why."""
    if type(largest) is not bool:
        raise TypeError(f"largest={largest!r} is not a bool")
    usual = isinstance(x, Tensor) and type(k) is int and type(dim) is int
    if not usual or not x.dim() or not -x.dim() <= dim < x.dim() or not 0 < k <= x.shape[dim]:
        return torch.kthvalue(x, k, dim)
    size = x.shape[dim]
    others = size - k + 1  # from the other end
    if not x.is_cuda or min(k, others) > FEW:
        return torch.kthvalue(x, others if largest else k, dim)
    nearest, its_end = (k, largest) if k <= others else (others, not largest)
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
