"""The one way from a user's call to an answer: check, plan, run, and what happens when a kernel fails.

An `Operation` is a question that users ask of a tensor's rows. What differs between operations is data: what kernels
write for them, and what becomes of it. A further operation is one more `Operation(...)`, see `api`.

A tensor that is more than its data takes a longer way: through autograd here, and through whatever else torch has on
top of data (compilers, transforms, modes) as an operator of torch, see `operators`, which comes back with the data.
"""

import sys
from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.utils._device import DeviceContext

from autotopk.device import device_of
from autotopk.problem import Answer, Problem
from autotopk.runtime.derivatives import selected
from autotopk.runtime.launch import native
from autotopk.runtime.outputs import Outputs, result_out, write
from autotopk.runtime.planning import Finish, Plan, Planner
from autotopk.runtime.state import Runtime, default
from autotopk.runtime.views import View
from autotopk.torch_topk import torch_topk

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Fallback = Callable[..., Any]
"""With the arguments and the result of torch.topk."""

Attach = Callable[[Tensor, int, Any], Any]
"""From an input, a dimension and the result for its data to the result with derivatives."""


_UNKNOWN: Any = object()
"""In place of a plan that was not made yet; None stands for torch.topk itself."""


def _always(*_: object) -> bool:
    return True


def unanswered(*_: object) -> None:
    """In place of `Operation.ask`: all calls go by way of Python."""
    return


# Cheap tests of what makes a tensor more than its data. Where a later torch has no such private function,
# every tensor counts as more.
_is_compiling = torch.compiler.is_dynamo_compiling  # torch.compile, which follows this code, takes it for True
_is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]
_overridden: Callable[[object], bool] = getattr(torch._C, "_has_torch_function_unary", _always)
_dispatch_modes: Callable[[], object] = getattr(torch._C, "_len_torch_dispatch_stack", _always)
_functorch = getattr(torch._C, "_functorch", None) if hasattr(forward_ad, "_current_level") else None
_transforms: Callable[[], object | None] = getattr(_functorch, "peek_interpreter_stack", _always)
_has_names: Callable[[Tensor], bool] | None = getattr(Tensor, "has_names", None)  # gone since torch 2.13
_function_modes: Callable[[], Any] = getattr(torch.overrides, "_get_current_function_mode_stack", list)
_grad_enabled = torch.is_grad_enabled
_deterministic = torch.are_deterministic_algorithms_enabled
_deterministic_in_c: Callable[[], bool] = getattr(torch._C, "_get_deterministic_algorithms", _deterministic)
_threads = torch.get_num_threads
_Parameter = torch.nn.Parameter


def is_fake(x: object) -> bool:
    """Whether it is a tensor without data, which only tells what would come of it, as exporters use."""
    from torch._subclasses.fake_tensor import FakeTensor  # 0.2 s, and imported wherever there is one

    return isinstance(x, FakeTensor)


def is_dtensor(x: object) -> "TypeGuard[DTensor]":
    """Whether it is a tensor that is distributed over a mesh of devices."""
    home = sys.modules.get("torch.distributed.tensor")  # imported wherever there is one
    return home is not None and type(x) is home.DTensor


def _only_devices() -> bool:
    """Whether all modes of torch functions are `with torch.device(...)`, which says where new tensors are made."""
    modes = _function_modes()
    return bool(modes) and all(type(mode) is DeviceContext for mode in modes)


def is_plain(x: object, data: bool) -> bool:
    """Whether a tensor goes straight to a plan, rather than the longer way through torch's dispatcher."""
    return (
        not _is_compiling()
        and (type(x) is Tensor or type(x) is _Parameter)
        and not (_overridden(x) and not (data or _only_devices()))
    )


def is_transformed() -> bool:
    """Whether modes or transforms of torch are to see a call before its data do."""
    return bool(_dispatch_modes()) or _transforms() is not None or forward_ad._current_level >= 0


def is_compiling() -> bool:
    """Whether torch.compile follows this code."""
    return _is_compiling()


def is_tracing() -> bool:
    """Whether torch.jit.trace runs, for which sizes are tensors."""
    return _is_tracing()


def threads() -> int:
    """Of torch's operators on the CPU: what was measured there holds for a number of them."""
    return _threads()


def whole(k: Any) -> int | None:
    """A number of another type as torch.topk takes it: NumPy's, a tensor without dimensions; None for any other."""
    if isinstance(k, Integral):
        return int(k)
    if type(k) is Tensor and k.dim() == 0 and not (k.is_floating_point() or k.is_complex() or k.dtype is torch.bool):
        return int(k)
    return None


def _asker(plans: dict[Any, Plan | None], runtime: Runtime, attached: bool, deterministic: bool) -> Callable[..., Any]:
    """What answers for an operation in C; where there is none, or where tensors are not as it reads them, nothing."""
    a_tensor = torch.empty(0, device="cpu")
    if native is None or type(a_tensor) is not Tensor or not all(hasattr(a_tensor, name) for name in native.READ):
        return unanswered
    ask: Callable[..., Any] = native.asker(
        plans,
        runtime,
        selected if attached else None,
        a_tensor,
        _Parameter,
        torch.int64,
        torch.return_types.topk,
        result_out,
        _overridden,
        _only_devices,
        _threads,
        _has_names,
        _dispatch_modes,
        _transforms,
        forward_ad,
        _grad_enabled,
        torch.is_inference_mode_enabled,
        torch.autograd.graph.increment_version,
        _deterministic_in_c if deterministic else None,
    )
    return ask


