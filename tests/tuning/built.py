"""A strategy whose programs take one kernel, several, a broken one, or a library that has to be prepared.

Imported in the processes of a compile pool, it registers itself.
"""

import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from autotopk import registry
from autotopk.device import Device
from autotopk.errors import BuildError
from autotopk.kernel import Kernel, KernelSource
from autotopk.problem import Problem
from autotopk.program import Extent, HostProgram, KernelProgram, Launch, Program
from autotopk.strategy import Strategy


@dataclass(frozen=True)
class NamedSource(KernelSource):
    """Compiles to its name, and writes down that it was."""

    name: str

    def cache_key(self) -> str:
        return self.name

    def compile(self, arch: int) -> Kernel:
        note(self.name)
        if self.name == "broken":
            raise BuildError("broken for good")
        return Kernel(self.name.encode(), self.name, (), 32, registers=len(self.name))


def note(what: str) -> None:
    with Path(os.environ["AUTOTOPK_CACHE_DIR"], "log").open("a") as log:
        log.write(f"{what}\n")


def library(x: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = torch.topk(x, 3)
    return values, indices


def prepare() -> None:
    time.sleep(3)
    note("prepare")


def prepare_in_vain() -> None:
    raise OSError("no compiler for it")


@dataclass(frozen=True)
class Parts:
    of: str


class Built(Strategy):
    name = "built"
    config_type = Parts

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        return []

    def shortlist(self, problem: Problem, device: Device) -> Sequence[Parts]:
        return [Parts(name) for name in ("one", "one two", "two two", "one broken", "library", "bad library")]

    def heuristic(self, problem: Problem, device: Device) -> None:
        return None

    def program(self, config: Parts, problem: Problem, device: Device) -> Program:
        if "library" in config.of:
            return HostProgram(library, prepare=prepare if config.of == "library" else prepare_in_vain)
        return KernelProgram(tuple(Launch(NamedSource(name), (Extent(),)) for name in config.of.split()))


strategy = Built()

if multiprocessing.parent_process() is not None:
    registry.register(strategy)
