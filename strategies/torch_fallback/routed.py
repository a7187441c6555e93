"""Routing by torch operators around a top-k: of any leading dimensions, with derivatives."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from autotopk.routing import Routing
from autotopk.torch_topk import torch_topk

Select = Callable[[Tensor, int], Tensor]
"""From (..., n) and k to (..., k): int64 indices of the k largest of the last dimension, in order."""


def select(x: Tensor, k: int) -> Tensor:
    """By torch.topk."""
    indices: Tensor = torch_topk(x, k, -1, True, True)[1]
    return indices


def route(
    x: Tensor, bias: Tensor | None, scale: float, *, k: int, routing: Routing, select: Select = select
) -> tuple[Tensor, Tensor]:
    """Logits (..., experts) and a bias (experts,) to weights and int64 indices, (..., k) both."""
    indices = choose(x, bias, k, routing, select)
    return weigh(x, indices, scale, routing), indices


def choose(x: Tensor, bias: Tensor | None, k: int, routing: Routing, select: Select = select) -> Tensor:
    """The experts of every row, the best first: (..., k) int64.

    Without a bias the logits themselves decide: every scoring grows with them.
    """
    choice = x if bias is None else scores(x, routing) + bias
    if routing.keeps_all:
        return select(choice, k)
    size = x.shape[-1] // routing.n_group
    grouped = choice.unflatten(-1, (routing.n_group, size))  # (..., groups, size)
    best = grouped.amax(-1) if bias is None else _best_two(grouped)
    groups = select(best, routing.topk_group).sort(-1).values  # (..., kept)
    kept = grouped.gather(-2, groups.unsqueeze(-1).expand(*groups.shape, size)).flatten(-2)
    found = select(kept, k)
    return groups.gather(-1, found // size) * size + found % size


def scores(x: Tensor, routing: Routing) -> Tensor:
    """The float32 score of every logit."""
    x = x.float()
    if routing.scoring == "softmax":
        return x.softmax(-1)
    return x.sigmoid() if routing.scoring == "sigmoid" else softplus(x).sqrt()


def weigh(x: Tensor, indices: Tensor, scale: float, routing: Routing) -> Tensor:
    """The float32 weights of chosen experts. A sum of 0 counts as 1 where weights are divided by it."""
    if routing.scoring == "softmax" and not routing.renormalize:
        return scores(x, routing).gather(-1, indices.long()) * scale
    weights = scores(x.gather(-1, indices.long()), routing)
    if routing.scoring == "softmax":  # of the chosen alone: the rest of the row cancels out
        return weights * scale
    if routing.renormalize:
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total == 0, 1.0, total)
    return weights * scale


def _best_two(grouped: Tensor) -> Tensor:
    """The sum of the best two of every group, or its only one."""
    best: Tensor = torch_topk(grouped, min(2, grouped.shape[-1]), -1, True, False)[0]
    return best.sum(-1)
