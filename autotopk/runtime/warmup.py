"""Kernels compiled and loaded ahead of the first call: for servers, before they accept traffic."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self, Union

import torch

from autotopk.device import Device, cores, device_of
from autotopk.errors import SelectionError, inert
from autotopk.kernel import KernelSource
from autotopk.problem import Problem
from autotopk.program import HostProgram, Program
from autotopk.runtime import dispatch, launch, misses, self_check
from autotopk.runtime.build_process import BuildProcess
from autotopk.runtime.dispatch import Choice
from autotopk.runtime.state import Runtime, default
from autotopk.tuning_db import artifact, ownership
from autotopk.workloads import TAGS, Workload, check_size, tagged

Shape = tuple[int, int, int] | tuple[int, int, int, str]
"""(rows, cols, k), of float32, or (rows, cols, k, dtype); the largest, in order."""

What = Union[str, "os.PathLike[str]", Shape, Problem, Workload, "Iterable[What]"]

ACCEPTED = (
    "a shape (rows, cols, k) or (rows, cols, k, dtype), a Problem, a Workload, a tag, a file of misses, or several"
)


@dataclass(frozen=True)
class Warmed:
    """What is ready for a problem."""

    problem: Problem
    choice: Choice
    origin: str
    """Where it comes from: "built" now, "library", "torch"; else that of its kernels, see `KernelSource.origin`."""
    ms: float
    """Milliseconds of compiling, wherever that happened, and of loading."""
    failed: tuple[str, ...] = ()
    """What came first and could not be compiled or loaded, with the reason."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "problem": asdict(self.problem),
            "step": self.choice.step,
            "strategy": self.choice.candidate.strategy,
            "config": self.choice.candidate.knobs,
            "origin": self.origin,
            "ms": self.ms,
            "failed": list(self.failed),
        }


@dataclass(frozen=True)
class WarmupReport:
    """What is ready now."""

    device: Device
    rows: tuple[Warmed, ...]
    seconds: float

    @property
    def conclusion(self) -> str:
        """In one line."""
        origins = [row.origin for row in self.rows]
        counts = ", ".join(f"{origins.count(one)} {one}" for one in dict.fromkeys(origins))
        told = f"{len(self.rows)} problems on {inert(self.device.name)} in {self.seconds:.1f} s: {counts or 'none'}"
        return told if {*origins} - {"torch"} else f"{told}; torch's operators serve them, nothing is to be compiled"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        rows = [row.to_dict() for row in self.rows]
        return {"device": self.device.fingerprint, "seconds": self.seconds, "problems": rows}

    def __str__(self) -> str:
        lines = [f"{row.problem}: {row.choice.candidate}, {row.origin}, {row.ms:.1f} ms" for row in self.rows]
        lines += [f"  not {reason}" for row in self.rows for reason in row.failed]
        return "\n".join([*lines, self.conclusion])


Progress = Callable[[Warmed, int, int], object]
"""Told of every problem that is ready, how many are, and of how many."""


def warmup(
    what: What,
    *,
    progress: Progress | None = None,
    build: bool = True,
    load: bool = True,
    device: torch.device | str | None = None,
) -> WarmupReport:
    """Compile and load what `topk` runs for problems, so that their first calls find it.

    On a GPU that shipped kernels have not been checked on, they are first, which takes about a minute, once. After
    `sync_winners` all ranks call it, and it waits for them.

    Args:
        what: a shape (rows, cols, k) or (rows, cols, k, dtype), a `Problem`, a `Workload`, the name of a tag, a bundle
            or a winners file (whatever it was measured on), a file that AUTOTOPK_MISSES named, or an iterable of those.
        progress: called for every problem as it becomes ready, with it, how many are ready and how many there are.
        build: compile what is not there, in as many processes as there are cores but one; otherwise the best of what
            is there is loaded.
        load: load the kernels on the device.
        device: where; by default the current GPU, else the CPU.

    Returns:
        What is ready, problem by problem, in the order asked for; each is printed in a line.

    Raises:
        SelectionError: something asked for is none of those, or is not here. ArtifactError: a bundle is damaged.
    """
    begun = time.monotonic()
    place = _place(device)
    model = device_of(place)
    problems = list(dict.fromkeys(_problems(what, model)))
    self_check.tried(place)
    rows: list[Warmed] = []
    with _Compilers(model.arch, default) as compilers:
        turns = [_Turn(problem, model, place.index, compilers if build else None, default) for problem in problems]
        for turn in turns:
            rows.append(turn.finished(load))
            if progress is not None:
                progress(rows[-1], len(rows), len(turns))
    if any(row.origin == "built" for row in rows):
        default.forget_plans()  # made with less
    default.meet()
    return WarmupReport(model, tuple(rows), time.monotonic() - begun)


class _Compilers:
    """Processes that compile side by side; each kernel is compiled once."""

    def __init__(self, arch: int, runtime: Runtime) -> None:
        self.arch = arch
        self._all = [BuildProcess() for _ in range(max(1, cores() - 1))]
        self._idle: SimpleQueue[BuildProcess] = SimpleQueue()
        for process in self._all:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(len(self._all))
        self._runtime = runtime
        self._begun: dict[Path, Future[tuple[str, float]]] = {}
        self._ended = False

    def compile(self, source: KernelSource) -> "Future[tuple[str, float]]":
        """What will go wrong, and how many seconds it takes."""
        path = source.cache_path(self.arch)
        if path not in self._begun:
            self._begun[path] = self._threads.submit(self._compile, path, source)
        return self._begun[path]

    def _compile(self, path: Path, source: KernelSource) -> tuple[str, float]:
        process = self._idle.get()
        try:
            built = process.build(source, self.arch)
        finally:
            self._idle.put(process)
        if self._ended:  # by Ctrl-C, say: that is no kernel's fault
            return built.error, built.seconds
        return self._runtime.builds.settle(path, source, self.arch, built), built.seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        for process in self._all:
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._all:
            process.close()


