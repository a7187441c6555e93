"""Where examples run, and what they take beside torch on a GPU."""

from collections.abc import Callable
from statistics import median

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
REAL = DEVICE == "cuda"
"""Sizes as in real models; small ones on a CPU."""

ROUNDS = 20


def compare(name: str, ours: Callable[[], object], theirs: Callable[[], object]) -> None:
    """Print microseconds of both, in turns, by CUDA events; on a CPU nothing is timed."""
    if not REAL:
        return
    for run in (ours, theirs):
        run()
    times = [(elapsed_us(ours), elapsed_us(theirs)) for _ in range(ROUNDS)]
    mine, torchs = (median(column) for column in zip(*times, strict=True))
    print(f"{name}: {mine:.1f} us, with torch.topk {torchs:.1f} us")


def elapsed_us(run: Callable[[], object]) -> float:
    """Microseconds from the first to the last kernel of a call."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return 1e3 * float(begin.elapsed_time(end))
