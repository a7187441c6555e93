"""From a program to a callable that runs it, at about a microsecond of host time above the allocations."""

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from autotopk.device import Device
from autotopk.errors import BuildError, LaunchError
from autotopk.kernel import POINTERS, Kernel, Parameter, scalars
from autotopk.problem import Problem
from autotopk.runtime import driver
from autotopk.strategy import HostProgram, KernelProgram, Program

Bound = Callable[[Tensor], tuple[Tensor, Tensor]]

# Private functions of torch that save microseconds a call, each with its public twin.
_current_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def _public_empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(size, dtype=dtype, device="cuda")


_empty: Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], Tensor] = getattr(
    getattr(getattr(torch._C, "_dynamo", None), "guards", None), "_empty_strided_cuda", _public_empty
)


def arguments(problem: Problem, x: Tensor, values: Tensor, indices: Tensor) -> dict[str, Any]:
    """Everything a kernel may ask for, by name, for an interpreter."""
    return {**scalars(problem), "x": x, "values": values, "indices": indices}


def bind(
    program: Program,
    problem: Problem,
    device: Device,
    *,
    index: int | None = None,
    size: tuple[int, ...] | None = None,
) -> Bound:
    """Make a program callable for tensors of the problem's layout.

    Args:
        program: what `Strategy.program` gave for the problem.
        problem: the layout that every later input has.
        device: where it will run.
        index: which CUDA device; the current one by default.
        size: of the outputs, (rows, k) by default.

    Returns:
        A function of one tensor that returns fresh contiguous values and int64 indices of that size. It raises
        LaunchError where the driver refuses.

    Raises:
        BuildError: the kernel cannot be compiled or loaded.
    """
    if size is None:
        size = (problem.rows, problem.k)
    if isinstance(program, HostProgram):
        return _bind_host(program, problem, size)
    return _bind_kernel(program, problem, device, index, size)


def _bind_host(program: HostProgram, problem: Problem, size: tuple[int, ...]) -> Bound:
    if program.is_torch_topk:
        return program.run  # takes and gives any leading dimensions
    run, matrix = program.run, (problem.rows, problem.cols)

    def call(x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = run(x.as_strided(matrix, (problem.row_stride, 1)))
        return values.view(size), indices.view(size)

    return call


def bind_indices(
    program: KernelProgram, problem: Problem, device: Device, *, index: int | None = None, size: tuple[int, ...]
) -> Callable[[Tensor], Tensor]:
    """As `bind`, for a problem of `indices_only`: a function of one tensor that returns int32 indices alone."""
    index = _current_device() if index is None else index
    launch, symbol = _launch(program, problem, device, index)
    stride = _contiguous(size)

    def call(x: Tensor) -> Tensor:
        if _current_device() != index:
            with torch.cuda.device(index):
                return call(x)
        indices = _empty(size, stride, torch.int32)
        if code := launch(_current_stream(index), x.data_ptr(), 0, indices.data_ptr()):
            _retry(code, symbol, problem, index, launch, (x.data_ptr(), 0, indices.data_ptr()))
        return indices

    return call


def _bind_kernel(
    program: KernelProgram, problem: Problem, device: Device, index: int | None, size: tuple[int, ...]
) -> Bound:
    index = _current_device() if index is None else index
    launch, symbol = _launch(program, problem, device, index)
    dtype = getattr(torch, problem.dtype)
    stride = _contiguous(size)
    empty, int64, current_stream = _empty, torch.int64, _current_stream

    def call(x: Tensor) -> tuple[Tensor, Tensor]:
        if _current_device() != index:
            with torch.cuda.device(index):
                return call(x)
        values = empty(size, stride, dtype)
        indices = empty(size, stride, int64)
        code = launch(current_stream(index), x.data_ptr(), values.data_ptr(), indices.data_ptr())
        if code:
            _retry(code, symbol, problem, index, launch, (x.data_ptr(), values.data_ptr(), indices.data_ptr()))
        return values, indices

    return call


def _contiguous(size: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor; asking torch takes 10 ms the first time."""
    return tuple(prod(size[dim + 1 :]) for dim in range(len(size)))


def _launch(program: KernelProgram, problem: Problem, device: Device, index: int) -> tuple[Callable[..., int], str]:
    """The kernel on a device, called with a stream and the addresses of POINTERS for the driver's code; its name."""
    kernel = program.source.load(device.arch)
    if device.type != "cuda":
        raise BuildError(f"{kernel.symbol} needs a CUDA device, not {device.name}")
    with torch.cuda.device(index):
        function = _function(kernel, index)
    launch = _prepare()(
        function,
        program.grid,
        kernel.threads,
        kernel.shared_bytes,
        kernel.cluster,
        kernel.cooperative,
        kernel.programmatic_launch,
        tuple(_slot(parameter, problem) for parameter in kernel.parameters),
    )
    return launch, kernel.symbol


def _retry(
    code: int,
    symbol: str,
    problem: Problem,
    index: int,
    launch: Callable[..., int],
    addresses: tuple[int, int, int],
) -> None:
    if code == driver.INVALID_CONTEXT:  # this thread's first use of the device
        torch.cuda.set_device(index)
        code = launch(_current_stream(index), *addresses)
    if code:
        raise LaunchError(f"launching {symbol} for {problem} failed: {driver.error_name(code)}")


def _slot(parameter: Parameter, problem: Problem) -> tuple[int, int]:
    if parameter.name in POINTERS:
        return POINTERS.index(parameter.name), 0
    return -1, scalars(problem)[parameter.name]


_functions: dict[tuple[bytes, str, int], int] = {}


def _function(kernel: Kernel, index: int) -> int:
    """The CUfunction of a kernel on a device, loaded once in the life of the process."""
    key = (kernel.cubin, kernel.symbol, index)
    if key not in _functions:
        _functions[key] = driver.load_function(kernel.cubin, kernel.symbol, kernel.shared_bytes, kernel.cluster)
    return _functions[key]


@cache
def _prepare() -> Callable[..., Callable[..., int]]:
    """The C launcher, else its slower twin."""
    try:
        from autotopk.runtime import _launcher
    except ImportError:
        return driver.prepare
    prepare: Callable[..., Callable[..., int]] = _launcher.prepare
    return prepare
