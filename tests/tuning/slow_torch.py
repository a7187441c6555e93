"""Imported in worker processes, it makes torch.topk slow there, so that planted strategies can win."""

import multiprocessing
import time
from typing import Any

import torch
from torch import Tensor

from autotopk.runtime import trial
from autotopk.strategies import torch_fallback

SECONDS = 0.01


def slow_topk(*arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
    time.sleep(SECONDS)
    values, indices = torch.topk(*arguments, **options)
    return values, indices


if multiprocessing.parent_process() is not None:
    for module in (trial, torch_fallback):  # the baseline, and the candidate
        setattr(module, "torch_topk", slow_topk)  # noqa: B010  # not a name that they export
