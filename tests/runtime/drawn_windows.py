"""Matrices with windows, as engines have them and worse, for tests of the selector."""

from typing import Any

import torch
from torch import Tensor

WINDOWS = ("empty", "one", "k-1", "k", "k+1", "whole", "negative", "reversed", "overlong", "random")


def int32(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def window(kind: str, cols: int, k: int, generator: torch.Generator) -> tuple[int, int]:
    """(start, end) of a kind."""

    def below(limit: int) -> int:
        return int(torch.randint(max(1, limit), (), generator=generator))

    lengths = {"empty": 0, "one": 1, "k-1": k - 1, "k": k, "k+1": k + 1, "random": below(cols + 1)}
    if kind in lengths:
        length = max(0, min(lengths[kind], cols))
        start = below(cols - length + 1)
        return start, start + length
    start = below(cols)
    return {
        "whole": (0, cols),
        "negative": (-3 - start, start),
        "reversed": (start, start - 1 - below(cols)),
        "overlong": (start, cols + 1 + below(1 << 30)),
    }[kind]


def windows(rows: int, cols: int, k: int, seed: int) -> tuple[Tensor, Tensor]:
    """Starts and ends, int32 (rows,), of every kind in turn."""
    generator = torch.Generator().manual_seed(seed)
    pairs = [window(WINDOWS[(seed + row) % len(WINDOWS)], cols, k, generator) for row in range(rows)]
    starts, ends = zip(*pairs, strict=True)
    return int32(*starts), int32(*ends)


def dirty(x: Tensor, starts: Tensor, ends: Tensor, largest: bool = True) -> Tensor:
    """The matrix with what would win outside of the windows, where rows are their own answers."""
    columns = torch.arange(x.shape[1])
    outside = (columns < starts.unsqueeze(1)) | (columns >= ends.unsqueeze(1))
    if not x.dtype.is_floating_point:
        limits = torch.iinfo(x.dtype)
        return x.masked_fill(outside, limits.max if largest else limits.min)
    tempting = torch.where(columns % 2 == 0, torch.nan, torch.inf) if largest else torch.full(columns.shape, -torch.inf)
    return torch.where(outside, tempting.to(x.dtype), x)


def table_of(batch: int, pages: int, seed: int) -> Tensor:
    """A page table int32 (batch, pages) of distinct pages."""
    order = torch.randperm(batch * pages, generator=torch.Generator().manual_seed(seed))
    return order.to(torch.int32).view(batch, pages)


def same(found: Any, expected: list[Tensor]) -> bool:
    """Bit for bit, NaNs by their bits."""
    results = [found] if isinstance(found, Tensor) else list(found)
    return len(results) == len(expected) and all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))
        for a, b in zip(results, expected, strict=True)
    )


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8) if x.numel() else x
