"""Top-k of (rows, cols) matrices by torch operators alone."""

import torch
from torch import Tensor

from autotopk.torch_topk import torch_topk as topk


def torch_topk(x: Tensor, *, k: int, largest: bool, sorted: bool) -> tuple[Tensor, Tensor]:
    """torch.topk itself."""
    values, indices = topk(x, k, dim=-1, largest=largest, sorted=sorted)
    return values, indices


def sort_topk(x: Tensor, *, k: int, largest: bool, sorted: bool) -> tuple[Tensor, Tensor]:
    """A full sort; faster than selection where k is a large part of a short row."""
    values, indices = torch.sort(x, dim=-1, descending=largest)
    return values[:, :k].contiguous(), indices[:, :k].contiguous()


def chunked_topk(x: Tensor, *, k: int, largest: bool, sorted: bool, chunk: int) -> tuple[Tensor, Tensor]:
    """Top k of every chunk, then of all their results: exact, because no chunk holds more than k of the answer.

    Chunks become rows of their own, so that few long rows keep a whole processor busy.
    """
    rows, cols = x.shape
    chunks = cols // chunk
    whole = chunks * chunk
    # (rows, chunks, k), as views where x is contiguous along its columns
    values, indices = topk(x[:, :whole].unflatten(1, (chunks, chunk)), k, dim=-1, largest=largest, sorted=False)
    indices += torch.arange(0, whole, chunk, device=x.device).view(1, chunks, 1)
    values, indices = values.flatten(1), indices.flatten(1)
    if tail := cols - whole:
        tail_values, tail_indices = topk(x[:, whole:], min(k, tail), dim=-1, largest=largest, sorted=False)
        values = torch.cat((values, tail_values), dim=1)
        indices = torch.cat((indices, tail_indices + whole), dim=1)
    values, picked = topk(values, k, dim=-1, largest=largest, sorted=sorted)
    return values, indices.gather(1, picked)
