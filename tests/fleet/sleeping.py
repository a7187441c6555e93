"""A strategy that sleeps as long as it is told: many such tuners need no more than one core.

Imported in processes that tests start, it registers itself.
"""

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from autotopk import registry
from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.program import HostProgram
from autotopk.strategies.torch_fallback.chunked import torch_topk
from autotopk.strategy import Strategy
from tests.tuning import slow_torch

MODULES = ("tests.tuning.slow_torch", "tests.fleet.sleeping")
"""What tuners preload: torch.topk takes 40 ms, and the naps are candidates."""


@dataclass(frozen=True)
class Nap:
    ms: int


QUICKEST = Nap(12)
NAPS = (Nap(36), QUICKEST, Nap(24))


class Sleeping(Strategy):
    name = "sleeping"
    config_type = Nap

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        return []

    def shortlist(self, problem: Problem, device: Device) -> Sequence[Nap]:
        return NAPS

    def heuristic(self, problem: Problem, device: Device) -> None:
        return None

    def program(self, config: Nap, problem: Problem, device: Device) -> HostProgram:
        def run(x: Tensor) -> tuple[Tensor, Tensor]:
            time.sleep(config.ms / 1e3)
            return torch_topk(x, k=problem.k, largest=problem.largest, sorted=problem.sorted)

        return HostProgram(run)


if multiprocessing.parent_process() is not None:
    registry.register(Sleeping())
    slow_torch.SECONDS = 0.04
