"""Top-k of rows whose columns are sharded over the ranks of a group: local top-k, one all-gather, one merge."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor

from autotopk.runtime.agreement import agreed_sizes, check_sizes, checked, gather_into
from autotopk.runtime.declared import pairs, stable_pairs
from autotopk.runtime.merging import merge_ordered

_ALIGNMENT = 8  # bytes: of the widest dtype, so that every rank's part can be viewed as one
_functional = getattr(collectives, "all_gather_single", None) or collectives.all_gather_tensor


class _Chosen(torch.autograd.Function):
    """Values as they are; the derivative of those that are from this rank's shard goes to it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, indices: Tensor, dim: int, offset: int) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.size, ctx.dim, ctx.offset = x.shape, dim, offset
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, None, None, None, None]:
        (indices,), gradient = ctx.saved_tensors, gradients[0]
        zeros = gradient.new_zeros(ctx.size)
        size = ctx.size[ctx.dim]
        if size == 0:
            return zeros + gradient.sum(), None, None, None, None  # empty, and followed by autograd as other ranks' are
        places = indices - ctx.offset
        ours = (places >= 0) & (places < size)
        return zeros.scatter_add(ctx.dim, places.clamp(0, size - 1), gradient.where(ours, 0)), None, None, None, None


def sharded_topk(
    x: Tensor,
    k: int,
    group: Any,
    dim: int,
    largest: bool,
    sorted: bool,
    stable: bool,
    sizes: Sequence[int] | None,
) -> torch.return_types.topk:
    """See `autotopk.distributed.topk`."""
    group = dist.group.WORLD if group is None else group
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("this process is no rank of the group")
    flags = {"largest": largest, "sorted": sorted, "stable": stable}
    if sizes is None:
        if torch.compiler.is_compiling() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
            raise ValueError("torch.compile and CUDA graphs need `sizes`, the columns of every rank's shard")
        known = agreed_sizes(x, k, dim, flags, group)
        dim %= x.dim()
    else:
        dim = checked(x, k, dim, **flags)
        known = check_sizes(sizes, x.shape[dim], rank, world)
    if k > sum(known):
        raise ValueError(f"k={k} is more than the {sum(known)} columns of all shards, {known}")
    data = x.detach()
    offset = sum(known[:rank])
    values, indices = _topk_of_data(data, k, group, dim, largest, sorted, stable, known)
    if x.requires_grad and torch.is_grad_enabled():
        values = _Chosen.apply(x, values, indices, dim, offset)  # type: ignore[no-untyped-call]
    return torch.return_types.topk((values, indices))


def _topk_of_data(
    x: Tensor, k: int, group: Any, dim: int, largest: bool, sorted: bool, stable: bool, sizes: list[int]
) -> tuple[Tensor, Tensor]:
    ours = min(k, x.shape[dim])
    local_topk = stable_pairs if stable else pairs
    values, indices = local_topk(x, ours, dim, largest, stable)  # in order if places are to tell
    others = values.movedim(dim, -1).shape[:-1]
    if others.numel() and k:
        values, indices = (one.movedim(dim, -1).reshape(others.numel(), ours) for one in (values, indices))
        values, indices = merge_ordered(*_from_all(values, indices, k, group, sizes), k, largest, sorted)
        values, indices = (one.view(*others, k).movedim(-1, dim).contiguous() for one in (values, indices))
    else:  # nothing to exchange, on any rank
        values, indices = (one.new_empty((*x.shape[:dim], k, *x.shape[dim + 1 :])) for one in (values, indices))
    return values, indices


def _from_all(values: Tensor, indices: Tensor, k: int, group: Any, sizes: list[int]) -> tuple[Tensor, Tensor]:
    """(rows, columns) values and global int64 indices of all ranks, in their order, from (rows, min(k, shard)) ours."""
    counts = [min(k, size) for size in sizes]
    most, world = max(counts), len(sizes)
    rows, ours = values.shape
    small = torch.int32 if max(sizes) < 1 << 31 else torch.int64
    parts = [values, indices.to(small)]
    if ours < most:
        parts = [torch.nn.functional.pad(one, (0, most - ours)) for one in parts]
    parts.sort(key=Tensor.element_size, reverse=True)  # the wider first: then both are aligned
    ends = list(accumulate(rows * most * one.element_size() for one in parts))
    spare = values.new_zeros(-ends[-1] % _ALIGNMENT, dtype=torch.uint8)
    packed = torch.cat([*(one.contiguous().view(-1).view(torch.uint8) for one in parts), spare])
    everyone = _gathered(packed, group, world).view(world, -1)
    lists = {}
    for one, start, end in zip(parts, [0, ends[0]], ends, strict=True):
        lists[one is parts[0]] = everyone[:, start:end].view(one.dtype).unflatten(1, (rows, most))
    values_first = parts[0].dtype is values.dtype
    all_values, all_places = lists[values_first], lists[not values_first]
    offsets = list(accumulate(sizes, initial=0))
    return (
        torch.cat([all_values[rank, :, :count] for rank, count in enumerate(counts)], dim=1),
        torch.cat([all_places[rank, :, :count].long() + offsets[rank] for rank, count in enumerate(counts)], dim=1),
    )


def _gathered(ours: Tensor, group: Any, world: int) -> Tensor:
    """What all ranks have, one after the other."""
    if torch.compiler.is_compiling():
        everyone: Tensor = _functional(ours, 0, group)
    else:  # in less host time
        everyone = ours.new_empty(world * ours.numel())
        gather_into(everyone, ours, group=group)
    return everyone
