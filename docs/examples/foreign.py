"""FlashInfer's top-k as a strategy, beside ours. Needs a GPU, FlashInfer, and the plugin of docs/strategies.md."""

import os
import sys

import torch
from beside import REAL, compare

import autotopk
from autotopk import registry

ROWS, COLS, K = 16, 131_072, 16_384


def main() -> None:
    """Let FlashInfer serve wherever it is able, and compare."""
    if not REAL or "flashinfer" not in registry.names():
        sys.exit("needs a CUDA GPU, flashinfer-python, and autotopk-flashinfer, which docs/strategies.md shows whole")
    x = torch.randn(ROWS, COLS, device="cuda")
    os.environ["AUTOTOPK_STRATEGY"] = "flashinfer"
    autotopk.reload()
    assert torch.equal(autotopk.topk(x, K).values, torch.topk(x, K).values)
    print(autotopk.explain(x, K))
    compare("FlashInfer", lambda: autotopk.topk(x, K), lambda: torch.topk(x, K))
    del os.environ["AUTOTOPK_STRATEGY"]
    autotopk.reload()
    print(autotopk.explain(x, K))
    compare("ours", lambda: autotopk.topk(x, K), lambda: torch.topk(x, K))


if __name__ == "__main__":
    main()