class _Turn:
    """A problem on its way: its kernels are being compiled from the beginning."""

    def __init__(
        self, problem: Problem, device: Device, index: int | None, compilers: _Compilers | None, runtime: Runtime
    ) -> None:
        """Without compilers nothing is compiled."""
        self.problem, self.device, self.index, self.compilers, self.runtime = problem, device, index, compilers, runtime
        self.failed: list[str] = []
        self._choose()

    def finished(self, load: bool) -> Warmed:
        """Once it is compiled, and loaded; what fails gives its place to the next in line."""
        while (reason := self._ready(load)) is not None:
            self.failed.append(f"{self._choice.candidate}: {reason}")
            self._choose()
        return Warmed(self.problem, self._choice, self._origin(), 1e3 * self._seconds, tuple(self.failed))

    def _choose(self) -> None:
        """What is to run, and begin to compile it."""
        arch = self.device.arch
        pairs = self.problem if self.problem.routing else replace(self.problem, answer="pairs")
        self._choice = dispatch.choose(pairs, self.device, runtime=self.runtime, ready=self._may_answer)
        self.runtime.weighed.remember(pairs, True)
        self._asked = self._choice.asked(pairs, self.problem.answer)
        self._program: Program = self._choice.program(self._asked, self.device)
        self._lacking = [one for one in self._program.sources if self.compilers and one.cached(arch) is None]
        self._kernels = [self.compilers.compile(one) for one in self._lacking] if self.compilers else []
        self._seconds = 0.0

    def _may_answer(self, choice: Choice, problem: Problem) -> str:
        program = choice.program(choice.asked(problem, self.problem.answer), self.device)
        if program.is_cached(self.device.arch):
            return ""
        failure = self.runtime.builds.failure(program, self.device.arch)
        return failure or ("" if self.compilers else "not compiled, and nothing is to be")

    def _ready(self, load: bool) -> str | None:
        """What went wrong, or None."""
        for kernel in self._kernels:
            error, seconds = kernel.result()
            self._seconds += seconds
            if error:
                return error
        if not load:
            return None
        begun = time.perf_counter()
        try:
            launch.bind(self._program, self._asked, self.device, index=self.index, build=False)
        except Exception as error:  # also what a third party's strategy raises
            self.runtime.block(self._choice.candidate, self.device, error)
            return f"{type(error).__name__}: {error}"
        self._seconds += time.perf_counter() - begun
        return None

    def _origin(self) -> str:
        if isinstance(self._program, HostProgram):
            return "torch" if self._program.prepare is None else "library"
        if self._lacking:
            return "built"
        return " and ".join(dict.fromkeys(self._program.origins(self.device.arch)))


def _place(device: torch.device | str | None) -> torch.device:
    """Raises SelectionError."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
        if place.type not in ("cpu", "cuda"):
            raise ValueError
    except (RuntimeError, TypeError, ValueError) as error:
        raise SelectionError(f"device={inert(repr(device))} is not cpu, cuda or cuda:INDEX") from error
    if place.type == "cuda":
        if (place.index or 0) >= torch.cuda.device_count():
            raise SelectionError(f"device={str(place)!r} is not here: {torch.cuda.device_count()} CUDA devices found")
        return torch.device("cuda", torch.cuda.current_device() if place.index is None else place.index)
    return place


def _problems(what: Any, device: Device) -> Iterator[Problem]:
    """Of everything that `warmup` takes. Raises SelectionError."""
    match what:
        case Problem():
            if what.device_type != device.type or what.layout.side_by_side:
                wanted = f"rows on {device.type} whose columns are adjacent"
                raise SelectionError(f"what={inert(what)} is not about {wanted}")
            yield what
        case Workload():
            yield what.problem(device.type)
        case str() if what in TAGS:
            yield from (workload.problem(device.type) for workload in tagged(what))
        case str() | os.PathLike():
            path = Path(what)
            if not path.exists():
                raise SelectionError(f"what={inert(repr(what))} is no file, and no tag ({', '.join(TAGS)})")
            yield from (workload.problem(device.type) for workload in _of_file(path, device))
        case (int(), int(), int()) | (int(), int(), int(), str()):
            yield _of_shape(*what, device_type=device.type)
        case _:
            try:
                parts = iter(what)
            except TypeError as error:
                raise SelectionError(f"what={inert(repr(what))} is not {ACCEPTED} of those") from error
            for part in parts:
                if isinstance(part, int):  # of no shape
                    raise SelectionError(f"what={inert(repr(what))} is not {ACCEPTED} of those")
                yield from _problems(part, device)


def _of_file(path: Path, device: Device) -> "Iterable[Workload]":
    """What a bundle or a winners file has winners for, else what a file of misses names. Raises as those do."""
    if ownership.holds_winners(path):
        keys = dict.fromkeys(winner.key for winner in artifact.read(path))
        return [Workload.of(key) for key in keys]
    return misses.read(path, device)


def _of_shape(rows: int, cols: int, k: int, dtype: str = "float32", *, device_type: str) -> Problem:
    try:
        problem = Problem.contiguous(rows, cols, k, dtype, device_type)
    except ValueError as error:
        raise SelectionError(f"what={inert((rows, cols, k, dtype))}: {error}") from error
    check_size(rows, cols, dtype)
    return problem
