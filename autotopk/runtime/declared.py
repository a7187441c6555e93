"""The operations of a tensor's rows that kernels answer, declared: what is written for them, and what becomes of it."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from autotopk.runtime import operators
from autotopk.runtime.operations import Operation
from autotopk.strategies.torch_fallback.stable import stable_topk
from autotopk.torch_topk import torch_topk


def narrowed(found: tuple[Tensor, Tensor]) -> Tensor:
    """The indices of pairs, as int32."""
    return found[1].to(torch.int32)


def _gathered(input: Tensor, dim: int, found: tuple[Tensor, Tensor]) -> Any:
    return torch.return_types.topk((input.gather(dim, found[1]), found[1]))


def _of_ranks(ranks: Tensor, k: int, dim: int) -> Tensor:
    found: Tensor = indices.regardless(ranks, k, dim, True, True)
    return found.to(torch.int64)


_of_equals = partial(stable_topk, select=_of_ranks)
"""Stable by torch's operators around our top-k."""


def _in_order(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, out: Any = None
) -> Any:
    """torch.topk, whose kernels that sort put NaN with a sign at the wrong end, without these."""
    select = _of_equals if input.is_cuda and input.is_floating_point() else torch_topk
    return select(input, k, dim, largest, sorted, out=out)


_pairs = partial(Operation, of_pairs=torch.return_types.topk, attach=_gathered)
_indices = partial(
    Operation, answer="indices", of_pairs=narrowed, attach=lambda *found: found[-1], longest=(1 << 31) - 1
)
stable_pairs = _pairs("stable_topk", stable=_of_equals)
stable_indices = _indices("stable_topk_indices", stable=_of_equals)
pairs = _pairs("topk", deterministic=stable_pairs)
ordered_pairs = _pairs("ordered_topk", deterministic=stable_pairs, instead=_in_order)
"""Where sorted, in order on a GPU whatever NaN there are: who merges them searches them."""
indices = _indices("topk_indices", deterministic=stable_indices)
operators.register(pairs, "(Tensor values, Tensor indices)")
operators.register(indices, "Tensor")

OPERATIONS = (pairs, indices, stable_pairs, stable_indices, ordered_pairs)
"""All of them."""
