"""Timers: what a sample is, and what is refused."""

import itertools
import time

import pytest
import torch
from torch import Tensor

from autotopk.errors import MeasurementError
from autotopk.problem import Problem
from autotopk.tuning import timing
from autotopk.tuning.timing import FEWEST_CALLS, CpuTimer, host_us, random_inputs, timer_for

CPU = torch.device("cpu")


def test_inputs_rotate_and_stay_within_their_cap() -> None:
    small = random_inputs(Problem.contiguous(4, 64, 5, device_type="cpu"), CPU)
    assert len(small) == timing.MAX_INPUTS
    assert not torch.equal(small[0], small[1])
    large = random_inputs(Problem.contiguous(3, 1 << 20, 5, "float64", "cpu"), CPU)
    assert len(large) == 2
    assert sum(x.nbytes for x in large) > CpuTimer.input_bytes
    assert random_inputs(Problem.contiguous(2, 9, 5, "int64", "cpu"), CPU)[0].dtype == torch.int64


@pytest.mark.parametrize(
    ("inputs", "bytes_", "calls"), [(40, 64, 40), (6, 33 << 20, 40), (4, 100_000_000, 20), (1, 400_000_000, 10)]
)
def test_graphs_of_short_calls_have_many(inputs: int, bytes_: int, calls: int) -> None:
    """To start one is not what a call takes."""
    assert timing.graph_calls(inputs, bytes_) == calls


class Clock:
    """Stands still but for what is said to take time."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now

    def pass_us(self, microseconds: float) -> None:
        self.now += microseconds * 1e-6


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def test_a_sample_is_the_time_of_one_call_over_all_inputs(clock: Clock) -> None:
    timer = timer_for(random_inputs(Problem.contiguous(4, 64, 5, device_type="cpu"), CPU)[:3])
    seen: list[int] = []

    def run(x: Tensor) -> None:
        seen.append(x.data_ptr())
        clock.pass_us(100)

    sample = timer.prepare(run)
    seen.clear()
    assert sample() == pytest.approx(100)
    assert len(seen) == pytest.approx(CpuTimer.sample_us / 100, abs=1), "calls fill a sample"
    assert seen[:6] == 2 * seen[:3], "inputs take turns"
    assert set(seen) == {x.data_ptr() for x in timer.inputs}
    assert timer.median_us(run, samples=1) == pytest.approx(100)


def test_a_sample_is_the_median_of_its_calls(clock: Clock) -> None:
    """A scheduler interrupts some."""
    calls = itertools.count()
    timer = timer_for([torch.zeros(2, 4)])
    sample = timer.prepare(lambda x: clock.pass_us(90_000 if next(calls) % 5 == 4 else 50))
    assert sample() == pytest.approx(50)


def test_a_long_call_is_a_sample(clock: Clock) -> None:
    calls = itertools.count()
    sample = timer_for([torch.zeros(2, 4)]).prepare(lambda x: clock.pass_us(1e6 + 0 * next(calls)))
    before = next(calls)
    assert sample() == pytest.approx(1e6)
    assert next(calls) == before + 2


def test_filling_reaches_what_was_prepared_before() -> None:
    timer = timer_for([torch.zeros(2, 4), torch.ones(2, 4)])
    seen: list[float] = []
    sample = timer.prepare(lambda x: seen.append(float(x.sum())))
    timer.fill(torch.full((2, 4), 7.0))
    seen.clear()
    sample()
    assert set(seen) == {56.0}


def test_no_call_takes_no_time(clock: Clock) -> None:
    timer = timer_for([torch.zeros(2, 4)])
    times = iter([1.0, 1.0, 1.0])
    sample = timer.prepare(lambda x: clock.pass_us(next(times, 0.0)))
    with pytest.raises(MeasurementError, match=r"the clock said 0\.0 us"):
        sample()


def test_host_time_is_the_best_burst(clock: Clock) -> None:
    """20 calls are ten bursts of two, after one that warms up."""
    burst = itertools.chain([1e6], range(900, 0, -100), [700])
    times = itertools.chain.from_iterable((us, us) for us in burst)
    assert host_us(lambda: clock.pass_us(next(times)), calls=20) == pytest.approx(100)


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


@pytest.mark.gpu
def test_a_sample_of_a_gpu_has_no_more_calls_than_are_enough() -> None:
    timer, seen = timer_for(random_inputs(Problem.contiguous(64, 4096, 128), torch.device("cuda"))), list[int]()

    def run(x: Tensor) -> Tensor:
        seen.append(x.data_ptr())
        return torch.topk(x, 128).values

    whole = timer.prepare(run)
    assert len(seen) > 40
    seen.clear()
    few = timer.prepare(run, 200.0)
    assert 4 + FEWEST_CALLS <= len(seen) < 40
    assert few() == pytest.approx(whole(), rel=0.2)
