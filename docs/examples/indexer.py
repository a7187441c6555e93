"""Sparse attention with a paged cache: the positions that a token attends to, as slots, for requests of any length."""

import torch
from beside import DEVICE, REAL, compare
from torch import Tensor

import autotopk

REQUESTS, CONTEXT, KEPT, PAGE = (64, 131_072, 2048, 64) if REAL else (4, 96, 12, 8)


def attended(scores: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
    """Slots of the best positions, (requests, k) int32, then -1; one call, which waits for nothing on the device."""
    slots: Tensor = autotopk.topk_indices(scores, KEPT, sorted=False, lengths=lengths, page_table=table, page_size=PAGE)
    return slots


def by_torch(scores: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
    """The same by torch's operators."""
    outside = torch.arange(CONTEXT, device=DEVICE) >= lengths[:, None]
    values, positions = scores.masked_fill(outside, -torch.inf).topk(KEPT)
    slots = table.gather(1, positions // PAGE) * PAGE + positions % PAGE
    return slots.masked_fill(values == -torch.inf, -1).int()


def main() -> None:
    """Compare sets of slots, with requests shorter than k among them."""
    torch.manual_seed(0)
    scores = torch.randn(REQUESTS, CONTEXT, device=DEVICE)
    lengths = torch.randint(1, CONTEXT, (REQUESTS,), dtype=torch.int32, device=DEVICE)
    lengths[0] = KEPT // 2
    table = torch.randperm(REQUESTS * CONTEXT // PAGE, device=DEVICE).int().view(REQUESTS, -1)  # (requests, pages)
    slots, expected = attended(scores, lengths, table), by_torch(scores, lengths, table)
    assert torch.equal(slots.sort().values, expected.sort().values)
    assert (slots[0] == -1).sum() == KEPT - KEPT // 2
    print(f"{KEPT} slots of up to {CONTEXT} positions in pages of {PAGE}, for {REQUESTS} requests")
    compare("indexer", lambda: attended(scores, lengths, table), lambda: by_torch(scores, lengths, table))


if __name__ == "__main__":
    main()
