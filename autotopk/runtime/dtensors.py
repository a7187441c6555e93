"""Top-k of a DTensor: on each rank's own rows, or over ranks where the dimension is sharded."""

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from autotopk.runtime.sharded import sharded_topk

if TYPE_CHECKING:
    from autotopk.runtime.operations import Operation


def topk(operation: "Operation", input: DTensor, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """The operation's result, of DTensors: replicated over what shards the dimension, placed as the input elsewhere.

    Raises:
        ValueError: a placement is Partial: its top-k is not the top-k of what was not summed yet.
        Whatever torch.topk raises for the same arguments.
    """
    if any(isinstance(one, Partial) for one in input.placements):
        raise ValueError(f"top-k of placements {input.placements}: redistribute what is Partial first")
    simple = all(type(one) in (Shard, Replicate) for one in input.placements)
    usual = type(k) is int and type(dim) is int and -input.dim() <= dim < input.dim()
    if not (simple and usual and 0 <= k <= input.shape[dim]):
        return operation.of_torch(input, k, dim, largest, sorted)  # says what is wrong
    dim %= input.dim()
    input, across = _over_one_axis(input, dim)
    local = input.to_local()
    placements = tuple(Replicate() if axis == across else one for axis, one in enumerate(input.placements))
    if across is None:
        return _placed(operation(local, k, dim, largest, sorted), input, k, dim, placements)
    group = input.device_mesh.get_group(across)
    sizes = _sizes(input.shape[dim], dist.get_world_size(group))
    found = sharded_topk(local, k, group, dim, largest, sorted, operation.stable, sizes)
    if operation.answer == "indices":
        operation.check_length(dim, input.shape[dim])
        return _placed(found.indices.to(torch.int32), input, k, dim, placements)
    return _placed(found, input, k, dim, placements)


def _over_one_axis(input: DTensor, dim: int) -> tuple[DTensor, int | None]:
    """The tensor with its dimension sharded by one axis of the mesh at most, and which that is."""
    axes = [axis for axis, one in enumerate(input.placements) if one.is_shard(dim)]
    if len(axes) > 1:
        gathered = [Replicate() if axis in axes[1:] else one for axis, one in enumerate(input.placements)]
        input = input.redistribute(placements=gathered)
    return input, axes[0] if axes else None


def _sizes(size: int, world: int) -> list[int]:
    """Of shards as DTensor cuts them: equal ones, then what is left, then none."""
    shard = -(-size // world)
    return [max(0, min(shard, size - rank * shard)) for rank in range(world)]


def _placed(found: Any, input: DTensor, k: int, dim: int, placements: tuple[Placement, ...]) -> Any:
    """A result of a rank, a tensor or a pair, as DTensors."""
    if not isinstance(found, Tensor):
        return torch.return_types.topk(tuple(_placed(one, input, k, dim, placements) for one in found))
    shape = torch.Size((*input.shape[:dim], k, *input.shape[dim + 1 :]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(found, input.device_mesh, placements, run_check=False, shape=shape, stride=stride)
