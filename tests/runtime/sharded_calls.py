"""What the ranks of tests of shards do."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import autotopk
from autotopk import distributed
from tests.runtime.world import GROUPS, SIZE

PLACEMENTS = {"rows": Shard(0), "cols": Shard(1), "all": Replicate(), "partial": Partial()}
MESHES: dict[tuple[int, ...], Any] = {}


def select(size: int, x: Any, k: Any, options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Values and indices, and indices alone, in the group of the first ranks."""
    group = GROUPS[size] if size < SIZE else None  # the default
    found = distributed.topk(x, k, group, **options)
    return found.values, found.indices, distributed.topk_indices(x, k, group, **options)


def gradient(size: int, x: Tensor, k: int, weights: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """First and second derivative of the weighted squares of the values."""
    x = x.requires_grad_()
    values = distributed.topk(x, k, GROUPS[size], **options).values
    (first,) = torch.autograd.grad((values**3 * weights).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first.detach(), second


def compiled(size: int, x: Tensor, k: int, sizes: list[int]) -> tuple[Tensor, Tensor]:
    def call(x: Tensor) -> tuple[Tensor, Tensor]:
        found = distributed.topk(x * 2, k, GROUPS[size], sizes=sizes, stable=True)
        return found.values + 1, found.indices

    values, indices = torch.compile(call, fullgraph=True, backend="aot_eager")(x)
    return values, indices


def of_mesh(
    shape: tuple[int, ...], x: Tensor, k: int, placed: list[str], indices_alone: bool, stable: bool
) -> tuple[Any, ...]:
    """The full answer for a distributed tensor, where it is placed, and the gradient of its values."""
    if shape not in MESHES:
        MESHES[shape] = init_device_mesh("cpu", shape)
    placements = [PLACEMENTS[one] for one in placed]
    if "partial" in placed:
        return (autotopk.topk(DTensor.from_local(x, MESHES[shape], placements, run_check=False), k),)
    d: Any = distribute_tensor(x, MESHES[shape], placements)
    if indices_alone:
        alone = autotopk.topk_indices(d, k, stable=stable)
        return alone.full_tensor(), str(alone.placements)
    d.requires_grad_()
    values, indices = autotopk.topk(d, k, stable=stable)
    values.full_tensor().sum().backward()
    assert d.grad is not None
    return values.full_tensor().detach(), str(values.placements), indices.full_tensor(), d.grad.full_tensor()
