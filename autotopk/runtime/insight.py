"""What a process does: counts of calls, and ranges for profilers. Nothing of it is in a call unless it was asked for.

An operation that is watched takes its calls by the way in Python, where its methods are replaced on the object. One
that is not has nothing of this in it.
"""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from autotopk import settings
from autotopk.errors import warn
from autotopk.runtime import operations
from autotopk.runtime.counters import Stats, counters
from autotopk.runtime.declared import OPERATIONS
from autotopk.runtime.operations import Operation
from autotopk.runtime.planning import Plan
from autotopk.runtime.state import default

_WATCHED = ("ask", "_look_up", "_run", "of_torch")
"""Attributes of an operation that are replaced while it is watched."""


class _Call(threading.local):
    """The call that a thread is in."""

    depth = 0
    """Operations ask each other: of nested calls the outermost counts."""
    step, strategy, reason = "torch", "torch.topk", ""


_call = _Call()
_asks: dict[str, Callable[..., Any]] = {}
"""`Operation.ask` of those that are watched."""


def stats(*, reset: bool = False) -> Stats:
    """What this process did so far: plans, misses, builds and failures, and calls while they were watched.

    Args:
        reset: begin at zero afterwards.
    """
    found = counters.stats(bool(_asks))
    if reset:
        counters.reset()
    return found


def watch(on: bool = True, *, nvtx: bool | None = None) -> None:
    """Count the calls of this process from now on, or stop.

    A watched call costs the host some microseconds more. Not for threads that are amid calls.

    Args:
        on: begin, or end.
        nvtx: also show every call as a range of NVTX; by default as AUTOTOPK_NVTX says.
    """
    ranges = _ranges() if on and (settings.nvtx() if nvtx is None else nvtx) else None
    for operation in OPERATIONS:
        if operation.name in _asks:
            for name in _WATCHED[1:]:
                delattr(operation, name)
            operation.ask = _asks.pop(operation.name)
        if on:
            _asks[operation.name] = operation.ask
            _replace(operation, ranges)


def _ranges() -> Callable[[str], AbstractContextManager[Any]] | None:
    """What makes a range of NVTX; None where torch has none."""
    try:
        torch.cuda.nvtx.mark("autotopk")
    except RuntimeError as error:
        warn(f"there are no ranges of NVTX: {error}")
        return None
    return torch.cuda.nvtx.range


def _replace(operation: Operation, ranges: Callable[[str], AbstractContextManager[Any]] | None) -> None:
    look_up, run, of_torch = operation._look_up, operation._run, operation.of_torch

    def watched(*arguments: Any) -> Any:
        if operations.is_compiling() or _call.depth:
            return look_up(*arguments)
        _call.depth = 1
        _call.step, _call.strategy, _call.reason = "torch", "torch.topk", ""
        started = time.perf_counter_ns()
        try:
            found = look_up(*arguments)
        finally:
            _call.depth = 0
        taken = time.perf_counter_ns() - started
        counters.called(operation.name, _call.step, _call.strategy, taken, _call.reason)
        return found

    def run_plan(plan: Plan, input: Any, k: int, *arguments: Any) -> Any:
        if operations.is_compiling():
            return run(plan, input, k, *arguments)
        choice = plan.choice
        _call.step, _call.strategy, _call.reason = choice.step, choice.candidate.strategy, ""
        with nullcontext() if ranges is None else ranges(_title(operation, input, k, choice.candidate.strategy)):
            return run(plan, input, k, *arguments)

    def by_torch(input: Any, k: Any, *arguments: Any) -> Any:
        if operations.is_compiling():
            return of_torch(input, k, *arguments)
        _call.step, _call.strategy, _call.reason = "torch", "torch.topk", _why(operation, input, k)
        with nullcontext() if ranges is None else ranges(_title(operation, input, k, "torch.topk")):
            return of_torch(input, k, *arguments)

    operation.ask = operations.unanswered
    vars(operation).update(_look_up=watched, _run=run_plan, of_torch=by_torch)  # before the class's own


def _title(operation: Operation, input: Any, k: Any, strategy: str) -> str:
    """Of a range: the query, and who answers."""
    shape = "x".join(map(str, getattr(input, "shape", ())))
    return (
        f"autotopk.{operation.name} {shape} k={k} {str(getattr(input, 'dtype', '')).removeprefix('torch.')} {strategy}"
    )


def _why(operation: Operation, input: Any, k: Any) -> str:
    """Why torch.topk answers."""
    if not isinstance(input, torch.Tensor):
        return "input is no tensor"
    if type(k) is int and k == 0:
        return "k is 0"
    if not operations.is_plain(input, data=False) or operations.is_transformed():
        return "tensor of a subclass, or a mode or a transform of torch"
    if default.cpu_is_torchs and input.is_cpu:
        return "fastest on this CPU"
    if operation.knows_torch_for(input):
        return "fastest that was measured, or no strategy is able"
    return "arguments that torch checks, or outputs that kernels do not write"


if settings.counts_calls() or settings.nvtx():
    watch()
