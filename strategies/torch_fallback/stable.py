"""Stable top-k by torch operators: of equal elements those of the lowest places, in that order, on every device.

Equal are -0 and +0, and all NaNs. Elements become keys, integers of their own width in torch's order; a key and its
place make a rank, an integer that no other element of the row has, so that any top-k of ranks is the stable one. Keys
of 64 bits leave no room for a place: they are sorted instead, by a stable sort.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from autotopk.problem import DTYPE_BYTES
from autotopk.torch_topk import torch_topk

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element."""

Select = Callable[[Tensor, int, int], Tensor]
"""From int32 or int64 ranks, k and a dimension to the integer indices of the k largest along it, in order."""


def by_torch(ranks: Tensor, k: int, dim: int) -> Tensor:
    """By torch.topk."""
    indices: Tensor = torch_topk(ranks, k, dim, True, True)[1]
    return indices


def order_keys(x: Tensor, largest: bool) -> Tensor:
    """Integers as wide as the elements, of x's shape, the better the larger; equal where the elements are."""
    keys = x = x.resolve_neg()
    if x.is_floating_point():
        bits = x.view(_BITS[x.element_size()])
        greatest = torch.iinfo(bits.dtype).max
        keys = bits ^ ((bits >> (8 * x.element_size() - 1)) & greatest)
        keys = keys.masked_fill(x == 0, 0).masked_fill(x.isnan(), greatest)
    return keys if largest else ~keys


def best_places(
    x: Tensor, k: int, dim: int, largest: bool, inside: Tensor | None = None, select: Select = by_torch
) -> Tensor:
    """Indices along a dimension of the k best elements, in order, the lowest first among equals.

    Args:
        x: strided, of a dtype of `DTYPE_BYTES`, with at least one dimension.
        k: at most as many as there are along the dimension.
        dim: the dimension.
        largest: the best are the largest.
        inside: bool, of x's shape; the others come after all that are inside. None where all are.
        select: answers for ranks.
    """
    keys = order_keys(x, largest)
    if x.element_size() == 8:
        order = keys.sort(dim=dim, descending=True, stable=True).indices
        if inside is not None:
            order = order.gather(dim, inside.gather(dim, order).sort(dim=dim, descending=True, stable=True).indices)
        return order.narrow(dim, 0, k).contiguous()
    ranks = _ranks(keys, dim)
    if inside is not None:
        ranks.masked_fill_(~inside, torch.iinfo(ranks.dtype).min)
    return select(ranks, k, dim)


def _ranks(keys: Tensor, dim: int) -> Tensor:
    """Int32 where that has room for keys and places, else int64; in the order of keys, then the lowest place first.

    All are above the least number of their dtype.
    """
    size, bits = keys.shape[dim], 8 * keys.element_size()
    places = torch.arange(size, device=keys.device).view(
        [-1 if at == dim % keys.dim() else 1 for at in range(keys.dim())]
    )
    if size < 1 << (32 - bits):
        ranks, shift = keys.to(torch.int32, copy=True), 32 - bits
    else:
        ranks, shift = keys.to(torch.int64), 32
    if keys.dtype is torch.uint8:
        ranks -= 128
    return ranks.bitwise_left_shift_(shift).add_(size - places)


def elements_at(x: Tensor, dim: int, indices: Tensor) -> Tensor:
    """`x.gather(dim, indices)`; of plain data with the bits of x, where gathering makes other NaNs of 16-bit floats."""
    if x.element_size() != 2 or not x.is_floating_point() or _is_followed(x):
        return x.gather(dim, indices)
    return x.resolve_neg().view(torch.int16).gather(dim, indices).view(x.dtype)


def stable_topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: Any = None,
    select: Select = by_torch,
) -> Any:
    """`torch.topk` of the same arguments, the lowest index first among equals. Raises what torch.topk raises."""
    if out is None and _is_usual(input, k, dim, largest, sorted):
        indices = best_places(input.detach(), k, dim, largest, select=select).to(torch.int64)
        return torch.return_types.topk((elements_at(input, dim, indices), indices))
    found = torch_topk(input, k, dim, largest, sorted, out=out)  # says what is wrong
    if input.dim() and found[1].numel():
        values, indices = stable_topk(input.detach(), found[1].shape[dim], dim, largest, sorted, select=select)
        found[0].copy_(values)
        found[1].copy_(indices)
    return found


def _is_usual(input: Any, k: Any, dim: Any, largest: Any, sorted: Any) -> bool:
    """Whether torch.topk would find nothing wrong, and something to select."""
    return (
        isinstance(input, Tensor)
        and isinstance(k, (int, torch.SymInt))
        and not isinstance(k, bool)
        and type(dim) is int
        and type(largest) is type(sorted) is bool
        and input.layout is torch.strided
        and str(input.dtype).removeprefix("torch.") in DTYPE_BYTES
        and -input.dim() <= dim < input.dim()
        and bool(0 < k <= input.shape[dim])
    )


def _is_followed(x: Tensor) -> bool:
    """Whether derivatives may be asked for, which a view as integers would lose, or compilers make code of it."""
    return x.requires_grad or torch.compiler.is_compiling() or forward_ad._current_level >= 0
