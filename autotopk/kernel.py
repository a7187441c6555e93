"""A compiled kernel as a record, the source it is compiled from, and the folder that caches compiled ones."""

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from autotopk import settings
from autotopk.cubin import code_digest
from autotopk.errors import DamagedKernelError
from autotopk.files import write_atomically
from autotopk.identity import digest
from autotopk.problem import Problem, Query

ParameterKind = Literal["pointer", "int32", "int64"]

FORMAT = 1
"""Layout of a cached kernel file; files of another format are compiled again."""


def scalars(problem: Problem) -> dict[str, int]:
    """The numbers a kernel may ask for, by name. "null" is an empty pointer."""
    return {
        "rows": problem.rows,
        "cols": problem.cols,
        "k": problem.k,
        "row_stride": problem.layout.row_stride,
        "col_stride": problem.layout.col_stride,
        "inner": problem.layout.inner,
        "smallest": int(not problem.largest),
        "sorted": int(problem.sorted),
        "null": 0,
    }


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
    """Everything a driver needs to launch a compiled kernel, whichever compiler made it."""

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

    @property
    def code(self) -> str:
        """Digest of what runs: the compiled code, its arguments and how it is launched, but for the grid."""
        launch = (self.threads, self.shared_bytes, self.cluster, self.cooperative, self.programmatic_launch)
        parameters = [(parameter.name, parameter.kind) for parameter in self.parameters]
        return digest(code_digest(self.cubin, self.symbol), parameters, launch)

    def to_bytes(self) -> bytes:
        """One line of JSON, then the cubin."""
        header = {name: value for name, value in asdict(self).items() if name != "cubin"}
        header |= {"format": FORMAT, "sha256": hashlib.sha256(self.cubin).hexdigest()}
        return json.dumps(header, sort_keys=True).encode() + b"\n" + self.cubin

    @classmethod
    def from_bytes(cls, data: bytes) -> "Kernel":
        """The inverse of `to_bytes`. Raises DamagedKernelError on anything that it did not write."""
        try:
            line, cubin = data.split(b"\n", 1)
            header = json.loads(line)
            if header.pop("format") != FORMAT or header.pop("sha256") != hashlib.sha256(cubin).hexdigest():
                raise ValueError("format or checksum differs")
            parameters = tuple(Parameter(**parameter) for parameter in header.pop("parameters"))
            return cls(cubin=cubin, parameters=parameters, **header)
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedKernelError(f"not a cached kernel: {error}") from error


@dataclass(frozen=True)
class KernelSource(ABC):
    """What a kernel is compiled from; small, hashable and picklable, so that a pool of processes can compile it."""

    @abstractmethod
    def cache_key(self) -> str:
        """Everything that the compiled code depends on but the architecture: device files, constants, compiler.

        Imports no compiler. Raises BuildError where the device files are not there.
        """

    @abstractmethod
    def compile(self, arch: int) -> Kernel:
        """Compile for a compute capability (90 for 9.0), needing no GPU. Raises BuildError."""

    def cache_path(self, arch: int) -> Path:
        """Where the compiled kernel is cached."""
        return settings.kernel_dir() / f"{digest(FORMAT, arch, self.cache_key())}.kernel"

    def cached(self, arch: int) -> Kernel | None:
        """The kernel in the cache, if a good one is there. Raises BuildError where the device files are not."""
        return _read(self.cache_path(arch))

    def load(self, arch: int) -> Kernel:
        """The kernel from the cache, else compiled and cached. Raises BuildError."""
        path = self.cache_path(arch)  # before a compiler is imported, which may set environment variables
        if (found := _read(path)) is not None:
            return found
        kernel = self.compile(arch)
        try:
            write_atomically(path, kernel.to_bytes())
        except OSError:
            pass  # a read-only or full cache only costs the next process a compile
        return kernel


def _read(path: Path) -> Kernel | None:
    """The kernel in a file; None where there is no good one."""
    try:
        return Kernel.from_bytes(path.read_bytes())
    except (OSError, DamagedKernelError):
        return None


@cache
def distribution_version(name: str) -> str:
    """Version of an installed distribution, read without importing it; "absent" where there is none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
