"""A strategy whose configurations end in every way that a candidate can end.

Imported in worker processes, it registers itself; tests register it with the `planted` fixture.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autotopk import registry
from autotopk.device import Device
from autotopk.errors import BuildError, UnsupportedProblemError
from autotopk.problem import Problem
from autotopk.program import HostProgram
from autotopk.strategy import Strategy

Answer = tuple[Tensor, Tensor]


def right(x: Tensor, k: int) -> Answer:
    """Slower than those that are wrong."""
    time.sleep(0.0005)
    values, indices = torch.topk(x, k)
    return values, indices


def slow(x: Tensor, k: int) -> Answer:
    time.sleep(0.002)
    return right(x, k)


def wrong_on_ties(x: Tensor, k: int) -> Answer:
    """The same index again where the cut falls inside a tie."""
    values, indices = torch.topk(x, k)
    return values, torch.where(values == values[:, :1], indices[:, :1], indices)


def wrong_on_denormals(x: Tensor, k: int) -> Answer:
    """Right on everything that is checked before timing, and fast: wrong only on what winners are tried on."""
    values, indices = torch.topk(x, k)
    tiny = bool((x.abs() < torch.finfo(x.dtype).tiny).all() and x.any())
    return values, indices.flip(1) if tiny else indices


def crash(x: Tensor, k: int) -> Answer:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError("unreachable")


def leave(x: Tensor, k: int) -> Answer:
    sys.stdout.flush()
    os._exit(3)


def hang(x: Tensor, k: int) -> Answer:
    time.sleep(3600)
    return right(x, k)


def fail(x: Tensor, k: int) -> Answer:
    raise RuntimeError("an illegal memory access was encountered\nsecond line")


def exhaust(x: Tensor, k: int) -> Answer:
    raise torch.OutOfMemoryError("tried to allocate 1 EiB")


def exhaust_host(x: Tensor, k: int) -> Answer:
    torch.empty(1 << 60)
    raise AssertionError("unreachable")


def refuse(x: Tensor, k: int) -> Answer:
    raise UnsupportedProblemError("not this one after all")


def unbuildable(x: Tensor, k: int) -> Answer:
    raise BuildError("ptxas has died")


WAYS: dict[str, Callable[[Tensor, int], Answer]] = {
    one.__name__: one
    for one in (
        right,
        slow,
        wrong_on_ties,
        wrong_on_denormals,
        crash,
        leave,
        hang,
        fail,
        exhaust,
        exhaust_host,
        refuse,
        unbuildable,
    )
}


@dataclass(frozen=True)
class Way:
    way: str


class Planted(Strategy):
    name = "planted"
    config_type = Way

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        return []

    def shortlist(self, problem: Problem, device: Device) -> Sequence[Way]:
        return [Way(name) for name in WAYS]

    def heuristic(self, problem: Problem, device: Device) -> None:
        return None

    def program(self, config: Way, problem: Problem, device: Device) -> HostProgram:
        run = WAYS[config.way]
        return HostProgram(lambda x: run(x, problem.k))


strategy = Planted()

if multiprocessing.parent_process() is not None:
    registry.register(strategy)
