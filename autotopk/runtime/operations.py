"""The one way from a user's call to an answer: check, plan, run, and what happens when a kernel fails.

An `Operation` is a question that users ask of a tensor's rows. What differs between operations is data: what kernels
write for them, and what becomes of it. A further operation is one more `Operation(...)`, see `api`.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from autotopk.device import Device, device_of
from autotopk.errors import AutotopkWarning
from autotopk.problem import Answer, Problem
from autotopk.program import HostProgram
from autotopk.runtime import dispatch, launch
from autotopk.runtime.dispatch import Choice
from autotopk.runtime.state import Runtime, default
from autotopk.runtime.views import Run, View

Finish = Callable[[Any], Any]
"""From the tensors of an answer to what the caller gets."""


class Plan(NamedTuple):
    """How a tensor of one layout is answered."""

    run: Run
    finish: Finish | None
    """None where `run` returns what the caller gets."""
    choice: Choice | None
    """Why; None where torch.topk itself is called."""


def _always(*_: object) -> bool:
    return True


# Cheap tests of what makes a tensor more than its data. Where a later torch has no such private function,
# every tensor counts as more, and torch.topk serves.
_is_compiling = torch.compiler.is_compiling
_overridden: Callable[[object], bool] = getattr(torch._C, "_has_torch_function_unary", _always)
_dispatch_modes: Callable[[], object] = getattr(torch._C, "_len_torch_dispatch_stack", _always)
_functorch = getattr(torch._C, "_functorch", None) if hasattr(forward_ad, "_current_level") else None
_transforms: Callable[[], object | None] = getattr(_functorch, "peek_interpreter_stack", _always)
_grad_enabled = torch.is_grad_enabled
_Parameter = torch.nn.Parameter
_strided = torch.strided


torch_topk: Callable[..., Any] = getattr(torch._C._VariableFunctions, "topk", torch.topk)
"""Torch's own: programs may bind torch.topk to ours, before or after this import."""


def is_transformed() -> bool:
    """Whether calls are being traced or transformed rather than run."""
    return _is_compiling() or _transforms() is not None


class Operation:
    """A question about every row of a tensor, answered by the fastest known kernel, or by torch.topk."""

    def __init__(
        self,
        name: str,
        *,
        of_pairs: Finish,
        answer: Answer = "pairs",
        of_answer: Finish | None = None,
        longest: int | None = None,
        runtime: Runtime = default,
    ) -> None:
        """Declare an operation.

        Args:
            name: its own among those of a runtime.
            of_pairs: its result, from (values, int64 indices).
            answer: what kernels are made to write for it, where their strategy can.
            of_answer: its result, from that; by default what they write is the result.
            longest: the longest dimension that its result can count; longer ones raise OverflowError.
            runtime: whose winners, plans and failures count.
        """
        self.name = name
        self.answer = answer
        self._of_pairs = of_pairs
        self._of_torch: Finish | None = None if of_pairs is torch.return_types.topk else of_pairs
        self._of_answer = of_pairs if answer == "pairs" else of_answer
        self._longest = longest
        self._runtime = runtime
        self._plans = runtime.plans(name)

    def __call__(self, input: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Any:
        """The result for a tensor. Raises whatever torch.topk raises for the same arguments, and OverflowError."""
        if (
            type(k) is not int  # 2.0 and True would find the plans of 2 and 1
            or type(dim) is not int
            or not (largest is True or largest is False)
            or not (sorted is True or sorted is False)
            # tracing, modes, transforms, subclasses and autograd belong to torch.topk
            or _is_compiling()
            or not (type(input) is Tensor or type(input) is _Parameter)
            or _overridden(input)
            or _dispatch_modes()
            or _transforms() is not None
            or forward_ad._current_level >= 0
            or (input.requires_grad and _grad_enabled())
            or input.layout is not _strided
            or input.is_neg()
        ):
            return self.of_torch(input, k, dim, largest, sorted)
        try:
            layout = input.shape, input.stride(), input.dtype, input.device, input.data_ptr() & 15
        except RuntimeError:  # nested and other tensors without sizes or data
            return self.of_torch(input, k, dim, largest, sorted)
        key = layout, k, dim, largest, sorted
        planned = self._plans.get(key)
        if planned is None:
            planned = self._plans.remember(key, self._plan(input, k, dim, largest, sorted))
        run, finish, choice = planned
        try:
            return run(input) if finish is None else finish(run(input))
        except Exception as error:
            if choice is None:
                raise  # what torch.topk itself raises
            return self._after_failure(error, choice, key, input, k, dim, largest, sorted)

    def of_torch(self, input: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Any:
        """The result by way of torch.topk."""
        pairs = torch_topk(input, k, dim, largest, sorted)
        if self._longest is not None and input.dim() and input.shape[dim] > self._longest:
            raise OverflowError(f"dimension {dim} is {input.shape[dim]} long, {self.name} counts to {self._longest}")
        return pairs if self._of_torch is None else self._of_torch(pairs)

    def _plan(self, input: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Plan:
        rows = View.of(input, k, dim, largest, sorted)
        if rows is None or (self._longest is not None and rows.problem.cols > self._longest):
            return Plan(lambda x: self.of_torch(x, k, dim, largest, sorted), None, None)
        torchs = Plan(lambda x: torch_topk(x, k, dim, largest, sorted), self._of_torch, None)
        device = device_of(input.device)
        try:
            for view in rows.ways(input):
                for choice in dispatch.choices(view.problem, device, runtime=self._runtime):
                    try:
                        return self._bound(choice, view, device, input.device.index) or torchs
                    except Exception as error:  # also what a third party's strategy raises
                        self._runtime.block(choice.candidate, device, error)
        except Exception as error:  # a third party's strategy raised when asked what it serves
            warnings.warn(f"no strategy could be chosen for {rows.problem}: {error!r}", AutotopkWarning, stacklevel=4)
        return torchs

    def _bound(self, choice: Choice, view: View, device: Device, index: int | None) -> Plan | None:
        """The chosen program, made callable; None where it is torch.topk."""
        problem: Problem = view.problem
        finish: Finish | None = self._of_pairs
        if self.answer in choice.strategy.features.answers:
            problem, finish = replace(problem, answer=self.answer), self._of_answer
        program = choice.program(problem, device)
        if isinstance(program, HostProgram) and program.is_torch_topk:
            return None
        run = launch.bind(program, problem, device, index=index, size=view.size)
        return Plan(view.around(run), finish, choice)

    def _after_failure(
        self,
        error: Exception,
        choice: Choice,
        key: Any,
        input: Tensor,
        k: int,
        dim: int,
        largest: bool,
        sorted: bool,
    ) -> Any:
        """Answer with the next candidate; the failed one is left out unless memory was short."""
        if isinstance(error, torch.OutOfMemoryError):
            return self.of_torch(input, k, dim, largest, sorted)
        self._runtime.block(choice.candidate, device_of(input.device), error)
        self._plans.pop(key, None)
        return self(input, k, dim, largest, sorted)
