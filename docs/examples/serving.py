"""From measurements to serving: tune two shapes, export a bundle, and serve from it where nothing can be compiled."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from beside import DEVICE, REAL

ROWS, COLS, K = (64, 32_768, 1024) if REAL else (4, 256, 8)

SERVER = f"""
import torch, autotopk

print(autotopk.warmup([({ROWS}, {COLS}, {K})], device={DEVICE!r}))
x = torch.randn({ROWS}, {COLS}, device={DEVICE!r})
assert torch.equal(autotopk.topk(x, {K}).values, torch.topk(x, {K}).values)
print(autotopk.explain(x, {K}))
"""


def run(*command: str, **variables: str) -> None:
    """A process of its own, as each of these would be on its own machine."""
    subprocess.run([sys.executable, *command], env={**os.environ, **variables}, check=True)


def main() -> None:
    """In an empty folder, which stands for two machines."""
    with TemporaryDirectory() as folder:
        bundle = str(Path(folder, "winners.bundle"))
        tuning = {"AUTOTOPK_CACHE_DIR": str(Path(folder, "tuned"))}
        shape = ("--rows", str(ROWS), "--cols", str(COLS), "-k", str(K))
        run("-m", "autotopk", "tune", *shape, "--device", DEVICE, "--budget", "20", **tuning)
        run("-m", "autotopk", "export", bundle, **tuning)
        serving = {"AUTOTOPK_CACHE_DIR": str(Path(folder, "serving")), "AUTOTOPK_BUILD": "never"}
        run("-m", "autotopk", "verify", bundle, **serving)
        run("-c", SERVER, AUTOTOPK_DB=bundle, **serving)


if __name__ == "__main__":
    main()
