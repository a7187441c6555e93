"""A compiled kernel as a record, and the source it is compiled from."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import ClassVar, Literal, Protocol, get_args

from autotopk import kernel_cache, packs, settings
from autotopk.cubin import code_digest
from autotopk.errors import BuildError, DamagedKernelError, warn
from autotopk.identity import digest
from autotopk.packs.file import Stored
from autotopk.problem import FLOAT_INF, KTH, Problem, Query
from autotopk.routing import SCORINGS

ParameterKind = Literal["pointer", "int32", "int64"]

FORMAT = 2
"""Layout of a cached kernel file; files of another format have other names, and are left to who wrote them."""

MAX_PARAMETERS = 40
"""As many as the launcher passes."""

LIMITS = {
    "threads": (1, 1024),
    "shared_bytes": (0, 227 << 10),
    "cluster": (1, 16),
    "registers": (0, 255),
    "spill_bytes": (0, 1 << 20),
}
"""The least and the most that any GPU takes, and that is written down of a kernel."""

_NAMES = 1  # measured identities are made of kernels' names: it stays
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,255}")  # of PTX and of C
_MAX_HEADER_BYTES = 16 << 10


SAME_KERNELS = {"bfloat16": "float16", "uint8": "int8"}
"""Dtypes that share the kernels of another in CUDA C++: the sign of integers and the format of floats are `scalars`."""


def kernel_dtype(dtype: str) -> str:
    """The dtype whose kernels in CUDA C++ serve it."""
    return SAME_KERNELS.get(dtype, dtype)


@lru_cache(64)  # a launch asks for every parameter
def scalars(problem: Problem) -> Mapping[str, int]:
    """The numbers a kernel may ask for, by name.

    "signed": elements are integers with a sign. "infinity": bits of infinity of floats that fit 32 bits, else 0. "null"
    is an empty pointer. Those of routing are there for its problems alone.
    """
    routing, layout = problem.routing, problem.layout
    found = {
        "rows": problem.rows,
        "cols": problem.cols,
        "k": problem.k,
        "row_stride": layout.row_stride,
        "col_stride": layout.col_stride,
        "inner": layout.inner,
        "smallest": int(not problem.largest),
        "sorted": int(problem.sorted),
        "signed": int(problem.dtype.startswith("int")),
        "infinity": FLOAT_INF.get(problem.dtype, 0) if problem.itemsize <= 4 else 0,
        "indices_only": int(problem.answer == "indices"),
        "kth": int(problem.answer == KTH),
        "null": 0,
    }
    if routing is not None:
        found |= {
            "scoring": SCORINGS.index(routing.scoring),
            "renormalize": int(routing.renormalize),
            "group_size": problem.cols // routing.n_group,
            "n_group": routing.n_group,
            "topk_group": routing.topk_group,
            "narrow_indices": int(problem.answer == "narrow_weights"),
        }
    return found


def kernel_symbol(family: str, query: Query, *, sorted: bool) -> str:
    """What profilers show: who runs, and what it does, as in autotopk_lane_merge_topk_bfloat16_largest_sorted."""
    operation = "topk_indices" if query.answer == "indices" else "topk"
    direction = "largest" if query.largest else "smallest"
    return "_".join(["autotopk", family, operation, query.dtype, direction, "sorted" if sorted else "any_order"])


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel, by the name of a tensor of its program or of one of `scalars`."""

    name: str
    kind: ParameterKind


