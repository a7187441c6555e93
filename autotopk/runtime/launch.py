"""From a program to a callable that runs it, at about a microsecond of host time above the allocations."""

from collections.abc import Callable, Sequence
from ctypes import c_float, c_uint32
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from autotopk.device import Device
from autotopk.errors import BuildError, LaunchError, NotCompiledError, WrongAnswerError
from autotopk.kernel import Kernel, KernelSource, scalars
from autotopk.lists import Lists, Parts, listed
from autotopk.problem import KTH, MERGED, Problem
from autotopk.program import HostProgram, KernelProgram, Program, most_scratch
from autotopk.runtime import driver, scratch
from autotopk.runtime.addresses import given, places_of, slots
from autotopk.runtime.views import Run, fresh_strides, laid_out
from autotopk.told import Task, address, told

native: Any
"""The twins in C of what costs the host most; None where they were not built, or from another version's source."""
try:
    from autotopk.runtime import _launcher as native
except ImportError:
    native = None
if not hasattr(native, "asker"):
    native = None

Launch = Callable[..., int]
"""A program on a device: takes a stream and addresses, see `addresses.given`, and returns the driver's code."""

MOST_RECORDED = 1 << 12  # programs that are kept as the launcher takes them

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


def arguments(problem: Problem, **tensors: Any) -> dict[str, Any]:
    """Everything a kernel may ask for, by name, for an interpreter."""
    return {**scalars(problem), **tensors}


def bind(
    program: Program,
    problem: Problem,
    device: Device,
    *,
    index: int | None = None,
    size: tuple[int, ...] | None = None,
    build: bool = True,
) -> Run:
    """Make a program callable for tensors of the problem's layout.

    Args:
        program: what `Strategy.program` gave for the problem.
        problem: the layout that every later input has, and what is written.
        device: where it will run.
        index: which CUDA device; the current one by default.
        size: of the outputs, (rows, k) by default, of the k-th (rows, 1).
        build: compile the kernels that are not there.

    Returns:
        A function of one tensor that returns what `problem.answer` says in fresh contiguous tensors of that size:
        (values, int64 indices), or int32 indices; of routing, float32 weights and indices. Of windows it takes a `Task`
        as well, and writes to its tensors; of lists that are merged, of their memory or `Parts`, and of `Lists` that a
        kernel can be told. Of kernels that write pairs it takes, as a second argument, a pair of such tensors to write
        to instead; of routing, a bias or None, and a scale. It raises LaunchError where the driver refuses, and
        WrongAnswerError where the first results of a third party's function are not of that form.

    Raises:
        BuildError: a kernel cannot be compiled or loaded. NotCompiledError: it is not there, and `build` is off.
    """
    if size is None:
        size = (problem.rows, 1 if problem.answer == KTH else problem.k)
    if isinstance(program, HostProgram):
        return _bind_host(program, problem, size)
    if index is None:
        index = _current_device()
    return _bind_kernels(problem, size, index, *_launch(program, problem, device, index, build))


def is_loaded(program: Program, device: Device, index: int) -> bool:
    """Whether all that the program runs is on the CUDA device already, so that a graph can be captured with it."""
    if isinstance(program, HostProgram):
        return program.prepare is None
    kernels = [source.cached(device.arch) for source in program.sources]
    return all(kernel is not None and _key(kernel, index) in _functions for kernel in kernels)


def loaded() -> int:
    """How many kernels were, on all devices."""
    return len(_functions)


def captured_on(x: Tensor) -> int | None:
    """The CUDA device of a call for this tensor where that becomes part of a graph, which is being captured."""
    return x.device.index if x.is_cuda and scratch.capturing() else None


