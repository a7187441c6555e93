"""Which of several programs is the quickest on the GPU at hand, where nothing was measured and no family has a rule."""

from collections.abc import Sequence

import torch

from autotopk.device import Device, cuda_device
from autotopk.errors import AutotopkError
from autotopk.problem import Problem
from autotopk.program import Program
from autotopk.runtime import launch
from autotopk.tuning import timing

REPLAYS = 20


def in_order(programs: Sequence[Program], problem: Problem, device: Device) -> list[int]:
    """Places of the programs, the quickest first; as they are where the device is not here. Compiles them."""
    if len(programs) < 2 or not torch.cuda.is_available() or cuda_device(torch.cuda.current_device()) != device:
        return list(range(len(programs)))
    extent = problem.layout.extent(problem.rows, problem.cols)
    timer = timing.timer_for([torch.randn(extent, device="cuda").to(getattr(torch, problem.dtype))])
    times = {at: _time(program, problem, device, timer) for at, program in enumerate(programs)}
    return sorted(times, key=lambda at: times[at])


def _time(program: Program, problem: Problem, device: Device, timer: timing.Timer) -> float:
    """Microseconds of one call; infinite where it cannot be built, launched or timed."""
    try:
        return timer.median_us(launch.bind(program, problem, device), REPLAYS)
    except AutotopkError:
        return float("inf")
