"""Top-k of rows whose columns are sharded over the ranks of a group: local top-k, one exchange, one merge."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor

from autotopk.lists import Lists, Parts, lists_of
from autotopk.runtime import operations
from autotopk.runtime.agreement import agreed_sizes, check_sizes, checked, gather_into
from autotopk.runtime.declared import ordered_pairs, pairs, stable_pairs
from autotopk.runtime.list_merges import merge_lists
from autotopk.runtime.peers import peers_of
from autotopk.runtime.views import fresh_strides
from autotopk.strategies.torch_fallback.merged import packed

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
    values, indices = _topk_of_data(data, k, group, dim, largest, stable, known)
    if x.requires_grad and torch.is_grad_enabled():
        values = _Chosen.apply(x, values, indices, dim, offset)  # type: ignore[no-untyped-call]
    return torch.return_types.topk((values, indices))


def _topk_of_data(
    x: Tensor, k: int, group: Any, dim: int, largest: bool, stable: bool, sizes: list[int]
) -> tuple[Tensor, Tensor]:
    others = x.shape[:dim] + x.shape[dim + 1 :]
    rows = prod(others)
    if not rows or not k:  # nothing to exchange, on any rank
        size = (*x.shape[:dim], k, *x.shape[dim + 1 :])
        return x.new_empty(size), x.new_empty(size, dtype=torch.int64)
    lists = lists_of(rows, k, sizes, x.element_size())
    everyone = _exchanged(x, lists, dim, largest, stable, group)
    values, indices = merge_lists(everyone, lists, x.dtype, largest)
    if len(others) != 1:
        values, indices = values.view(*others, k), indices.view(*others, k)
    if dim != len(others):
        values, indices = values.movedim(-1, dim).contiguous(), indices.movedim(-1, dim).contiguous()
    return values, indices


def _exchanged(x: Tensor, lists: Lists, dim: int, largest: bool, stable: bool, group: Any) -> Tensor | Parts:
    """What all ranks have, see `Lists`."""
    world, words = len(lists.sizes), lists.part_bytes // 8
    if not operations.is_plain(x, False) or operations.is_transformed():
        found = (stable_pairs if stable else pairs)(x, min(lists.k, x.shape[dim]), dim, largest, True)
        values, places = (one.movedim(dim, -1) for one in found)
        return _gathered(packed(values, places, lists), group, world)
    if peers := peers_of(group, x.device, words):
        _fill(peers.part(words), x, lists, dim, largest, stable)
        return peers.shown(words)
    ours = x.new_empty(words, dtype=torch.int64)
    _fill(ours, x, lists, dim, largest, stable)
    return _gathered(ours, group, world)


def _fill(memory: Tensor, x: Tensor, lists: Lists, dim: int, largest: bool, stable: bool) -> None:
    """Write our part. Where that may be, kernels do."""
    count, last = min(lists.k, x.shape[dim]), dim == x.dim() - 1
    if not count:
        return
    size = (*x.shape[:dim], *x.shape[dim + 1 :], count)
    strides = fresh_strides(size)
    places = memory.as_strided(size, strides)
    values = memory.view(x.dtype).as_strided(size, strides, lists.values_at // x.element_size())
    select = stable_pairs if stable else ordered_pairs
    if last:
        select(x, count, dim, largest, True, (values, places))
    else:
        for ours, one in zip((values, places), select(x, count, dim, largest, True), strict=True):
            ours.copy_(one.movedim(dim, -1))


def _gathered(ours: Tensor, group: Any, world: int) -> Tensor:
    """What all ranks have, one after the other."""
    if torch.compiler.is_compiling():
        everyone: Tensor = _functional(ours, 0, group)
    else:  # in less host time
        everyone = ours.new_empty(world * ours.numel())
        gather_into(everyone, ours, group=group)
    return everyone
