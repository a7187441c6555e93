"""Time of one call: CUDA-graph replays on a GPU, a clock around repeated calls on a CPU."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from math import ceil, inf
from statistics import median
from typing import Any, ClassVar

import torch
from torch import Tensor

from autotopk.device import device_of
from autotopk.errors import MeasurementError
from autotopk.oracle.inputs import make
from autotopk.problem import Problem

Run = Callable[[Tensor], Any]
"""What is timed: a call on one (rows, cols) input, its outputs allocated inside."""

Sample = Callable[[], float]
"""Takes one sample: microseconds of one call."""

MAX_INPUTS = 40
"""Most inputs that calls rotate through: below 1/40 of L2 each, the data stay warm."""

GRAPH_CALLS = 40
"""Calls of a graph, since to start one takes 6 us: of ten calls each seems 0.5 us slower than of forty."""

FEWEST_CALLS = 3
"""Of a graph that only few calls fill."""

GRAPH_BYTES = 2_000_000_000
"""Of inputs that the calls of a graph read, beyond ten calls and one of every input: half a millisecond."""


class Timer(ABC):
    """Times calls on one set of inputs, which every candidate of a problem shares."""

    input_bytes: ClassVar[int]
    """The inputs together reach this size where `MAX_INPUTS` of them can."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        """All inputs have one shape, dtype and device."""
        self.inputs = inputs
        self.device = inputs[0].device
        self.cold = 0 < device_of(self.device).l2_bytes < sum(x.nbytes for x in inputs)
        """Whether the inputs exceed the device's L2; false where its size is not known, as on a CPU."""

    @abstractmethod
    def prepare(self, run: Run, enough_us: float = inf) -> Sample:
        """Warm up, and make ready to sample, with no more calls than are enough to fill microseconds.

        Raises MeasurementError where `run` cannot be timed.
        """

    def fill(self, x: Tensor) -> None:
        """Overwrite every input in place: what was prepared before then runs on the new data."""
        for old in self.inputs:
            old.copy_(x)

    def median_us(self, run: Run, samples: int = 5) -> float:
        """Median microseconds of one call. Raises MeasurementError."""
        sample = self.prepare(run)
        return median(sample() for _ in range(samples))


class CudaTimer(Timer):
    """Replays one CUDA graph of calls back to back, as serving engines do: no host time is in the figure.

    A call that cannot be captured (it synchronises) is refused: it could not serve in a graph as torch.topk can, and
    its time would hold host work that the others' does not.
    """

    input_bytes = 200_000_000
    """Several times the L2 of any GPU of today."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__(inputs)
        self.stream = torch.cuda.Stream(self.device)
        self._pool = torch.cuda.graph_pool_handle()  # for all: graphs run in turn, and nobody reads what they wrote
        torch.cuda.synchronize(self.device)  # the inputs were made on another stream

    def fill(self, x: Tensor) -> None:
        """Overwrite every input in place, and wait: replays are on another stream."""
        super().fill(x)
        torch.cuda.synchronize(self.device)

    def prepare(self, run: Run, enough_us: float = inf) -> Sample:
        """Capture calls over all inputs in one graph, or over the first of them."""
        calls = graph_calls(len(self.inputs), self.inputs[0].nbytes)
        stream, start, end = self.stream, *(torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            for x in self.inputs[:3]:
                run(x)
            if enough_us < inf:
                start.record(stream)
                run(self.inputs[0])
                end.record(stream)
                end.synchronize()
                once_us = _positive(start.elapsed_time(end) * 1e3)
                calls = min(calls, max(FEWEST_CALLS, ceil(enough_us / once_us)))
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, pool=self._pool, stream=stream):
                    for x in islice(cycle(self.inputs), calls):
                        run(x)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise MeasurementError(f"cannot be captured in a CUDA graph: {first_line(error)}") from error
            graph.replay()
            stream.synchronize()

        def sample() -> float:
            with torch.cuda.device(self.device), torch.cuda.stream(stream):
                start.record(stream)
                graph.replay()
                end.record(stream)
                end.synchronize()
            return _positive(start.elapsed_time(end) * 1e3 / calls)

        return sample


class CpuTimer(Timer):
    """A clock around each of the calls that fill a sample; their median, because a scheduler interrupts some."""

    input_bytes = 32 << 20
    """More than the second-level cache of one core; making inputs costs more here than on a GPU."""

    sample_us = 3000.0
    """Least length of a sample."""

    def prepare(self, run: Run, enough_us: float = inf) -> Sample:
        """Find how many calls fill a sample, never shorter than `sample_us`; the first call is warm-up."""
        rotation = cycle(self.inputs)

        def call_us() -> float:
            x = next(rotation)
            start = time.perf_counter()
            run(x)
            return (time.perf_counter() - start) * 1e6

        run(next(rotation))
        once = _positive(min(call_us() for _ in range(2)))
        calls = max(1, min(1000, ceil(self.sample_us / once)))
        return lambda: _positive(median(call_us() for _ in range(calls)))


def timer_for(inputs: Sequence[Tensor]) -> Timer:
    """The timer of the inputs' device."""
    return _timer_class(inputs[0].device)(inputs)


def random_inputs(problem: Problem, device: torch.device) -> list[Tensor]:
    """Random (rows, cols) inputs to rotate through."""
    count = input_count(problem.rows * problem.cols * problem.itemsize, device)
    dtype = getattr(torch, problem.dtype)
    return [make("random", problem.rows, problem.cols, problem.k, dtype, str(device), seed) for seed in range(count)]


def input_count(bytes_: int, device: torch.device) -> int:
    """How many inputs of so many bytes calls rotate through: up to `MAX_INPUTS`, together more than the device's L2."""
    return max(1, min(MAX_INPUTS, _timer_class(device).input_bytes // bytes_ + 1))


def graph_calls(inputs: int, bytes_: int) -> int:
    """How many calls a graph has that rotate through inputs of so many bytes each."""
    return max(inputs, 10, min(GRAPH_CALLS, GRAPH_BYTES // max(bytes_, 1)))


def host_us(run: Callable[[], Any], calls: int = 300) -> float:
    """Microseconds of host time of one call: the best mean of ten bursts, the GPU's queue drained between them."""
    burst = max(1, calls // 10)
    for _ in range(burst):
        run()
    best = float("inf")
    for _ in range(10):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(burst):
            run()
        best = min(best, time.perf_counter() - start)
    return best / burst * 1e6


def first_line(error: BaseException) -> str:
    """The part of an error that fits on a line."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def _timer_class(device: torch.device) -> type[Timer]:
    return CudaTimer if device.type == "cuda" else CpuTimer


def _positive(microseconds: float) -> float:
    if not microseconds > 0:
        raise MeasurementError(f"the clock said {microseconds} us, which no call takes")
    return microseconds
