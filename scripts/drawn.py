"""What is predicted at shapes drawn as those of the tag `grid`: what it costs the host, and how sure choices are."""

import gc
import time
from collections.abc import Callable, Iterable
from math import inf

from autotopk.device import Device
from autotopk.prediction import Model
from autotopk.problem import Problem
from autotopk.tuning.doubts import rivals_at
from autotopk.workloads import spread

UNMET = 500
"""Shapes that a process never met."""


def host_us(find: Callable[[Problem, Device, Model], Iterable[object]], model: Model, device: Device) -> float:
    """Microseconds to find what could serve shapes not met before, the first of it, after as many others: a mean.

    What was fitted before is collected before: looking through it takes a tenth of a second, whoever it falls upon.
    """
    problems = [one.problem(device.type) for one in spread(2 * UNMET, seed=1)]
    for some in (problems[:UNMET], problems[UNMET:]):
        gc.collect()
        begun = time.process_time()
        for problem in some:
            next(iter(find(problem, device, model)), None)
    return (time.process_time() - begun) / UNMET * 1e6


def drawn_bounds(model: Model, device: Device, count: int = UNMET) -> list[float]:
    """Bounds of choices at shapes drawn by a seed of their own, in order; infinite of none."""
    found = []
    for workload in spread(count, seed=2):
        near = rivals_at(model, workload, device)
        found.append(model.bound_among(workload.key, near, near[0][2]) if near else inf)
    return sorted(found)