class Operation(Planner):
    """A question about every row of a tensor, answered by the fastest known kernel, or by torch.topk."""

    def __init__(
        self,
        name: str,
        *,
        of_pairs: Finish,
        answer: Answer = "pairs",
        of_answer: Finish | None = None,
        attach: Attach | None = None,
        longest: int | None = None,
        stable: Fallback | None = None,
        deterministic: "Operation | None" = None,
        instead: Fallback = torch_topk,
        runtime: Runtime = default,
    ) -> None:
        """Declare an operation.

        Args:
            name: its own among those of a runtime.
            of_pairs: its result, from (values, int64 indices).
            answer: what kernels are made to write for it, where their strategy can.
            of_answer: its result, from that; by default what they write is the result.
            attach: its result with derivatives; by default torch.topk answers where any are asked for.
            longest: the longest dimension that its result can count; longer ones raise OverflowError.
            stable: the lowest index comes first among equals; what stands for torch.topk then, with its arguments.
            deterministic: what answers while torch is told to use deterministic algorithms, unless for data alone.
            instead: what stands for torch.topk where it is not stable, with its arguments.
            runtime: whose winners, plans and failures count.
        """
        super().__init__(name, answer, longest, runtime)
        self._of_pairs = of_pairs
        self._of_torch: Finish | None = None if of_pairs is torch.return_types.topk else of_pairs
        self._of_answer = of_pairs if answer == "pairs" else of_answer
        self.attach = attach
        self.stable = stable is not None
        self._torch_topk = stable or instead
        self.operator: Callable[..., Any] | None = None
        """Of torch, with arguments and results as here; see `operators`."""
        self._repeatable = deterministic
        self.ask = _asker(self._plans, runtime, attach is not None, deterministic is not None)
        """Answers calls that are a kernel alone, with the arguments of `__call__`; else a plan that Python is to run,
        NotImplemented for torch.topk, or None for all else."""

    def __call__(
        self,
        input: Tensor,
        k: int,
        dim: int,
        largest: bool,
        sorted: bool,
        out: Outputs | None = None,
        data: bool = False,
    ) -> Any:
        """The result for a tensor. Raises whatever torch.topk raises for the same arguments, and OverflowError.

        `data` says that all that torch has on top of data had its turn before.
        """
        found = None if _is_compiling() else self.ask(input, k, dim, largest, sorted, out, data)
        if found is None:
            if self._repeatable is not None and not data and _deterministic():
                return self._repeatable(input, k, dim, largest, sorted, out)
            return self._look_up(input, k, dim, largest, sorted, out, data)
        if found is NotImplemented:
            return self.of_torch(input, k, dim, largest, sorted, out)
        return self._run(found, input, k, dim, largest, sorted, out, data) if type(found) is Plan else found

    def regardless(self, input: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Any:
        """The result whether or not torch's algorithms are to be deterministic: where no elements are equal."""
        if self._repeatable is not None and _deterministic():
            return self._look_up(input, k, dim, largest, sorted, None, False)
        return self(input, k, dim, largest, sorted)

    def _look_up(
        self, input: Tensor, k: int, dim: int, largest: bool, sorted: bool, out: Outputs | None, data: bool
    ) -> Any:
        """The result for whatever is asked, where it is not known that it is a plan's."""
        if _is_compiling():
            return self._longer_way(input, k, dim, largest, sorted, out, data)
        if type(k) is int and not k:  # nothing to select
            return self.of_torch(input, k, dim, largest, sorted, out)
        if not (type(input) is Tensor or type(input) is _Parameter) or (
            _overridden(input) and not (data or _only_devices())  # also by a mode
        ):
            return self._longer_way(input, k, dim, largest, sorted, out, data)
        if self._runtime.cpu_is_torchs and input.is_cpu:
            return self.of_torch(input, k, dim, largest, sorted, out)
        try:
            key = (
                input.shape,
                input.stride(),
                input.dtype,
                input.device,
                input.data_ptr() & 15,
                _threads(),  # what was measured on a CPU holds for a number of them
                k,
                dim,
                largest,
                sorted,
            )
            plan: Plan | None = self._plans.get(key, _UNKNOWN)
        except (RuntimeError, TypeError):  # sparse, nested, transformed: no sizes or data; k is a list
            if _transforms() is None:
                return self.of_torch(input, k, dim, largest, sorted, out)
            return self._longer_way(input, k, dim, largest, sorted, out, data)
        if (
            plan is None
            or type(k) is not int  # 2.0 and True find the plans of 2 and 1
            or type(dim) is not int
            or not (largest is True or largest is False)
            or not (sorted is True or sorted is False)
            or input.is_neg()
            or (_has_names is not None and _has_names(input))
        ):
            if type(k) is not int and type(k) is not bool and (found := whole(k)) is not None:
                return self(input, found, dim, largest, sorted, out, data)
            return self.of_torch(input, k, dim, largest, sorted, out)
        if not data and (_dispatch_modes() or _transforms() is not None or forward_ad._current_level >= 0):
            return self._longer_way(input, k, dim, largest, sorted, out, data)
        if plan is _UNKNOWN:
            if _is_tracing():  # then sizes are tensors, so that no key is ever found again
                return self.of_torch(input, k, dim, largest, sorted, out)
            plan, later = self._made(key, input, View.of(input, k, dim, largest, sorted, self.stable))
            try:
                if plan is None:
                    return self.of_torch(input, k, dim, largest, sorted, out)
                return self._run(plan, input, k, dim, largest, sorted, out, data)
            finally:
                if later is not None:  # a thread that wakes up would hold up a launch
                    self._runtime.afterwards.do(later)
        return self._run(plan, input, k, dim, largest, sorted, out, data)

    def _run(
        self,
        plan: Plan,
        input: Tensor,
        k: int,
        dim: int,
        largest: bool,
        sorted: bool,
        out: Outputs | None,
        data: bool,
    ) -> Any:
        """The result of a plan."""
        run, finish, _, size, reach = plan
        if input.requires_grad and not data and _grad_enabled():
            if out is not None or self.attach is None:  # torch.topk says that outputs have no derivatives
                return self.of_torch(input, k, dim, largest, sorted, out)
            if not reach:
                return self.attach(input, dim, self(input.detach(), k, dim, largest, sorted))
            plain = run
            run = lambda input: selected(input, plain, dim)  # noqa: E731
        try:
            if out is None:
                return run(input) if finish is None else finish(run(input))
            written = write(run, out, input, size, reach, data)
        except Exception as error:
            return self._after_failure(error, plan, input, k, dim, largest, sorted, out, data)
        return self.of_torch(input, k, dim, largest, sorted, out) if written is None else written

    def _longer_way(
        self, input: Tensor, k: int, dim: int, largest: bool, sorted: bool, out: Outputs | None, data: bool
    ) -> Any:
        """The result by way of torch's dispatcher: as our operator where our kernels may answer, else as torch.topk."""
        if not _is_compiling() and out is None and not data and is_dtensor(input):
            from autotopk.runtime import dtensors  # imports torch.distributed.tensor

            return dtensors.topk(self, input, k, dim, largest, sorted)
        usual = type(k) in (int, torch.SymInt) and (type(dim), type(largest), type(sorted)) == (int, bool, bool)
        if out is not None or data or self.operator is None or not (usual and self._may_answer(input)):
            return self.of_torch(input, k, dim, largest, sorted, out)
        found = self.operator(input, k, dim, largest, sorted)
        return found if self._of_torch is not None else self._of_pairs(found)

    def _may_answer(self, input: Tensor) -> bool:
        """Whether our operator should stand for torch.topk in what is compiled or recorded, and before modes."""
        if _is_compiling():
            return input.is_cuda
        if _is_tracing():
            return False
        if type(input) is Tensor or type(input) is _Parameter:
            return input.is_cuda or not self._runtime.cpu_is_torchs
        return is_fake(input) and input.is_cuda and not torch.onnx.is_in_onnx_export()  # others know torch.topk

    def of_torch(self, input: Tensor, k: int, dim: int, largest: bool, sorted: bool, out: Outputs | None = None) -> Any:
        """The result by way of torch.topk, or of what stands for it."""
        if out is not None:
            return self._torch_topk(input, k, dim, largest, sorted, out=out)
        pairs = self._torch_topk(input, k, dim, largest, sorted)
        if self._longest is not None and input.dim() and not _is_tracing():
            self.check_length(dim, input.shape[dim])
        return pairs if self._of_torch is None else self._of_torch(pairs)

    def knows_torch_for(self, input: Tensor) -> bool:
        """Whether torch.topk is the plan of any layout of these sizes."""
        return any(plan is None and key[0] == input.shape for key, plan in list(self._plans.items()))

    def check_length(self, dim: int, size: int) -> None:
        """Raise OverflowError for a dimension that is longer than the result can count."""
        if self._longest is not None and type(size) is int and size > self._longest:  # exporters have symbols
            raise OverflowError(f"dimension {dim} is {size} long, {self.name} counts to {self._longest}")

    def _finish(self, problem: Problem) -> Finish | None:
        return self._of_answer if problem.answer == self.answer else self._of_pairs

    def _after_failure(self, error: Exception, plan: Plan, input: Tensor, *asked: Any) -> Any:
        """Answer such a call with the next candidate; the failed one is left out unless memory was short."""
        if isinstance(error, torch.OutOfMemoryError):
            return self.of_torch(input, *asked[:-1])  # whose last one is `data`
        self._runtime.block(plan.choice.candidate, device_of(input.device), error)
        for key in [key for key, one in list(self._plans.items()) if one is plan]:
            self._plans.pop(key, None)
        return self(input, *asked)
