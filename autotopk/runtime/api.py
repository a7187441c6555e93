"""What users call: `topk`, `topk_indices` and `topk_softmax`, three declared operations."""

from typing import Any

import torch
from torch import Tensor

from autotopk.routing import Scoring
from autotopk.runtime import operators, routers
from autotopk.runtime.operations import Operation
from autotopk.runtime.outputs import Outputs
from autotopk.runtime.routers import Router
from autotopk.runtime.state import default
from autotopk.torch_topk import torch_topk

INPUTS = {"x", "a", "x1"}
"""Other names of `input` that torch.topk takes, from NumPy, where `dim` is called axis."""

_UNNAMED: Any = None
"""Stands for what is passed by another name, or is missing."""


def _narrowed(pairs: tuple[Tensor, Tensor]) -> Tensor:
    return pairs[1].to(torch.int32)


def _gathered(input: Tensor, dim: int, pairs: tuple[Tensor, Tensor]) -> Any:
    return torch.return_types.topk((input.gather(dim, pairs[1]), pairs[1]))


pairs = Operation("topk", of_pairs=torch.return_types.topk, attach=_gathered)
_indices = Operation(
    "topk_indices", answer="indices", of_pairs=_narrowed, attach=lambda *found: found[-1], longest=(1 << 31) - 1
)
operators.register(pairs, "(Tensor values, Tensor indices)")
operators.register(_indices, "Tensor")
_topk, _topk_indices = pairs.__call__, _indices.__call__
_router = Router("topk_softmax", pairs)
routers.register(_router)
_route = _router.__call__


def topk(
    input: Tensor = _UNNAMED,
    k: int = _UNNAMED,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: Outputs | None = None,
    **aliases: Any,
) -> Any:
    """The k largest or smallest elements along a dimension: what `torch.topk` returns, from the fastest known kernel.

    Args:
        input: a tensor of any shape and any dtype that torch.topk takes on its device.
        k: how many, 0 <= k <= input.size(dim).
        dim: along which dimension.
        largest: the largest rather than the smallest; NaN counts as the largest of all.
        sorted: in order; otherwise in any order.
        out: (values, int64 indices) to write to.
        aliases: torch.topk's other names of `input` (x, a, x1) and `dim` (axis).

    Returns:
        `torch.return_types.topk` of values and int64 indices. Which of equal elements is returned is not specified.

    Raises:
        Whatever torch.topk raises for the same arguments.
    """
    if aliases:
        for name in INPUTS & aliases.keys():
            input = aliases.pop(name) if input is _UNNAMED else input
        if dim == -1 and "axis" in aliases:
            dim = aliases.pop("axis")
        if aliases:
            return torch_topk(input, k, dim, largest, sorted, out=out, **aliases)  # says what is wrong
    return _topk(input, k, dim, largest, sorted, out)


def topk_indices(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Tensor:
    """The indices of the k largest or smallest elements along a dimension, as int32, as sparse attention takes them.

    Where the kernel that `topk` would run can write them alone, it does; elsewhere they are converted from topk's.

    Args:
        input: as for `topk`, at most 2**31 - 1 long in the dimension.
        k: how many, 0 <= k <= input.size(dim).
        dim: along which dimension.
        largest: the largest rather than the smallest; NaN counts as the largest of all.
        sorted: in the order of the elements; otherwise in any order.

    Returns:
        int32, the shape of input with k at `dim`. Which of equal elements is meant is not specified.

    Raises:
        OverflowError: the dimension is longer than int32 can count.
        Whatever torch.topk raises for the same arguments.
    """
    indices: Tensor = _topk_indices(input, k, dim, largest, sorted)
    return indices


def topk_softmax(
    x: Tensor,
    k: int,
    *,
    bias: Tensor | None = None,
    scoring: Scoring = "softmax",
    renormalize: bool = True,
    scale: float = 1.0,
    n_group: int = 1,
    topk_group: int = 1,
    index_dtype: torch.dtype = torch.int64,
) -> tuple[Tensor, Tensor]:
    """The k experts that a mixture-of-experts router chooses for every token, and their weights; see docs/routing.md.

    A score is made of every logit in float32. Without a bias the logits decide who is chosen, as the scores would; with
    one, score + bias. Of experts in groups only `topk_group` groups stay: those of the best expert or, with a bias, of
    the best two by their sum. Weights are the scores of the chosen without the bias, divided by their sum where
    `renormalize`, times `scale`. Experts are in order, the best first; of equals the lower index where a kernel routes,
    and any where torch's operators do. NaN counts as the best of all.

    Args:
        x: logits (..., experts): float32, float16 or bfloat16.
        k: how many, from 1 to the experts of `topk_group` groups.
        bias: float32 (experts,) on the device of x; it gets no derivative.
        scoring: softmax over the experts; sigmoid; or sqrtsoftplus, the root of log(1 + exp(x)).
        renormalize: divide a token's weights by their sum; a sum of 0 counts as 1.
        scale: factor of all weights.
        n_group: number of groups of equal size, adjacent experts together.
        topk_group: how many of them stay.
        index_dtype: torch.int64 or torch.int32.

    Returns:
        Float32 weights and indices, (..., k) both.

    Raises:
        TypeError: x, k or bias is of another type, or x of another dtype.
        ValueError: any other argument is not among these.
    """
    return _route(x, k, bias, scoring, renormalize, scale, n_group, topk_group, index_dtype)


operators.script(topk, pairs)
operators.script(topk_indices, _indices)
operators.script(topk_softmax, _router)


def reload() -> None:
    """Forget plans and winners: after tuning, or when environment variables changed."""
    default.reload()
