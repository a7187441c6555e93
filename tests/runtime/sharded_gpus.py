"""What the ranks of tests of shards on GPUs do, each on its own."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autotopk import distributed
from autotopk.runtime import peers, sharded

Found = tuple[Tensor, Tensor]


def without_peers() -> bool:
    """From now on NCCL gathers. Returns whether it did not before."""
    had = peers._known.get(dist.group.WORLD)
    peers._known[dist.group.WORLD] = None
    sharded._kept.clear()
    return had is not None


def select(x: Tensor, k: int, options: dict[str, Any]) -> Found:
    found = distributed.topk(x.cuda(), k, **options)
    return found.values.cpu(), found.indices.cpu()


def one_after_another(xs: list[Tensor], k: int, sizes: list[int], streams: int) -> list[Found]:
    """Of all, on streams by turns, without waiting for any."""
    on_gpu = [x.cuda() for x in xs]
    torch.cuda.synchronize()
    used = [torch.cuda.Stream() for _ in range(streams)]
    found = []
    for number, x in enumerate(on_gpu):
        with torch.cuda.stream(used[number % streams]):
            found.append(distributed.topk(x, k, sizes=sizes))
    torch.cuda.synchronize()
    return [(one.values.cpu(), one.indices.cpu()) for one in found]


def captured(x: Tensor, others: list[Tensor], k: int, sizes: list[int]) -> list[Found]:
    """By a graph of one call, replayed for other shards."""
    static = x.cuda()
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            distributed.topk(static, k, sizes=sizes)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = distributed.topk(static, k, sizes=sizes)
    found = []
    for other in others:
        static.copy_(other)
        graph.replay()
        found.append((answer.values.cpu(), answer.indices.cpu()))
    return found


def compiled(x: Tensor, k: int, sizes: list[int]) -> Found:
    def call(x: Tensor) -> Found:
        found = distributed.topk(x * 2, k, sizes=sizes, stable=True)
        return found.values + 1, found.indices

    values, indices = torch.compile(call, fullgraph=True)(x.cuda())
    return values.cpu(), indices.cpu()


def several(calls: list[tuple[Tensor, int]]) -> list[Found | str]:
    """Answers or errors of calls without sizes, one after the other."""
    found: list[Found | str] = []
    for x, k in calls:
        try:
            found.append(select(x, k, {}))
        except ValueError as error:
            found.append(str(error))
    return found
