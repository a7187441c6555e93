"""A mixture-of-experts router as DeepSeek-V3's: 8 of 256 experts, from 4 of 8 groups, chosen with a bias."""

import torch
from beside import DEVICE, REAL, compare
from torch import Tensor

import autotopk

TOKENS, HIDDEN = (4096, 2048) if REAL else (16, 32)
EXPERTS, GROUPS, KEPT, CHOSEN, SCALE = 256, 8, 4, 8, 2.5


def route(logits: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and experts, (tokens, 8) both, in one kernel."""
    return autotopk.topk_softmax(
        logits, CHOSEN, bias=bias, scoring="sigmoid", n_group=GROUPS, topk_group=KEPT, scale=SCALE
    )


def by_torch(logits: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The same, operator by operator."""
    scores = logits.float().sigmoid()
    chosen_by = scores + bias
    groups = chosen_by.reshape(len(logits), GROUPS, -1)
    kept = groups.topk(2).values.sum(-1).topk(KEPT).indices
    outside = torch.ones(groups.shape[:2], dtype=torch.bool, device=logits.device).scatter(1, kept, False)
    experts = groups.masked_fill(outside[:, :, None], -torch.inf).flatten(1).topk(CHOSEN).indices
    weights = scores.gather(1, experts)
    return SCALE * weights / weights.sum(-1, keepdim=True), experts


def main() -> None:
    """Route tokens, and train the gate one step."""
    torch.manual_seed(0)
    gate = (torch.randn(HIDDEN, EXPERTS, device=DEVICE) / HIDDEN**0.5).requires_grad_()
    bias = 0.01 * torch.randn(EXPERTS, device=DEVICE)
    logits = torch.randn(TOKENS, HIDDEN, device=DEVICE) @ gate
    weights, experts = route(logits, bias)
    wanted, found = by_torch(logits, bias)
    assert torch.equal(experts, found)
    torch.testing.assert_close(weights, wanted)
    [ours] = torch.autograd.grad(weights.square().sum(), gate, retain_graph=True)
    [theirs] = torch.autograd.grad(wanted.square().sum(), gate)
    torch.testing.assert_close(ours, theirs)
    print(f"{TOKENS} tokens to {CHOSEN} of {EXPERTS} experts: choice, weights and gradients as torch's operators give")
    detached = logits.detach()
    compare("router", lambda: route(detached, bias), lambda: by_torch(detached, bias))


if __name__ == "__main__":
    main()
