"""What answers behind `topk` in these tests: torch itself, or a strategy of our own that torch is not."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.program import HostProgram
from autotopk.strategy import Strategy
from tests.registered import registered


def from_memory(x: Tensor) -> Tensor:
    """What a kernel sees of a matrix: its memory, without derivatives, pending negations and the like."""
    size = ((x.shape[0] - 1) * x.stride(0) + x.shape[1]) * x.element_size()
    memory = bytearray(ctypes.string_at(x.data_ptr(), size))
    return torch.frombuffer(memory, dtype=x.dtype).as_strided(x.shape, x.stride()).to(x.device)


@dataclass(frozen=True)
class PlantedConfig:
    """One knob, so that configurations differ."""

    knob: int = 0


class Planted(Strategy):
    """Sorts rows, counts its answers, and runs wherever it is registered."""

    name = "planted"
    config_type = PlantedConfig
    preference = 1000

    def __init__(self) -> None:
        self.answers = 0

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        return []

    def shortlist(self, problem: Problem, device: Device) -> Sequence[PlantedConfig]:
        return [PlantedConfig(0), PlantedConfig(1)]

    def heuristic(self, problem: Problem, device: Device) -> PlantedConfig:
        return PlantedConfig()

    def program(self, config: PlantedConfig, problem: Problem, device: Device) -> HostProgram:
        def run(x: Tensor) -> tuple[Tensor, Tensor]:
            self.answers += 1
            values, indices = torch.sort(from_memory(x), dim=1, descending=problem.largest)
            return values[:, : problem.k].contiguous(), indices[:, : problem.k].contiguous()

        return HostProgram(run)


@pytest.fixture
def planted() -> Iterator[Planted]:
    """The planted strategy, registered for the length of a test and forgotten after it."""
    with registered(Planted()) as strategy:
        yield strategy


@pytest.fixture(params=["torch", "planted"])
def backend(request: pytest.FixtureRequest) -> str:
    """Both in turn."""
    if request.param == "planted":
        request.getfixturevalue("planted")
    return str(request.param)
