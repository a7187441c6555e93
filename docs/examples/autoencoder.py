"""Sparse autoencoders: TopK keeps k latents of every token, BatchTopK k latents a token on the average of a batch."""

from collections.abc import Callable
from functools import partial

import torch
from beside import DEVICE, REAL, compare
from torch import Tensor
from torch.nn.functional import mse_loss

import autotopk

TOKENS, HIDDEN, LATENTS, KEPT = (4096, 1024, 16_384, 64) if REAL else (16, 32, 128, 4)
STEPS = 20

Select = Callable[..., tuple[Tensor, Tensor]]
"""torch.topk, or ours."""


def by_token(latents: Tensor, topk: Select) -> Tensor:
    """The best of every token; (tokens, latents) with zeros elsewhere."""
    values, indices = topk(latents, KEPT, sorted=False)
    return torch.zeros_like(latents).scatter(-1, indices, values.relu())


def by_batch(latents: Tensor, topk: Select) -> Tensor:
    """The best of the whole batch, however many of them a token has: one row of tokens x latents."""
    values, indices = topk(latents.flatten(), KEPT * len(latents), sorted=False)
    return torch.zeros_like(latents).flatten().scatter(0, indices, values.relu()).view_as(latents)


def train(sparse: Callable[[Tensor, Select], Tensor], topk: Select, steps: int = STEPS) -> list[float]:
    """The loss before every step; the same seed each time."""
    torch.manual_seed(0)
    encoder = (torch.randn(HIDDEN, LATENTS, device=DEVICE) / HIDDEN**0.5).requires_grad_()
    decoder = encoder.detach().t().clone().requires_grad_()
    x = torch.randn(TOKENS, HIDDEN, device=DEVICE)
    optimizer = torch.optim.Adam([encoder, decoder], lr=3e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = mse_loss(sparse(x @ encoder, topk) @ decoder, x)
        loss.backward()  # the gradient goes to the latents that were kept
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def main() -> None:
    """Train both kinds with both functions."""
    for name, sparse in (("TopK", by_token), ("BatchTopK", by_batch)):
        losses, expected = train(sparse, autotopk.topk), train(sparse, torch.topk)
        torch.testing.assert_close(losses, expected, rtol=1e-2, atol=1e-3)
        assert losses[-1] < losses[0]
        print(f"{name}: loss {losses[0]:.3f} -> {losses[-1]:.3f} in {STEPS} steps, with torch.topk {expected[-1]:.3f}")
        latents = torch.randn(TOKENS, LATENTS, device=DEVICE)
        compare(name, partial(sparse, latents, autotopk.topk), partial(sparse, latents, torch.topk))


if __name__ == "__main__":
    main()