def _bind_host(program: HostProgram, problem: Problem, size: tuple[int, ...]) -> Run:
    if program.prepare is not None:
        _prepare_once(program.prepare)
    if program.is_torch_topk:
        return program.run  # takes and gives any leading dimensions
    run, matrix, alone = program.run, (problem.rows, problem.cols), problem.answer == "indices"
    stride, result_stride = (problem.layout.row_stride, 1), fresh_strides(size)
    index_dtype = torch.int32 if alone or problem.answer == "narrow_weights" else torch.int64
    checked = False

    def call(x: Tensor, *more: Any) -> Any:
        nonlocal checked
        values, indices = run(x.as_strided(matrix, stride), *more)
        if not checked:
            _check_results(problem, x, None if alone else values, indices)
            checked = True
        indices = laid_out(indices.to(index_dtype), size, result_stride)
        return indices if alone else (laid_out(values, size, result_stride), indices)

    return call


def _check_results(problem: Problem, x: Tensor, values: object, indices: object) -> None:
    """Raise WrongAnswerError unless they are what `HostProgram.run` promises, up to what only the oracle sees."""
    expected: dict[str, tuple[object, tuple[torch.dtype, ...]]] = {"indices": (indices, (torch.int64, torch.int32))}
    if values is not None:
        expected["values"] = values, (x.dtype if problem.routing is None else torch.float32,)
    for name, (found, dtypes) in expected.items():
        if not isinstance(found, Tensor):
            raise WrongAnswerError(f"{name} are a {type(found).__name__}, not a tensor")
        if found.dtype not in dtypes or found.shape != (problem.rows, problem.k) or found.device != x.device:
            told = f"{found.dtype} of {tuple(found.shape)} on {found.device}"
            raise WrongAnswerError(f"{name} are {told}, not {dtypes[0]} of {problem.rows, problem.k} on {x.device}")


@cache
def _prepare_once(prepare: Callable[[], object]) -> None:
    """What raises is tried again by the next program that asks."""
    prepare()


@cache
def _several() -> bool:
    """Whether there is more than one CUDA device, of a process that uses one."""
    return torch.cuda.device_count() > 1


