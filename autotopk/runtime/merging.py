"""The best of several partial results: of split caches, of shards, of searches on several servers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from autotopk.runtime.declared import stable_pairs
from autotopk.strategies.torch_fallback.stable import elements_at

Lists = Tensor | Sequence[Tensor]


def merge_topk(
    values: Lists, indices: Lists, k: int, largest: bool = True, sorted: bool = True
) -> torch.return_types.topk:
    """The k best of a row's lists together: of equal values those of the lowest indices, whatever the lists' order.

    Args:
        values: (lists, rows, n), or a sequence of (rows, n_i), of one dtype and device; in any order.
        indices: int64, of the same shapes: what each value is known by. Distinct in a row; a pair that comes twice
            counts twice.
        k: how many, at most as many as there are in a row of all lists.
        largest: the largest rather than the smallest; NaN counts as the largest of all.
        sorted: the best first, of equals the lowest index first; otherwise in any order.

    Returns:
        `torch.return_types.topk` of (rows, k) values, with the bits they came with, and int64 indices. Values have
        derivatives.

    Raises:
        TypeError: indices are not int64, or values not of one dtype.
        ValueError: shapes differ.
        Whatever torch.topk raises for k and the joined lists.
    """
    all_values, all_indices = _joined(values, "values"), _joined(indices, "indices")
    if all_indices.dtype is not torch.int64:
        raise TypeError(f"indices are {all_indices.dtype}, not torch.int64")
    if all_values.shape != all_indices.shape:
        raise ValueError(f"values {tuple(all_values.shape)} and indices {tuple(all_indices.shape)} differ in shape")
    all_indices, order = all_indices.sort(dim=1)
    return merge_ordered(elements_at(all_values, 1, order), all_indices, k, largest, sorted)


def merge_ordered(values: Tensor, indices: Tensor, k: int, largest: bool, sorted: bool) -> torch.return_types.topk:
    """The same of (rows, n) where equal values of a row are in the order of their indices: the earlier place wins."""
    best, places = stable_pairs(values, k, 1, largest, sorted)
    return torch.return_types.topk((best, indices.gather(1, places)))


def _joined(lists: Lists, name: str) -> Tensor:
    """(rows, all columns)."""
    if isinstance(lists, Tensor):
        if lists.dim() != 3:
            raise ValueError(f"{name} have shape {tuple(lists.shape)}, not (lists, rows, n)")
        return lists.transpose(0, 1).flatten(1)
    shapes = [tuple(one.shape) for one in lists]
    if not shapes or any(len(shape) != 2 or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(f"{name} have shapes {shapes}, not (rows, n) with the same rows, at least one")
    if len({one.dtype for one in lists}) > 1:
        raise TypeError(f"{name} are of several dtypes: {[one.dtype for one in lists]}")
    return torch.cat(tuple(lists), dim=1)
