"""Which of several programs is the quickest on the GPU at hand, where nothing was measured and no family has a rule."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from autotopk.device import Device, cuda_device
from autotopk.errors import AutotopkError
from autotopk.problem import Problem
from autotopk.program import Program
from autotopk.runtime import launch

CALLS, REPLAYS = 10, 20


def in_order(programs: Sequence[Program], problem: Problem, device: Device) -> list[int]:
    """Places of the programs, the quickest first; as they are where the device is not here. Compiles them."""
    if len(programs) < 2 or not torch.cuda.is_available() or cuda_device(torch.cuda.current_device()) != device:
        return list(range(len(programs)))
    layout = problem.layout
    memory = torch.randn(layout.extent(problem.rows, problem.cols), device="cuda").to(getattr(torch, problem.dtype))
    times = {at: _time(program, problem, device, memory) for at, program in enumerate(programs)}
    return sorted(times, key=lambda at: times[at])


def _time(program: Program, problem: Problem, device: Device, memory: torch.Tensor) -> float:
    """Milliseconds of one call; infinite where it cannot be built or launched."""
    try:
        run = launch.bind(program, problem, device)
        return _replayed(lambda: run(memory))
    except AutotopkError:
        return float("inf")


def _replayed(call: Callable[[], Any]) -> float:
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        call()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(CALLS):
                call()
        times: list[float] = []
        for _ in range(REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            graph.replay()
            end.record(stream)
            stream.synchronize()
            times.append(begin.elapsed_time(end) / CALLS)
    return median(times)