def _bind_kernels(problem: Problem, size: tuple[int, ...], index: int, launch: Launch, symbol: str) -> Run:
    if problem.routing is not None:
        return _bind_routing(problem, size, index, launch, symbol)
    if problem.answer == "windows":
        return _bind_windows(problem, index, launch, symbol)
    if problem.answer == MERGED:
        return _bind_merges(problem, size, index, launch, symbol)
    stride = fresh_strides(size)
    dtype, int32, int64 = getattr(torch, problem.dtype), torch.int32, torch.int64
    empty, current_stream = _empty, _current_stream
    several, current_device = _several(), _current_device

    def pairs(x: Tensor, out: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if several and current_device() != index:
            with torch.cuda.device(index):
                return pairs(x, out)
        if out is None:
            values = empty(size, stride, dtype)
            indices = empty(size, stride, int64)
        else:
            values, indices = out
        code = launch(current_stream(index), x.data_ptr(), values.data_ptr(), indices.data_ptr())
        if code:
            _retry(code, symbol, problem, index, launch, (x.data_ptr(), values.data_ptr(), indices.data_ptr()))
        return values, indices

    def indices_alone(x: Tensor) -> Tensor:
        if several and current_device() != index:
            with torch.cuda.device(index):
                return indices_alone(x)
        indices = empty(size, stride, int32)
        code = launch(current_stream(index), x.data_ptr(), 0, indices.data_ptr())
        if code:
            _retry(code, symbol, problem, index, launch, (x.data_ptr(), 0, indices.data_ptr()))
        return indices

    alone = problem.answer == "indices"
    twin: Run = indices_alone if alone else pairs
    if native is None:
        return twin
    of_values, of_indices = None if alone else (size, stride, dtype), (size, stride, int32 if alone else int64)
    asked = current_device if several else None  # not of one that is alone, which saves a third of a microsecond
    run: Run = native.bind(launch, twin, empty, of_values, of_indices, asked, current_stream, index)
    return run


def _bind_routing(problem: Problem, size: tuple[int, ...], index: int, launch: Launch, symbol: str) -> Run:
    stride, float32 = fresh_strides(size), torch.float32
    index_dtype = torch.int32 if problem.answer == "narrow_weights" else torch.int64
    empty, current_stream = _empty, _current_stream
    several, current_device = _several(), _current_device

    def weights(x: Tensor, bias: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
        if several and current_device() != index:
            with torch.cuda.device(index):
                return weights(x, bias, scale)
        found, indices = empty(size, stride, float32), empty(size, stride, index_dtype)
        beside = 0 if bias is None else bias.data_ptr(), _float32_bits(scale)
        code = launch(current_stream(index), x.data_ptr(), found.data_ptr(), indices.data_ptr(), *beside)
        if code:
            addresses = (x.data_ptr(), found.data_ptr(), indices.data_ptr(), *beside)
            _retry(code, symbol, problem, index, launch, addresses)
        return found, indices

    return weights


def _bind_windows(problem: Problem, index: int, launch: Launch, symbol: str) -> Run:
    current_stream, current_device = _current_stream, _current_device
    several, names = _several(), given(problem)[1:]

    def write(x: Tensor, task: Task) -> None:
        if several and current_device() != index:
            with torch.cuda.device(index):
                return write(x, task)
        given = told(x, task)  # lives until the launch: the next owner of its memory comes behind that on the stream
        addresses = [address(given[name]) for name in names]
        code = launch(current_stream(index), x.data_ptr(), *addresses)
        if code:
            _retry(code, symbol, problem, index, launch, (x.data_ptr(), *addresses))
        return None

    return write


def _bind_merges(problem: Problem, size: tuple[int, ...], index: int, launch: Launch, symbol: str) -> Run:
    stride, dtype, int64 = fresh_strides(size), getattr(torch, problem.dtype), torch.int64
    empty, current_stream = _empty, _current_stream
    several, current_device = _several(), _current_device

    def merge(memory: Tensor | Parts, lists: Lists) -> tuple[Tensor, Tensor]:
        if several and current_device() != index:
            with torch.cuda.device(index):
                return merge(memory, lists)
        if isinstance(memory, Parts):
            start, numbers = memory.addresses, memory.numbers
        else:
            start, numbers = memory.data_ptr(), listed(lists)
        assert numbers is not None
        values, indices = empty(size, stride, dtype), empty(size, stride, int64)
        given = start, values.data_ptr(), indices.data_ptr(), *numbers
        code = launch(current_stream(index), *given)
        if code:
            _retry(code, symbol, problem, index, launch, given)
        return values, indices

    return merge


@lru_cache(maxsize=256)
def _float32_bits(number: float) -> int:
    """The bits of the nearest float32; of numbers beyond its range, of infinity."""
    return c_uint32.from_buffer(c_float(number)).value


def _launch(program: KernelProgram, problem: Problem, device: Device, index: int, build: bool) -> tuple[Launch, str]:
    """A program on a device, and the names of its kernels."""
    kernels, names = [_kernel(source, device.arch, build) for source in program.sources], given(problem)
    made_from = program, device.type, index, kernels, names
    recorded = _recorded.get(id(program))
    if recorded is None or recorded.made_from != made_from:
        recorded = _record(program, problem, device, index, kernels, names)
        if not program.scratch:  # whose bytes are the problem's
            if len(_recorded) >= MOST_RECORDED:
                _recorded.clear()
            _recorded[id(program)] = recorded
    launch, garbage, zeros = _prepare()(*recorded.launches, scalars(problem)), recorded.garbage, recorded.zeros
    return (_with_scratch(launch, index, garbage, zeros) if garbage or zeros else launch), recorded.symbols


class _Recorded(NamedTuple):
    """A program on a device as the launcher takes it, without scratch for all problems alike."""

    made_from: tuple[object, ...]
    launches: tuple[tuple[Any, ...], int]  # `driver.LaunchRecord`s, and how many addresses a call has
    garbage: int  # bytes of scratch, of each kind
    zeros: int
    symbols: str


_recorded: dict[int, _Recorded] = {}
"""By `id` of programs that strategies keep."""


def _record(
    program: KernelProgram,
    problem: Problem,
    device: Device,
    index: int,
    kernels: list[Kernel],
    names: tuple[str, ...],
) -> _Recorded:
    """Loads the kernels that are not."""
    symbols = ", ".join(dict.fromkeys(kernel.symbol for kernel in kernels))
    if device.type != "cuda":
        raise BuildError(f"{symbols} needs a CUDA device, not {device.name}")
    if program.scratch and (needed := program.scratch_bytes(problem)) > most_scratch(problem):
        raise BuildError(f"{symbols} needs {needed} bytes of scratch, more than {most_scratch(problem)}")
    places, garbage, zeros = places_of(program, problem)
    functions = [_functions.get(_key(kernel, index)) for kernel in kernels]
    if None in functions:
        with torch.cuda.device(index):
            torch.cuda.set_device(index)  # makes the context that kernels are loaded into
            functions = [_function(kernel, index) for kernel in kernels]
    records = [
        (
            function,
            one.axes,
            kernel.threads,
            kernel.shared_bytes,
            kernel.cluster,
            kernel.cooperative,
            kernel.programmatic_launch,
            slots(kernel.parameters, places, problem),
        )
        for function, one, kernel in zip(functions, program.launches, kernels, strict=True)
    ]
    made_from = program, device.type, index, kernels, names
    launches = tuple(records), len(names) + bool(garbage) + bool(zeros)
    return _Recorded(made_from, launches, garbage, zeros, symbols)


def _kernel(source: KernelSource, arch: int, build: bool) -> Kernel:
    if build:
        return source.load(arch)
    if (found := source.cached(arch)) is None:
        raise NotCompiledError(f"{source.cache_path(arch).name} is not compiled yet")
    return found


def _with_scratch(launch: Launch, index: int, garbage: int, zeros: int) -> Launch:
    """The launch with the addresses of so many bytes of each kind of scratch."""
    empty, uint8 = _empty, torch.uint8

    def launched(stream: int, *addresses: int) -> int:
        memory = [empty((garbage,), (1,), uint8)] if garbage else []
        if zeros:
            memory.append(scratch.zeroed(index, stream, zeros))
        code = launch(stream, *addresses, *[one.data_ptr() for one in memory])
        if code and zeros:
            scratch.drop(index, stream)
        return code

    return launched


def _retry(code: int, symbols: str, problem: Problem, index: int, launch: Launch, addresses: Sequence[int]) -> None:
    if code == driver.INVALID_CONTEXT:  # this thread's first use of the device
        torch.cuda.set_device(index)
        code = launch(_current_stream(index), *addresses)
    if code:
        raise LaunchError(f"launching {symbols} for {problem} failed: {driver.error_name(code)}")


_functions: dict[tuple[bytes, str, int, int], int] = {}


def _key(kernel: Kernel, index: int) -> tuple[bytes, str, int, int]:
    return kernel.cubin, kernel.symbol, kernel.shared_bytes, index  # a function reserves what one launch needs


def _function(kernel: Kernel, index: int) -> int:
    """The CUfunction of a kernel on a device, loaded once in the life of the process."""
    key = _key(kernel, index)
    if key not in _functions:
        _functions[key] = driver.load_function(kernel.cubin, kernel.symbol, kernel.shared_bytes, kernel.cluster)
    return _functions[key]


def load(kernel: Kernel, device: torch.device) -> None:
    """Load a kernel on a CUDA device. Raises BuildError."""
    with torch.cuda.device(device):
        torch.cuda.set_device(torch.cuda.current_device())  # makes the context
        _function(kernel, torch.cuda.current_device())


def _prepare() -> Callable[..., Launch]:
    """The C launcher, else its slower twin."""
    prepare: Callable[..., Launch] = driver.prepare if native is None else native.prepare
    return prepare
