"""Timers: what a sample is, and what is refused."""

import time

import pytest
import torch
from torch import Tensor

from autotopk.errors import MeasurementError
from autotopk.problem import Problem
from autotopk.tuning import timing
from autotopk.tuning.timing import CpuTimer, host_us, random_inputs, timer_for

CPU = torch.device("cpu")


def test_inputs_rotate_and_stay_within_their_cap() -> None:
    small = random_inputs(Problem.contiguous(4, 64, 5, device_type="cpu"), CPU)
    assert len(small) == timing.MAX_INPUTS
    assert not torch.equal(small[0], small[1])
    large = random_inputs(Problem.contiguous(3, 1 << 20, 5, "float64", "cpu"), CPU)
    assert len(large) == 2
    assert sum(x.nbytes for x in large) > CpuTimer.input_bytes
    assert random_inputs(Problem.contiguous(2, 9, 5, "int64", "cpu"), CPU)[0].dtype == torch.int64


def test_a_sample_is_the_time_of_one_call_over_all_inputs() -> None:
    timer = timer_for(random_inputs(Problem.contiguous(4, 64, 5, device_type="cpu"), CPU)[:3])
    seen: set[int] = set()

    def run(x: Tensor) -> None:
        seen.add(x.data_ptr())
        time.sleep(0.001)

    sample = timer.prepare(run)
    assert 1000 < sample() < 20_000
    assert sample() > 1000
    assert seen == {x.data_ptr() for x in timer.inputs}
    assert timer.median_us(run, samples=1) > 1000


def test_filling_reaches_what_was_prepared_before() -> None:
    timer = timer_for([torch.zeros(2, 4), torch.ones(2, 4)])
    seen: list[float] = []
    sample = timer.prepare(lambda x: seen.append(float(x.sum())))
    timer.fill(torch.full((2, 4), 7.0))
    seen.clear()
    sample()
    assert set(seen) == {56.0}


def test_no_call_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = timer_for([torch.zeros(2, 4)]).prepare(lambda x: None)
    monkeypatch.setattr(time, "perf_counter", lambda: 1.0)
    with pytest.raises(MeasurementError, match=r"the clock said 0\.0 us"):
        sample()


def test_host_time_is_the_best_burst() -> None:
    assert 900 < host_us(lambda: time.sleep(0.001), calls=20) < 10_000


@pytest.mark.gpu
def test_a_gpu_sample_holds_no_host_time() -> None:
    xs = random_inputs(Problem.contiguous(64, 4096, 128), torch.device("cuda"))
    timer = timer_for(xs)

    def run(x: Tensor) -> Tensor:
        time.sleep(0.001)
        return torch.topk(x, 128).values

    assert 1 < timer.median_us(run) < 500
    assert timer_for(random_inputs(Problem.contiguous(64, 32768, 128), torch.device("cuda"))).cold
    with pytest.raises(MeasurementError, match="cannot be captured"):
        timer.prepare(lambda x: x.sum().item())
