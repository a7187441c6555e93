"""What answers behind `topk` in these tests: torch itself, or a strategy of our own that torch is not."""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.program import HostProgram, KernelProgram
from autotopk.runtime import declared, launch, operations
from autotopk.strategy import Strategy
from tests.registered import registered
from tests.runtime.laddered import Driver, Laddered


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


@pytest.fixture(params=["C", "Python"])
def twins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What calls take the least time with, and what they go without where it was not built."""
    if request.param == "Python":
        monkeypatch.setattr(launch, "native", None)
        for operation in (declared.pairs, declared.indices):
            monkeypatch.setattr(operation, "ask", operations.unanswered)
    elif launch.native is None:
        pytest.skip("was not built here")
    return str(request.param)


@pytest.fixture
def launches(twins: str, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Addresses of values and indices of every launch of both twins.

    The driver is replaced by one that reads and writes memory of the CPU at the addresses that a launch gets.
    """
    addresses: list[tuple[int, ...]] = []

    def launcher(_: KernelProgram, problem: Problem, *__: Any) -> tuple[Callable[..., int], str]:
        rows, cols, stride = problem.rows, problem.cols, problem.layout.row_stride

        def run(stream: int, x: int, values: int, indices: int) -> int:
            addresses.append((values, indices))
            memory = bytearray(ctypes.string_at(x, problem.layout.extent(rows, cols) * 4))
            matrix = torch.frombuffer(memory, dtype=torch.float32).as_strided((rows, cols), (stride, 1))
            for address, found in zip((values, indices), torch.topk(matrix, problem.k), strict=True):
                ctypes.memmove(address, found.data_ptr(), found.nbytes)
            return 0

        return run, "kernel"

    def empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(size, stride, dtype=dtype)

    monkeypatch.setattr(launch, "_launch", launcher)
    monkeypatch.setattr(launch, "_empty", empty)
    monkeypatch.setattr(launch, "_current_device", lambda: 0)
    monkeypatch.setattr(launch, "_current_stream", lambda index: 7)
    monkeypatch.setattr(planted, "program", lambda config, problem, device: KernelProgram(()))
    return addresses


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that asks for the planted strategy itself would be the same with either `backend`."""
    repeated = [item for item in items if _backend(item) == "torch" and "planted" in _arguments(item)]
    config.hook.pytest_deselected(items=repeated)
    items[:] = [item for item in items if item not in set(repeated)]


def _backend(item: pytest.Item) -> object:
    return item.callspec.params.get("backend") if hasattr(item, "callspec") else None


def _arguments(item: pytest.Item) -> Iterable[str]:
    return signature(item.function).parameters if isinstance(item, pytest.Function) else ()


@pytest.fixture
def strategy(tmp_path: Path) -> Iterator[Laddered]:
    """One with a ladder, whose kernels are a line in a file."""
    with registered(Laddered(tmp_path / "log")) as strategy:
        yield strategy


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """What runs its kernels."""
    driver = Driver()
    driver.install(monkeypatch)
    return driver
