"""What the ranks of tests of shards do."""

from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import autotopk
from autotopk import distributed
from autotopk.lists import Lists, Parts
from autotopk.runtime import sharded
from tests.runtime.world import GROUPS, SIZE

PLACEMENTS = {"rows": Shard(0), "cols": Shard(1), "all": Replicate(), "partial": Partial()}
MESHES: dict[tuple[int, ...], Any] = {}


def select(size: int, x: Any, k: Any, options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Values and indices, and indices alone, in the group of the first ranks."""
    group = GROUPS[size] if size < SIZE else None  # the default
    found = distributed.topk(x, k, group, **options)
    return found.values, found.indices, distributed.topk_indices(x, k, group, **options)


class OwnMemory:
    """In place of `Peers`, of a rank alone."""

    words = 1 << 16

    def __init__(self) -> None:
        self.memory, self.turn = torch.zeros(2 * self.words, dtype=torch.int64), 0

    def parts(self, turn: int, lists: Lists) -> Parts:
        part = self.memory[turn * self.words :][: lists.part_bytes // 8]
        return Parts(part, 0, None, partial(torch.cat, [part]))

    def begin(self) -> int:
        self.turn ^= 1
        return self.turn

    def meet(self) -> None:
        """Nobody is waited for."""


def asked_again(x: Tensor, others: list[Tensor], k: int, options: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """Of one rank, for other tensors after the first, by what is kept of it."""
    group, memory = GROUPS[1], OwnMemory()
    with patch.object(sharded, "peers_of", lambda *_: memory):
        found = [distributed.topk(one, k, group, **options) for one in (x, *others)]
    assert len(sharded._kept.pop(group)) == 1
    return [(one.values, one.indices) for one in found]


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
        alone: Any = autotopk.topk_indices(d, k, stable=stable)
        return alone.full_tensor(), str(alone.placements)
    d.requires_grad_()
    found: Any = autotopk.topk(d, k, stable=stable)
    values, indices = found
    values.full_tensor().sum().backward()
    assert d.grad is not None
    return values.full_tensor().detach(), str(values.placements), indices.full_tensor(), d.grad.full_tensor()