@dataclass(frozen=True, slots=True)
class Kernel:
    """Everything a driver needs to launch a compiled kernel, whichever compiler made it.

    Raises BuildError where a field is not of its type or beyond LIMITS.
    """

    cubin: bytes
    symbol: str
    parameters: tuple[Parameter, ...]
    threads: int
    """Threads of a block."""
    shared_bytes: int = 0
    """Dynamic shared memory of a block."""
    cluster: int = 1
    """Blocks of a cluster along x."""
    cooperative: bool = False
    programmatic_launch: bool = False
    """May start before its predecessor ends (the kernel itself waits before it touches memory)."""
    registers: int = 0
    """Registers of a thread, for reports."""
    spill_bytes: int = 0
    """Local memory of a thread, for reports."""

    def __post_init__(self) -> None:
        if type(self.cubin) is not bytes:
            raise BuildError(f"a cubin is bytes, not {type(self.cubin).__name__}")
        for name, (least, most) in LIMITS.items():
            if type(value := getattr(self, name)) is not int or not least <= value <= most:
                raise BuildError(f"{name} {value!r:.40} of a kernel is no integer from {least} to {most}")
        for name in ("cooperative", "programmatic_launch"):
            if type(value := getattr(self, name)) is not bool:
                raise BuildError(f"{name} {value!r:.40} of a kernel is no boolean")
        if type(self.parameters) is not tuple or len(self.parameters) > MAX_PARAMETERS:
            raise BuildError(f"a kernel has a tuple of at most {MAX_PARAMETERS} parameters")
        for name in (self.symbol, *(parameter.name for parameter in self.parameters)):
            if type(name) is not str or not _NAME.fullmatch(name):
                raise BuildError(f"{name!r:.40} is no name of a kernel or a parameter")
        for parameter in self.parameters:
            if parameter.kind not in get_args(ParameterKind):
                raise BuildError(f"{parameter.kind!r:.40} is no kind of a parameter")

    @property
    def code(self) -> str:
        """Digest of what runs: the compiled code, its arguments and how it is launched, but for the grid."""
        launch = (self.threads, self.shared_bytes, self.cluster, self.cooperative, self.programmatic_launch)
        parameters = [(parameter.name, parameter.kind) for parameter in self.parameters]
        return digest(code_digest(self.cubin, self.symbol), parameters, launch)

    def to_bytes(self, file: str = "") -> bytes:
        """A line with the format and a digest of the file's name and the rest: one line of JSON, then the cubin."""
        header = {name: value for name, value in asdict(self).items() if name != "cubin"}
        content = json.dumps(header, sort_keys=True).encode() + b"\n" + self.cubin
        return _first_line(content, file) + content

    @classmethod
    def from_bytes(cls, data: bytes, file: str = "") -> "Kernel":
        """The inverse of `to_bytes`. Raises DamagedKernelError on anything that it did not write for that file."""
        try:
            at = len(_first_line(b"", file))
            content = data[at:]
            if len(data) > kernel_cache.MAX_BYTES or data[:at] != _first_line(content, file):
                raise ValueError("length, format or digest differs")
            line, separator, cubin = content.partition(b"\n")
            if not separator or len(line) > _MAX_HEADER_BYTES:
                raise ValueError("header too long")
            header = dict(json.loads(line))
            parameters = tuple(Parameter(**parameter) for parameter in header.pop("parameters"))
            return cls(cubin=cubin, parameters=parameters, **header)
        except (ValueError, KeyError, TypeError, RecursionError, BuildError) as error:
            raise DamagedKernelError(f"not a cached kernel: {error}") from error


def _first_line(content: bytes, file: str) -> bytes:
    """With the name, so that a good file in the place of another is none."""
    digest = hashlib.sha256(file.encode() + b"\n" + content)
    return f"autotopk kernel {FORMAT} {digest.hexdigest()}\n".encode()


