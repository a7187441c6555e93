"""A strategy of kernels that compile to nothing, with a ladder, and a driver that answers by torch.topk."""

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.program import Extent, KernelProgram
from autotopk.runtime import launch
from autotopk.runtime.state import default
from autotopk.strategy import Strategy
from tests.runtime.logged import LoggedSource


@dataclass(frozen=True)
class Rung:
    """The kernel of that name."""

    name: str = "usual"


class Laddered(Strategy):
    """Its heuristic is the kernel "usual", its ladder "low" and "high"."""

    name = "laddered"
    config_type = Rung
    preference = 2000

    def __init__(self, log: Path) -> None:
        self.log = log
        self.seconds = 0.0
        self.how: dict[str, str] = {}
        """Of kernels, see `LoggedSource.how`."""
        self.steps = ["low", "high"]

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        return []

    def shortlist(self, problem: Problem, device: Device) -> Sequence[Rung]:
        return [Rung(name) for name in ("usual", "fast", *self.steps)]

    def heuristic(self, problem: Problem, device: Device) -> Rung:
        return Rung()

    def ladder(self, problem: Problem, device: Device) -> Sequence[Rung]:
        return [Rung(name) for name in self.steps]

    def program(self, config: Rung, problem: Problem, device: Device) -> KernelProgram:
        return KernelProgram.of(self.source(config.name), Extent())

    def source(self, name: str) -> LoggedSource:
        return LoggedSource(self.log, name, self.seconds, self.how.get(name, ""))

    def load(self, name: str) -> None:
        """Compile a kernel here and now, and forget that."""
        self.source(name).load(ARCH)
        self.log.unlink()


ARCH = 0
"""Of a CPU."""


@dataclass
class Driver:
    """What was launched, and what is loaded."""

    launched: list[str] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)

    def launch(
        self, program: KernelProgram, problem: Problem, device: Device, index: int, build: bool
    ) -> tuple[Callable[..., int], str]:
        """In place of `launch._launch`."""
        [kernel] = [launch._kernel(source, device.arch, build) for source in program.sources]
        self.loaded.add(kernel.symbol)
        rows, cols, stride = problem.rows, problem.cols, problem.layout.row_stride

        def run(stream: int, x: int, *outputs: int) -> int:
            self.launched.append(kernel.symbol)
            memory = bytearray(ctypes.string_at(x, problem.layout.extent(rows, cols) * 4))
            matrix = torch.frombuffer(memory, dtype=torch.float32).as_strided((rows, cols), (stride, 1))
            for address, found in zip(outputs, torch.topk(matrix, problem.k), strict=True):
                ctypes.memmove(address, found.data_ptr(), found.nbytes)
            return 0

        return run, kernel.symbol

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Kernels run from here on."""

        def empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            return torch.empty_strided(size, stride, dtype=dtype)

        def is_loaded(program: Any, *_: object) -> bool:
            return all(source.name in self.loaded for source in program.sources)

        monkeypatch.setattr(launch, "_launch", self.launch)
        monkeypatch.setattr(launch, "is_loaded", is_loaded)
        monkeypatch.setattr(launch, "_empty", empty)
        monkeypatch.setattr(launch, "_current_device", lambda: 0)
        monkeypatch.setattr(launch, "_current_stream", lambda index: 7)


def settled(seconds: float = 20.0) -> None:
    """Wait until nothing is wanted any more."""
    until = time.monotonic() + seconds
    while default.afterwards.pending or default.builds._waiting:
        assert time.monotonic() < until, f"still wanted: {default.builds._waiting}"
        time.sleep(0.01)
