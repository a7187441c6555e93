"""What users call: the declared operations, the selector, thresholds and the router."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Unpack, overload

import torch
from torch import Tensor

from autotopk import settings
from autotopk.asked import Asked
from autotopk.routing import Scoring
from autotopk.runtime import operators, routers, thresholds
from autotopk.runtime.declared import indices, pairs, stable_indices, stable_pairs
from autotopk.runtime.outputs import Outputs
from autotopk.runtime.routers import Router
from autotopk.runtime.selecting import WindowKernels
from autotopk.runtime.state import default
from autotopk.strategies.torch_fallback.selected import Selector
from autotopk.torch_topk import torch_topk

INPUTS = {"x", "a", "x1"}
"""Other names of `input` that torch.topk takes, from NumPy, where `dim` is called axis."""

_UNNAMED: Any = None
"""Stands for what is passed by another name, or is missing."""


_topk: Callable[..., torch.return_types.topk] = pairs.__call__
_stable_topk: Callable[..., torch.return_types.topk] = stable_pairs.__call__
_topk_indices, _stable_topk_indices = indices.__call__, stable_indices.__call__
_deterministic = torch.are_deterministic_algorithms_enabled
_kth = thresholds.KthKernels("kth_value")
_select = Selector(indices.regardless, _stable_topk_indices, WindowKernels("topk_windows")).__call__
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
    stable: bool = False,
    **aliases: Any,
) -> torch.return_types.topk:
    """The k largest or smallest elements along a dimension: what `torch.topk` returns, from the fastest known kernel.

    Args:
        input: a tensor of any shape and any dtype that torch.topk takes on its device.
        k: how many, 0 <= k <= input.size(dim).
        dim: along which dimension.
        largest: the largest rather than the smallest; NaN counts as the largest of all.
        sorted: in order; otherwise in any order.
        out: (values, int64 indices) to write to.
        stable: of equal elements those of the lowest indices are returned, in that order where sorted; so the answer is
            the same on every run and device. Equal are -0 and +0, and all NaNs. Also under
            `torch.use_deterministic_algorithms(True)`.
        aliases: torch.topk's other names of `input` (x, a, x1) and `dim` (axis).

    Returns:
        `torch.return_types.topk` of values and int64 indices. Which of equal elements is returned is not specified,
        unless stable.

    Raises:
        TypeError: stable is not a bool.
        Whatever torch.topk raises for the same arguments.
    """
    if aliases:
        for name in INPUTS & aliases.keys():
            input = aliases.pop(name) if input is _UNNAMED else input
        if dim == -1 and "axis" in aliases:
            dim = aliases.pop("axis")
        if aliases:
            refused: torch.return_types.topk = torch_topk(input, k, dim, largest, sorted, out=out, **aliases)
            return refused  # but it says what is wrong
    if stable is not False:
        _check_stable(stable)
        return _stable_topk(input, k, dim, largest, sorted, out)
    return _topk(input, k, dim, largest, sorted, out)


@overload
def topk_indices(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, stable: bool = False
) -> Tensor: ...


@overload
def topk_indices(
    input: Tensor,
    k: int | Tensor,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    stable: bool = False,
    **asked: Unpack[Asked],
) -> Any: ...


def topk_indices(
    input: Tensor,
    k: int | Tensor,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    stable: bool = False,
    **asked: Unpack[Asked],
) -> Any:
    """The indices of the k largest or smallest elements along a dimension, as int32, as sparse attention takes them.

    Where the kernel that `topk` would run can write them alone, it does; elsewhere they are converted from topk's.

    With any further argument it is the selector that engines call, of windows of the rows of a matrix; docs/selector.md
    describes it. It never waits for the device and can be captured in a CUDA graph that follows new windows and k.

    Args:
        input: as for `topk`, at most 2**31 - 1 long in the dimension. The selector takes (rows, columns).
        k: how many, 0 <= k <= input.size(dim). The selector takes any k >= 0, and int32 (rows,) together with `max_k`.
        dim: along which dimension; the selector has the last.
        largest: the largest rather than the smallest; NaN counts as the largest of all.
        sorted: in the order of the elements; otherwise in any order.
        stable: as for `topk`.
        asked: windows, and the form of the answer: `autotopk.asked.Asked` describes each.

    Returns:
        int32, the shape of input with k at `dim`. Which of equal elements is meant is not specified, unless stable.
        The selector returns (rows, k) of `index_dtype`, or a tuple of that, with `return_raw` positions, and with
        `return_values` values. Rows with fewer than k candidates end with `fill`, their values with the infinity or
        the greatest or least integer that loses.

    Raises:
        OverflowError: the dimension is longer than int32 can count.
        Whatever torch.topk raises for the same arguments.
        TypeError, ValueError: an argument of the selector, or stable, is not among those accepted, which are named.
    """
    if stable is not False or asked:
        _check_stable(stable)
        if asked:
            return _select(input, k, dim, largest, sorted, stable or _deterministic(), asked)
        return _stable_topk_indices(input, k, dim, largest, sorted)  # type: ignore[arg-type] # torch says what k is not
    return _topk_indices(input, k, dim, largest, sorted)  # type: ignore[arg-type]


def kth_value(x: Tensor, k: int, dim: int = -1, largest: bool = False) -> torch.return_types.kthvalue:
    """The k-th smallest or largest element along a dimension, and where it is: `torch.kthvalue`, also from above.

    Args:
        x: a tensor of any shape and any dtype that torch.kthvalue takes on its device.
        k: 1 <= k <= x.size(dim).
        dim: along which dimension.
        largest: count from the largest; NaN counts as the largest of all.

    Returns:
        `torch.return_types.kthvalue` of values and int64 indices, of the shape of x without `dim`. Which of equal
        elements is meant is not specified. Values have derivatives.

    Raises:
        TypeError: largest is not a bool.
        Whatever torch.kthvalue raises for the same arguments.
    """
    found: torch.return_types.kthvalue = thresholds.kth_value(_topk, _kth, x, k, dim, largest)
    return found


def topk_mask(
    x: Tensor, k: int, fill: float | None = None, dim: int = -1, largest: bool = True, *, stable: bool = False
) -> Tensor:
    """Who is among the k largest or smallest elements along a dimension; or these alone, the rest set to a number.

    Args:
        x: as for `topk`.
        k: how many, 0 <= k <= x.size(dim).
        fill: what the others become; None for a mask.
        dim: along which dimension.
        largest: the largest rather than the smallest; NaN counts as the largest of all.
        stable: of equal elements those of the lowest indices are chosen, as for `topk`.

    Returns:
        Of the shape of x: bool, k of a row are True; or, with `fill`, x with all others set to it, with derivatives.

    Raises:
        TypeError: fill is no number, or stable is not a bool.
        Whatever torch.topk raises for the same arguments.
    """
    _check_stable(stable)
    chosen = _stable_topk if stable else _topk
    return thresholds.topk_mask(chosen, x, k, fill, dim, largest)


def _check_stable(stable: Any) -> None:
    if type(stable) is not bool:
        raise TypeError(f"stable={stable!r} is not a bool")


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


if settings.counts_calls() or settings.nvtx():
    import_module("autotopk.runtime.insight")
operators.script(topk, pairs)
operators.script(topk_indices, indices)
operators.script(topk_softmax, _router)


def reload() -> None:
    """Forget plans and winners: after tuning, or when environment variables changed."""
    default.reload()
