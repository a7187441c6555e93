"""What the ranks of tests of shards do."""

from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import autotopk
from autotopk import distributed
from autotopk.lists import Lists, Parts
from autotopk.runtime import agreement, sharded
from autotopk.runtime.board import Board, new_file
from autotopk.runtime.peers import told_by_all
from tests.runtime.world import GROUPS, SIZE

PLACEMENTS = {"rows": Shard(0), "cols": Shard(1), "all": Replicate(), "partial": Partial()}
MESHES: dict[tuple[int, ...], Any] = {}


def select(size: int, x: Any, k: Any, options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Values and indices, and indices alone, in the group of the first ranks."""
    group = GROUPS[size] if size < SIZE else None  # the default
    found = distributed.topk(x, k, group, **options)
    return found.values, found.indices, distributed.topk_indices(x, k, group, **options)


class HostMemory:
    """In place of `Peers`, of ranks on the CPU."""

    words = 1 << 16

    def __init__(self, group: Any) -> None:
        self.rank, self.ranks, self.turn = dist.get_rank(group), dist.get_world_size(group), 0
        files = [new_file(self.ranks) for _ in range(3)] if self.rank == 0 else None
        (files, *_) = told_by_all(files, group)
        self.board, self.barrier = (Board(one, self.rank, self.ranks) for one in files[:2])
        size = 2 * self.ranks * self.words
        self.memory = torch.from_file(str(files[2]), shared=True, size=size, dtype=torch.int64)
        dist.barrier(group)
        if self.rank == 0:
            for one in files:
                one.unlink()

    def parts(self, turn: int, lists: Lists) -> Parts:
        places = self.memory.view(self.ranks, 2, self.words)[:, turn, : lists.part_bytes // 8]
        return Parts(places[self.rank], 0, None, partial(torch.cat, [*places]))

    def begin(self) -> int:
        return self.turn

    def meet(self) -> None:
        self.barrier.tell(b"")
        self.barrier.heard()
        self.turn ^= 1


def asked_again(
    size: int, calls: list[tuple[Tensor, int, dict[str, Any]]]
) -> list[tuple[Tensor, Tensor] | tuple[str, str]]:
    """Answers or errors of calls one after the other, by memory that ranks share."""
    group, memory = GROUPS[size], HostMemory(GROUPS[size])
    found: list[Any] = []
    with (
        patch.object(sharded, "peers_of", lambda *_: memory),
        patch.object(agreement, "known_peers", lambda *_: memory),
    ):
        for x, k, options in calls:
            try:
                answer = distributed.topk(x, k, group, **options)
                found.append((answer.values, answer.indices))
            except (TypeError, IndexError, ValueError) as error:
                found.append((type(error).__name__, str(error)))
    for kept in (sharded._kept, sharded._before):
        kept.pop(group, None)
    return found


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
