"""Of several programs the quickest comes first, and what cannot be timed last."""

from typing import Any

import pytest
import torch

from autotopk.device import H100
from autotopk.errors import MeasurementError
from autotopk.export import quickest
from autotopk.problem import Problem
from autotopk.runtime import launch
from autotopk.tuning import timing

PROBLEM = Problem.contiguous(4, 8, 2)


class Timer:
    """Programs are their own times here."""

    def median_us(self, run: float | None, samples: int) -> float:
        if run is None:
            raise MeasurementError("cannot be captured")
        return run


def test_in_the_order_of_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch, "randn", lambda size, device: torch.zeros(size))
    monkeypatch.setattr(quickest, "cuda_device", lambda index: H100)
    monkeypatch.setattr(timing, "timer_for", lambda inputs: Timer())
    monkeypatch.setattr(launch, "bind", lambda program, problem, device: program)
    programs: list[Any] = [3.0, None, 1.0, 2.0]
    assert quickest.in_order(programs, PROBLEM, H100) == [2, 3, 0, 1]


def test_as_they_are_without_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    programs: list[Any] = [3.0, None, 1.0]
    assert quickest.in_order(programs, PROBLEM, H100) == [0, 1, 2]
