"""Merges of the lists of shards by torch operators; also how they are packed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from autotopk.lists import Lists, lists_of, offsets_of
from autotopk.strategies.torch_fallback.stable import stable_topk


def packed(values: Tensor, places: Tensor, lists: Lists) -> Tensor:
    """The part of a shard, int64 (part_bytes / 8,), from (rows, count) of its best and their int64 places."""
    words = places.reshape(-1)
    tail = values.reshape(-1).contiguous().view(torch.uint8)
    gap = words.new_zeros(lists.values_at // 8 - words.numel())
    rest = tail.new_zeros(lists.part_bytes - lists.values_at - tail.numel())
    return torch.cat([words, gap, torch.cat([tail, rest]).view(torch.int64)])


def unpacked(memory: Tensor, lists: Lists, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(rows, all entries) of values and of int64 places that count through all shards, in the order of the shards."""
    words = memory.view(len(lists.sizes), -1)
    elements, start = words.view(dtype), lists.values_at // dtype.itemsize
    values, places = [], []
    for number, (count, offset) in enumerate(zip(lists.counts, offsets_of(lists), strict=True)):
        entries = lists.rows * count
        values.append(elements[number, start : start + entries].view(lists.rows, count))
        places.append(words[number, :entries].view(lists.rows, count) + offset)
    return torch.cat(values, dim=1), torch.cat(places, dim=1)


def merge_by_torch(memory: Tensor, lists: Lists, dtype: torch.dtype, largest: bool) -> tuple[Tensor, Tensor]:
    """The best k of all lists, (rows, k) values and places, in order; of equals those of earlier lists first."""
    values, places = unpacked(memory, lists, dtype)
    best, at = stable_topk(values, lists.k, 1, largest, True)
    return best, places.gather(1, at)


def lists_in_order(x: Tensor, k: int, sizes: Sequence[int], largest: bool) -> tuple[Tensor, Lists]:
    """The memory of lists of a matrix' columns, split into shards of these sizes."""
    lists = lists_of(len(x), k, sizes, x.element_size())
    best = [
        stable_topk(shard, count, 1, largest, True)
        for shard, count in zip(x.split(list(sizes), 1), lists.counts, strict=True)
    ]
    return torch.cat([packed(values, places, lists) for values, places in best]), lists
