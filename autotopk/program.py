"""What a strategy wants to be run: a function of torch operators, or launches of kernels on one stream."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from autotopk.errors import BuildError
from autotopk.identity import Identity, digest, python_digest
from autotopk.kernel import KernelSource, distribution_version, scalars
from autotopk.problem import Problem

Axis = tuple[int, tuple[tuple[str, int], ...]]
"""`Extent.times` and `Extent.per`."""

MAX_SCRATCH_BYTES = 64 << 20
"""Most scratch of a program whose answer is smaller."""


def answer_bytes(problem: Problem) -> int:
    """Of all values and indices, or of the indices alone, which have 32 bits then."""
    return problem.rows * problem.k * (4 if problem.answer == "indices" else 8 + problem.itemsize)


def most_scratch(problem: Problem) -> int:
    """Bytes, as many as the answer has at least: a strategy refuses problems that would need more."""
    return max(MAX_SCRATCH_BYTES, answer_bytes(problem))


@dataclass(frozen=True)
class HostProgram:
    """A program made of torch operators, or of calls of another library."""

    run: Callable[..., Any]
    """(rows, cols) input to (rows, k) values and (rows, k) indices, int64 or int32; converted to what is asked for.

    Of windows it takes a `told.Task` as well, and writes to its tensors; of merges, the memory of lists and `Lists`.
    Of routing the arguments are logits, a float32 bias (cols,) or None, and the scale; values are float32 weights.
    """
    is_torch_topk: bool = False
    """It is torch.topk as it stands, or routing around that: callers may do without it, any leading dimensions."""
    prepare: Callable[[], object] | None = None
    """Called once in a process before the first `run`, with time enough for a library to compile; may raise."""
    distributions: tuple[str, ...] = ()
    """Installed distributions that do the work: another version of one is another program."""

    @property
    def sources(self) -> tuple[KernelSource, ...]:
        """Nothing is compiled."""
        return ()

    def is_cached(self, arch: int) -> bool:
        """There is nothing to compile."""
        return True

    def comes_along(self, arch: int) -> bool:
        """It is there."""
        return True

    def origins(self, arch: int) -> tuple[str, ...]:
        """There are no kernels."""
        return ()

    def scratch_bytes(self, problem: Problem) -> int:
        """Operators allocate what they need; that is not known."""
        return 0

    def source_digest(self, problem: Problem, arch: int) -> str:
        """Digest of the Python file that defines `run`, as code, and of the versions of `distributions`."""
        if self.is_torch_topk and problem.routing is None:
            return digest("torch.topk")
        versions = [(name, distribution_version(name)) for name in self.distributions]
        code = self._code()
        return digest(code, *versions) if versions else code

    def identity(self, problem: Problem, arch: int) -> Identity:
        """Operators are not compiled: their code is their source."""
        source = self.source_digest(problem, arch)
        return Identity(source, source)

    def _code(self) -> str:
        run: Any = self.run
        while isinstance(run, partial):
            run = run.func
        try:
            return python_digest(Path(inspect.getfile(inspect.unwrap(run))))
        except TypeError:  # not of Python's making
            return digest(f"{type(run).__module__}.{type(run).__qualname__}")


@dataclass(frozen=True, slots=True)
class Extent:
    """A number that follows from a problem's `scalars`: `times` * ceil(scalar / share) * ... over all of `per`.

    Blocks of a grid and bytes of scratch are given as such, so that programs in other languages can evaluate them.
    """

    times: int = 1
    per: tuple[tuple[str, int], ...] = ()
    """(name of a scalar, how many of it share one)."""

    def of(self, values: Mapping[str, int]) -> int:
        """The number for these scalars."""
        found = self.times
        for name, share in self.per:
            found *= -(-values[name] // share)
        return found


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel."""

    source: KernelSource
    grid: tuple[Extent, ...]
    """Blocks along x, y and z, the last ones 1 by default; along x a multiple of the kernel's cluster."""

    def blocks(self, problem: Problem) -> tuple[int, int, int]:
        """The grid for a problem."""
        values = scalars(problem)
        x, y, z = (one.of(values) for one in self.extents)
        return x, y, z

    @property
    def extents(self) -> tuple[Extent, Extent, Extent]:
        """Of the grid's three axes."""
        x, y, z = (*self.grid, Extent(), Extent())[:3]
        return x, y, z

    @property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """The same as the launcher takes them."""
        x, y, z = ((one.times, one.per) for one in self.extents)
        return x, y, z


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory that the kernels of a program share, under a name that is no tensor's of the operation.

    Of no bytes it is a null pointer.
    """

    name: str
    bytes: Extent
    zeroed: bool = False
    """It is zero when the program begins, and the program leaves it zero; any other holds garbage."""


@dataclass(frozen=True)
class KernelProgram:
    """One or more launches, each after the end of the one before, with memory of their own.

    Kernels ask for tensors by name: "x", "values" and "indices" of the operation, and the program's scratch.
    """

    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...] = ()

    @classmethod
    def of(cls, source: KernelSource, *grid: Extent) -> "KernelProgram":
        """One launch without scratch."""
        return cls((Launch(source, grid),))

    @cached_property
    def sources(self) -> tuple[KernelSource, ...]:
        """What is compiled, launch by launch."""
        return tuple([launch.source for launch in self.launches])

    def is_cached(self, arch: int) -> bool:
        """Whether all its kernels are there already, so that it runs where no compiler is."""
        try:
            return all(source.is_cached(arch) for source in self.sources)
        except BuildError:  # device files are missing
            return False

    def comes_along(self, arch: int) -> bool:
        """Whether a store has all its kernels."""
        try:
            return None not in [source.stored(arch) for source in self.sources]
        except BuildError:  # device files are missing
            return False

    def origins(self, arch: int) -> tuple[str, ...]:
        """Where its kernels come from, launch by launch, see `KernelSource.origin`. Raises BuildError."""
        return tuple(source.origin(arch) for source in self.sources)

    def scratch_bytes(self, problem: Problem) -> int:
        """Bytes of scratch for a problem, of all kinds together."""
        values = scalars(problem)
        return sum(scratch.bytes.of(values) for scratch in self.scratch)

    def source_digest(self, problem: Problem, arch: int) -> str:
        """Digest of what is compiled for a compute capability (90 for 9.0), of grids and scratch. Raises BuildError."""
        return self._digest([source.known_as(arch) for source in self.sources], problem)

    def identity(self, problem: Problem, arch: int) -> Identity:
        """With the compiled kernels, from the cache or compiled now. Raises BuildError."""
        return self.identity_as([source.load(arch).code for source in self.sources], problem, arch)

    def identity_as(self, codes: Sequence[str], problem: Problem, arch: int) -> Identity:
        """With kernels of these `Kernel.code`."""
        return Identity(self.source_digest(problem, arch), self._digest(codes, problem))

    def _digest(self, kernels: Sequence[str], problem: Problem) -> str:
        launches = zip(kernels, self.launches, strict=True)
        parts = [part for kernel, launch in launches for part in (kernel, launch.blocks(problem))]
        return digest(*parts, *self.scratch)


Program = HostProgram | KernelProgram
