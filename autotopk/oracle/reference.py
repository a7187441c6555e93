"""The oracle: what a right result of top-k is, and what is wrong with one that is not."""

import torch
from torch import Tensor

from autotopk.torch_topk import torch_topk

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of an element to the integer dtype that its bits are compared as."""


def problems_with(
    x: Tensor,
    values: Tensor,
    indices: Tensor,
    k: int,
    *,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> list[str]:
    """What is wrong with `values` and `indices` as the top `k` of `x` along `dim`; empty for a right result.

    Right is: dtype, shape, device and contiguity of torch.topk's result; its values as a multiset of every row, under
    == with NaN equal to NaN, in order with NaN above everything, or in torch.topk's own order, where `sorted`; distinct
    indices in range; every value with the bits of `x[index]`. Which of equal values is returned, and so the sign of a
    zero, is free. (For some k, torch.topk on CUDA puts NaNs whose sign bit is set behind everything else.)

    Rows are counted over the dimensions other than `dim`, flattened. Works where the tensors are, in memory
    proportional to `x`. Raises what torch.topk raises for the same arguments.
    """
    x = x.detach()
    expected = torch_topk(x, k, dim, largest, True).values
    problems = [
        *layout_problems("values", values, expected.shape, x.dtype, x.device),
        *layout_problems("indices", indices, expected.shape, torch.int64, x.device),
    ]
    if problems or expected.numel() == 0:
        return problems

    x, values, indices, expected = (_as_rows(t, dim) for t in (x, values.detach(), indices, expected))
    cols = x.shape[1]
    in_range, inside = (indices >= 0) & (indices < cols), indices.clamp(0, cols - 1)
    # as integers, because gathering makes signalling NaNs of 16 bits quiet
    bits = _BITS[x.element_size()]
    selected = x.view(bits).gather(1, inside).view(x.dtype)
    kept = values.view(bits) == selected.view(bits)
    if x.dtype == torch.bfloat16 and x.device.type == "cpu":
        kept |= values.isnan() & selected.isnan()  # where torch.topk itself loses the payload of a NaN
    as_torch = _same(values if sorted else _in_order(values, largest), expected)
    chosen = torch.zeros_like(x, dtype=torch.bool).scatter_(1, inside, True)
    right = in_range.all() & kept.all() & as_torch.all() & (chosen.sum() == indices.numel())
    if right:  # as nearly always; what comes next is several times as slow
        return []

    ordered = indices.sort(dim=1).values
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0) & (ordered[:, 1:] < cols)
    problems += report(~in_range, f"an index outside [0, {cols})", indices)
    problems += report(repeated, "an index more than once", ordered[:, 1:])
    problems += report(in_range & ~kept, "a value without the bits of x[index]", values, selected)
    multiset, wanted = _in_order(values, largest), _in_order(expected, largest)
    if wrong := report(~_same(multiset, wanted), "values other than torch.topk's", multiset, wanted):
        return problems + wrong
    if sorted and (misplaced := ~_same(values, wanted)).any() and not as_torch.all():
        problems += report(misplaced, "the right values in the wrong order", values, wanted)
    return problems


def layout_problems(
    name: str, tensor: Tensor, shape: torch.Size, dtype: torch.dtype, device: torch.device
) -> list[str]:
    """What is wrong with the form of a result, called by its name."""
    problems = []
    if tensor.dtype != dtype:
        problems.append(f"{name} are {tensor.dtype}, not {dtype}")
    if tensor.shape != shape:
        problems.append(f"{name} have shape {tuple(tensor.shape)}, not {tuple(shape)}")
    if tensor.device != device:
        problems.append(f"{name} are on {tensor.device}, not {device}")
    if not tensor.is_contiguous():
        problems.append(f"{name} are not contiguous: shape {tuple(tensor.shape)}, strides {tensor.stride()}")
    return problems


def _as_rows(tensor: Tensor, dim: int) -> Tensor:
    """(..., n, ...) with n at `dim` as (rows, n); a 0-d tensor as (1, 1)."""
    return tensor.reshape(1, 1) if tensor.dim() == 0 else tensor.movedim(dim, -1).reshape(-1, tensor.shape[dim])


def _same(a: Tensor, b: Tensor) -> Tensor:
    """Equal under ==, or both NaN."""
    same = a == b
    return same | (a.isnan() & b.isnan()) if a.is_floating_point() else same


def _in_order(values: Tensor, largest: bool) -> Tensor:
    """Rows sorted, NaN above everything: without the signs of NaNs, which some of torch's sorts on CUDA go by."""
    if values.is_floating_point():
        values = values.masked_fill(values.isnan(), float("nan"))
    return values.sort(dim=1, descending=largest).values


def report(wrong: Tensor, what: str, found: Tensor, expected: Tensor | None = None) -> list[str]:
    """One sentence where any element of `wrong` (rows, n) is set, with the first one in row order."""
    rows = wrong.any(dim=1)
    if not (count := int(rows.sum())):
        return []
    row = int(rows.int().argmax())
    position = int(wrong[row].int().argmax())
    sentence = f"{count} of {len(rows)} rows hold {what}; first in row {row} at position {position}: "
    sentence += _show(found[row, position])
    return [sentence if expected is None else f"{sentence}, expected {_show(expected[row, position])}"]


def _show(element: Tensor) -> str:
    """A number, with its bits where it is a float: NaN payloads and signs of zeros do not print otherwise."""
    value = element.item()
    if not element.is_floating_point():
        return str(value)
    bits = int(element.view(_BITS[element.element_size()]).item()) % (1 << (8 * element.element_size()))
    return f"{value!r} (bits {bits:#x})"
