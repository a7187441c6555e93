"""Sampling for a batch of requests, each with a k of its own: one call, in place of a sort of the vocabulary."""

import torch
from beside import DEVICE, REAL, compare
from torch import Tensor

import autotopk

VOCABULARY, LARGEST = (128_256, 64) if REAL else (256, 8)
REQUESTS = 32


def candidates(logits: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens and logits, (requests, largest k) both; behind a request's own k tokens are -1 and logits -inf."""
    tokens, values = autotopk.topk_indices(logits, k, max_k=LARGEST, return_values=True)
    return tokens, values


def by_torch(logits: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The largest k for everybody, and a mask."""
    values, tokens = logits.topk(LARGEST)
    behind = torch.arange(LARGEST, device=logits.device) >= k[:, None]
    return tokens.masked_fill(behind, -1), values.masked_fill(behind, -torch.inf)


def sample(tokens: Tensor, values: Tensor, temperature: float = 0.8) -> Tensor:
    """One token a request."""
    return tokens.gather(1, torch.multinomial((values / temperature).softmax(-1), 1).long())[:, 0]


def main() -> None:
    """Draw a token for every request."""
    torch.manual_seed(0)
    logits = torch.randn(REQUESTS, VOCABULARY, device=DEVICE)
    k = torch.randint(1, LARGEST + 1, (REQUESTS,), dtype=torch.int32, device=DEVICE)
    tokens, values = candidates(logits, k)
    wanted, expected = by_torch(logits, k)
    assert torch.equal(tokens, wanted.int())
    assert torch.equal(values, expected)
    assert ((tokens >= 0).sum(1) == k).all()
    drawn = sample(tokens, values)
    assert (drawn >= 0).all()
    print(f"{REQUESTS} requests of their own k from {int(k.min())} to {int(k.max())}: tokens {drawn[:4].tolist()}, ...")
    compare("sampling", lambda: candidates(logits, k), lambda: by_torch(logits, k))


if __name__ == "__main__":
    main()
