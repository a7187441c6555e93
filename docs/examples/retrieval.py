"""Two-tower retrieval: the best items of a catalogue for every query, piece by piece, so that no score is kept."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from beside import DEVICE, REAL, compare
from torch import Tensor

import autotopk

QUERIES, ITEMS, WIDTH, BEST, PIECE = (64, 4_000_000, 64, 100, 1_000_000) if REAL else (4, 2000, 8, 10, 512)

Select = Callable[..., tuple[Tensor, Tensor]]


def pieces(queries: Tensor, items: Tensor, topk: Select) -> Iterator[tuple[Tensor, Tensor]]:
    """Of every piece of the catalogue (queries, k) scores and items."""
    for start in range(0, len(items), PIECE):
        scores = queries @ items[start : start + PIECE].t()
        values, indices = topk(scores, min(BEST, scores.shape[1]), sorted=False)
        yield values, indices + start


def retrieve(queries: Tensor, items: Tensor, topk: Select) -> tuple[Tensor, Tensor]:
    """Scores and items, (queries, k) both, the best first."""
    values, indices = (torch.cat(found, dim=1) for found in zip(*pieces(queries, items, topk), strict=True))
    best, places = topk(values, BEST)
    return best, indices.gather(1, places)


def main() -> None:
    """Compare with one top-k of all scores."""
    torch.manual_seed(0)
    queries, items = torch.randn(QUERIES, WIDTH, device=DEVICE), torch.randn(ITEMS, WIDTH, device=DEVICE)
    values, found = retrieve(queries, items, autotopk.topk)
    expected, _ = retrieve(queries, items, torch.topk)
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close((queries[:, None] * items[found]).sum(-1), values)
    assert all(len(set(row)) == BEST for row in found.tolist())
    print(f"the best {BEST} of {ITEMS} items for {QUERIES} queries, in pieces of {PIECE}")
    search = partial(retrieve, queries, items)
    compare("retrieval", lambda: search(autotopk.topk), lambda: search(torch.topk))


if __name__ == "__main__":
    main()