@dataclass(frozen=True)
class KernelSource(ABC):
    """What a kernel is compiled from; small, hashable and picklable, so that a pool of processes can compile it."""

    shares_work: ClassVar[bool] = False
    """Whether `compile_for` several architectures takes less than compiling for each."""

    @abstractmethod
    def cache_key(self) -> str:
        """Everything that the compiled code depends on but the architecture: device files, constants, compiler.

        Imports no compiler. Raises BuildError where the device files are not there.
        """

    def device_code(self) -> tuple[str, str]:
        """Names of its device files, and the digest of their bytes. Raises as `cache_key`.

        Empty where that is not known: such a kernel does not travel.
        """
        return "", ""

    def recipe(self) -> str:
        """What the kernel is made from, whoever compiles it: device files and constants. Raises as `cache_key`.

        Compiled kernels that travel are known by it: machines differ in compilers, and may have none.
        """
        files, found = self.device_code()
        return f"{found}|{self._text}" if files else self.cache_key()

    @cached_property
    def _text(self) -> str:
        """A first call that looks for a kernel in vain asks for it."""
        return repr(self)

    @abstractmethod
    def compile(self, arch: int) -> Kernel:
        """Compile for a compute capability (90 for 9.0), needing no GPU. Raises BuildError."""

    def compile_for(self, archs: Sequence[int]) -> Iterator[Kernel]:
        """Compile for several compute capabilities, in their order. Raises BuildError."""
        return map(self.compile, archs)

    def cache_path(self, arch: int) -> Path:
        """Where the compiled kernel is cached."""
        return settings.kernel_dir() / f"{digest(_NAMES, arch, self.cache_key())}.kernel{FORMAT}"

    def stored(self, arch: int) -> tuple[str, Stored] | None:
        """(the label of a store, what it holds of the kernel) of the first of STORES that has it. Raises BuildError."""
        for store in STORES:
            if (found := store.find(self, arch)) is not None:
                return store.label, found
        return None

    def origin(self, arch: int) -> str:
        """Where `load` gets the kernel: the label of a store, "cache", or "compiler". Raises as `cache_key`."""
        if (found := self.stored(arch)) is not None:
            return found[0]
        return "cache" if kernel_cache.holds(self.cache_path(arch)) else "compiler"

    def known_as(self, arch: int) -> str:
        """What tells programs apart before anything is compiled. Raises as `cache_key`.

        Of a kernel in a store it is what was compiled, the same on machines with and without compilers.
        """
        found = self.stored(arch)
        return self.cache_path(arch).stem if found is None else found[1].code

    def is_cached(self, arch: int) -> bool:
        """Whether `cached` finds a kernel, if a good one. Raises BuildError where the device files are not there."""
        return self.origin(arch) != "compiler"

    def cached(self, arch: int) -> Kernel | None:
        """The kernel of a store, else of the cache, if a good one is there. Raises as `cache_key`."""
        if (found := self.stored(arch)) is not None and (kernel := _unpacked(found[1])) is not None:
            return kernel
        return _read(self.cache_path(arch))

    def load(self, arch: int) -> Kernel:
        """The kernel as `cached` finds it, else compiled and cached, by one process for all. Raises BuildError."""
        if (found := self.cached(arch)) is not None:
            return found
        path = self.cache_path(arch)  # before a compiler is imported, which may set environment variables
        kernel_cache.sweep_once(path.parent)
        with kernel_cache.turn(path):
            if (found := _read(path)) is None:
                found = self.compile(arch)
                kernel_cache.write(path, found.to_bytes(path.name))
        return found


DEPLOYED = "bundle"
"""Label of the store that AUTOTOPK_DB names."""


class Store(Protocol):
    """Compiled kernels that came along, known by what they are made from."""

    @property
    def label(self) -> str:
        """How a kernel's origin is told."""

    def find(self, source: KernelSource, arch: int) -> Stored | None:
        """The kernel of a source for a compute capability, if it is there and to be used. Raises BuildError."""


STORES: list[Store] = [packs]
"""Where a kernel is looked for before the cache, the first ones first."""


def deploy(store: Store | None) -> None:
    """Look for kernels in this store before all others, instead of the one deployed so far; None deploys nothing."""
    others = [one for one in STORES if one.label != DEPLOYED]
    STORES[:] = others if store is None else [store, *others]


@lru_cache(maxsize=1 << 12)  # more than there are
def _kernel_of(stored: Stored) -> Kernel:
    """Read once for all shapes that it serves, for that takes milliseconds; who launches it holds its code anyway.

    Raises OSError or DamagedKernelError.
    """
    return Kernel.from_bytes(stored.read(), stored.name)


def _unpacked(stored: Stored) -> Kernel | None:
    """The kernel; None, with a warning, where a file is not what was written."""
    try:
        return _kernel_of(stored)
    except (OSError, DamagedKernelError) as error:
        warn(f"a compiled kernel is not used: {error}")
        return None


def _read(path: Path) -> Kernel | None:
    """The kernel in a file; None where there is no good one."""
    try:
        data = kernel_cache.read(path)
        return None if data is None else Kernel.from_bytes(data, path.name)
    except DamagedKernelError:
        return None


@cache
def distribution_version(name: str) -> str:
    """Version of an installed distribution, read without importing it; "absent" where there is none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
