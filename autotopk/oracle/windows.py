"""Windows as engines have them, drawn the same every time, and what is wrong with an answer about them."""

import torch
from torch import Tensor

from autotopk.oracle.reference import problems_with

DECODING = 256
"""Rows up to which each is a request that decodes a token, rather than a token of a prompt."""


def draw(rows: int, cols: int, device: str) -> Tensor:
    """The ends of windows, int32 (rows,): requests of half the columns or more, or the tokens of one prompt."""
    if rows <= DECODING:
        return torch.linspace(cols / 2, cols, rows, dtype=torch.float64).round().to(torch.int32).to(device)
    return torch.arange(1, rows + 1, dtype=torch.int64).mul(cols).div(rows).ceil().to(torch.int32).to(device)


def problems_with_windows(
    x: Tensor, ends: Tensor, answer: tuple[Tensor, Tensor], k: int, largest: bool, *, sorted: bool = True
) -> list[str]:
    """What is wrong with (values, indices) of the best k of every x[i, :ends[i]]; empty where they are right.

    Behind the last of a shorter window indices are -1; what values are there is not looked at.
    """
    values, indices = answer
    ends, places = ends.long().unsqueeze(1), torch.arange(k, device=x.device)
    missing, where = places >= ends, indices.long()
    if bool((where[missing] != -1).any()):
        return ["padding is not -1"]
    if bool(((where >= ends) & ~missing).any()):
        return ["indices are beyond the windows"]
    outside = torch.arange(x.shape[1], device=x.device) >= ends
    worst = worst_of(x.dtype, largest)
    rows = x.masked_fill(outside, worst)
    filled = values.masked_fill(missing, worst), places.where(missing, where)  # as if that had been found outside
    return problems_with(rows, *filled, k, largest=largest, sorted=sorted)


def worst_of(dtype: torch.dtype, largest: bool) -> float | int:
    """The number that comes last of all."""
    if dtype.is_floating_point:
        return -torch.inf if largest else torch.nan
    limits = torch.iinfo(dtype)
    return limits.min if largest else limits.max
