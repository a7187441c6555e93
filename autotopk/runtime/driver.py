"""The few calls of the CUDA driver that loading and launching need, through ctypes."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from autotopk.errors import BuildError
from autotopk.program import Axis, Extent

INVALID_CONTEXT = 201
"""CUresult of a thread that has not used the device yet."""

_STATIC_SHARED_BYTES, _MAX_DYNAMIC_SHARED_BYTES, _NON_PORTABLE_CLUSTER = 1, 8, 14  # CUfunction_attribute
_ALWAYS_SHARED_BYTES = 48 << 10  # what a block has without asking
_CAPTURE_RELAXED = 2  # CUstreamCaptureMode


@cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise BuildError(f"the CUDA driver library cannot be loaded: {error}") from error


def error_name(code: int) -> str:
    """CUDA_ERROR_... of a CUresult."""
    text = ctypes.c_char_p()
    _library().cuGetErrorName(code, ctypes.byref(text))
    return text.value.decode() if text.value else f"CUresult {code}"


def load_function(cubin: bytes, symbol: str, shared_bytes: int, cluster: int) -> int:
    """Load a cubin into the current context and return the CUfunction. Raises BuildError.

    Works while a stream of this thread is being captured into a graph.
    """
    library = _library()
    mode = ctypes.c_int(_CAPTURE_RELAXED)
    library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        _check(library.cuModuleLoadData(ctypes.byref(module), cubin), f"loading {symbol}")
        _check(library.cuModuleGetFunction(ctypes.byref(function), module, symbol.encode()), f"finding {symbol}")
        static = ctypes.c_int()
        code = library.cuFuncGetAttribute(ctypes.byref(static), _STATIC_SHARED_BYTES, function)
        _check(code, f"asking for the shared memory of {symbol}")
        if static.value + shared_bytes > _ALWAYS_SHARED_BYTES:
            code = library.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED_BYTES, shared_bytes)
            _check(code, f"reserving {shared_bytes} bytes of shared memory for {symbol}")
        if cluster > 8:
            code = library.cuFuncSetAttribute(function, _NON_PORTABLE_CLUSTER, 1)
            _check(code, f"allowing clusters of {cluster} for {symbol}")
        return int(function.value or 0)
    finally:
        library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


def _check(code: int, action: str) -> None:
    if code:
        raise BuildError(f"{action} failed: {error_name(code)}")


class _Cluster(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class _Value(ctypes.Union):
    _fields_ = [("bytes", ctypes.c_char * 64), ("cluster", _Cluster), ("flag", ctypes.c_int)]


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_char * 4), ("value", _Value)]


class _LaunchConfig(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    ]


LaunchRecord = tuple[int, tuple[Axis, Axis, Axis], int, int, int, bool, bool, tuple[tuple[int, int] | str, ...]]
"""(function, grid, threads, shared bytes, cluster, cooperative, programmatic, parameters); a parameter is (address,
bytes behind it), (-1, value), or the name of a number."""


def prepare(launches: tuple[LaunchRecord, ...], addresses: int, numbers: Mapping[str, int]) -> Callable[..., int]:
    """`_launcher.prepare` for installations without a C compiler; several times slower a call."""
    prepared = [_prepare_one(*one, numbers) for one in launches]

    def launch(stream: int, *given: int) -> int:
        if len(given) != addresses:
            raise TypeError(f"a stream and {addresses} addresses are needed, got {len(given) + 1} arguments")
        return next((code for one in prepared if (code := one(stream, given))), 0)

    return launch


def _prepare_one(
    function: int,
    grid: tuple[Axis, Axis, Axis],
    threads: int,
    shared_bytes: int,
    cluster: int,
    cooperative: bool,
    programmatic: bool,
    parameters: tuple[tuple[int, int] | str, ...],
    numbers: Mapping[str, int],
) -> Callable[[int, Sequence[int]], int]:
    attributes: list[_Attribute] = []
    if cluster > 1:
        attributes.append(_Attribute(id=4, value=_Value(cluster=_Cluster(cluster, 1, 1))))
    if cooperative:
        attributes.append(_Attribute(id=2, value=_Value(flag=1)))
    if programmatic:
        attributes.append(_Attribute(id=6, value=_Value(flag=1)))
    blocks = [Extent(*axis).of(numbers) for axis in grid]
    slots = [(-1, numbers[one]) if isinstance(one, str) else one for one in parameters]
    array = (_Attribute * max(1, len(attributes)))(*attributes)
    launch_kernel = _library().cuLaunchKernelEx

    def launch(stream: int, addresses: Sequence[int]) -> int:
        values = [
            ctypes.c_uint64((value if slot < 0 else addresses[slot] + value) & (1 << 64) - 1) for slot, value in slots
        ]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        config = _LaunchConfig(*blocks, threads, 1, 1, shared_bytes, stream, array, len(attributes))
        return int(launch_kernel(ctypes.byref(config), ctypes.c_void_p(function), pointers, None))

    return launch
