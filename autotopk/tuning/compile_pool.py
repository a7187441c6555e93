"""Kernels compiled ahead of need: a pool of processes works while the device measures."""

import importlib
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from autotopk.candidate import Candidate
from autotopk.device import Device, cores
from autotopk.errors import BuildError, UnknownStrategyError, UnsupportedProblemError, warn
from autotopk.identity import NOTHING, Identity
from autotopk.kernel import Kernel, KernelSource
from autotopk.problem import Problem
from autotopk.program import HostProgram, Program
from autotopk.tuning.candidates import program_of
from autotopk.tuning.timing import first_line
from autotopk.tuning.worker import live_with_parent, slices
from autotopk.tuning_db.records import Status

COMPILE_S = 120.0
"""Longest wait for the next kernel to be finished."""

PREPARE_S = 3600.0
"""The same while a library is being prepared, whose own compiler may take long; the budget may end sooner."""


@dataclass(frozen=True, slots=True)
class Build:
    """How the compilation of a candidate ended."""

    status: Status = "ok"
    error: str | None = None
    identity: Identity = NOTHING
    """Of the candidate's program; without a code where it was not compiled."""
    stats: dict[str, float] = field(default_factory=dict)
    """Compile seconds, registers and spilled bytes of a thread; empty for what is not compiled."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """How the compilation of a kernel ended."""

    status: Status = "ok"
    error: str | None = None
    code: str = ""
    """`Kernel.code`."""
    stats: dict[str, float] = field(default_factory=dict)


@dataclass
class Started:
    """A candidate whose kernels are being compiled."""

    program: Program
    problem: Problem
    arch: int
    uncompiled: Identity
    kernels: "list[Future[Compiled]]" = field(default_factory=list)
    """Launch by launch; of a library one that prepares it."""

    def build(self, kernels: "Sequence[Compiled]") -> Build:
        """How it ended, from how each of its kernels did."""
        bad = next((one for one in kernels if one.status != "ok"), None)
        if bad is not None:
            return Build(bad.status, bad.error, self.uncompiled, bad.stats)
        stats = _together([one.stats for one in kernels])
        if isinstance(self.program, HostProgram):
            return Build(identity=self.program.identity(self.problem, self.arch), stats=stats)
        if not all(one.code for one in kernels):
            return Build(identity=self.uncompiled, stats=stats)
        codes = [one.code for one in kernels]
        return Build(identity=self.program.identity_as(codes, self.problem, self.arch), stats=stats)


class CompilePool:
    """The compile pool of one device; each kernel, known by its cache file, and each library is built once."""

    def __init__(self, device: Device, *, preload: Sequence[str] = (), processes: int | None = None) -> None:
        """Set up; processes start with the first kernel.

        Args:
            device: what to compile for.
            preload: modules that the processes import first.
            processes: as many as there are cores but one, by default.
        """
        self.processes = processes or max(1, cores() - 1)
        self._device = device
        self._preload = tuple(preload)
        self._pool: ProcessPoolExecutor | None = None
        self._broken = False
        self._kernels: dict[Path, Future[Compiled]] = {}

    def submit(self, problem: Problem, candidates: Iterable[Candidate]) -> "list[Future[Compiled]]":
        """Start compiling what these candidates need and nobody asked for yet; returns all that they need."""
        started = [self._start(problem, candidate) for candidate in candidates]
        return [kernel for one in started if isinstance(one, Started) for kernel in one.kernels]

    def ready(
        self, problem: Problem, candidates: Iterable[Candidate], until: float
    ) -> Iterator[tuple[Candidate, Build]]:
        """The candidates as they become ready, those first that are, in order; stops at `until` on the monotonic clock.

        All that are ready are given, however late it is.
        """
        begun = {candidate: self._start(problem, candidate) for candidate in candidates}
        pending: dict[Candidate, Started] = {}
        for candidate, started in begun.items():
            if isinstance(started, Build):
                yield candidate, started
            elif all(future.done() for future in started.kernels):
                yield candidate, started.build([self._result(future) for future in started.kernels])
            else:
                pending[candidate] = started
        while pending:
            for candidate, started in list(pending.items()):
                if all(future.done() for future in started.kernels):
                    del pending[candidate]
                    yield candidate, started.build([self._result(future) for future in started.kernels])
            waited = {future for started in pending.values() for future in started.kernels if not future.done()}
            if not waited:
                continue
            library = any(isinstance(started.program, HostProgram) for started in pending.values())
            longest, left = PREPARE_S if library else COMPILE_S, until - time.monotonic()
            for part in slices(max(0.0, min(longest, left))):
                done, _ = wait(waited, timeout=part, return_when=FIRST_COMPLETED)
                if done or time.monotonic() > until:
                    break
            if not done and (left <= longest or time.monotonic() > until):
                return
            if not done:
                yield from ((one, started.build([_TOO_LONG])) for one, started in pending.items())
                return

    def close(self) -> None:
        """Stop compiling at once."""
        if self._pool is not None:
            running = list((getattr(self._pool, "_processes", None) or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in running:  # a compiler at work would be waited for at exit
                process.terminate()
            self._pool = None

    def _start(self, problem: Problem, candidate: Candidate) -> "Started | Build":
        arch = self._device.arch
        try:
            program = program_of(candidate, problem, self._device)
            digest = program.source_digest(problem, arch)
            if isinstance(program, HostProgram) and program.prepare is None:
                return Build(identity=Identity(digest, digest))
            started = Started(program, problem, arch, Identity(digest, ""))
            builds = [(one.cache_path(arch), partial(_compile, one, arch)) for one in program.sources]
            for one in program.sources:
                self._take_cached(one)
        except (UnsupportedProblemError, UnknownStrategyError) as error:
            return Build("unsupported", first_line(error))
        except Exception as error:  # a strategy may be anyone's code: what it raises is its result
            return Build("build_failed", f"{type(error).__name__}: {first_line(error)}")
        if isinstance(program, HostProgram):
            library = Path(candidate.strategy, repr(program.prepare))
            builds = [(library, partial(_prepare_library, candidate, problem, self._device))]
        for path, build in builds:
            if path not in self._kernels:
                if self._broken:
                    return started.build([Compiled()])  # the worker, which is replaced when it dies, compiles it
                try:
                    self._kernels[path] = self._processes().submit(build)
                except BrokenProcessPool as error:
                    return started.build([self._give_up(error)])
            started.kernels.append(self._kernels[path])
        return started

    def _take_cached(self, source: KernelSource) -> None:
        """What needs no compiler waits behind nothing that does. Raises BuildError."""
        path = source.cache_path(self._device.arch)
        if path not in self._kernels and (kernel := source.cached(self._device.arch)) is not None:
            self._kernels[path] = Future()
            self._kernels[path].set_result(_compiled(kernel, 0.0))

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.processes, multiprocessing.get_context("spawn"), _prepare_process, (self._preload,)
            )
        return self._pool

    def _result(self, future: "Future[Compiled]") -> Compiled:
        try:
            return future.result()
        except BrokenProcessPool as error:
            return self._give_up(error)

    def _give_up(self, error: BrokenProcessPool) -> Compiled:
        """Which kernel killed a process is not known: the worker meets it alone."""
        if not self._broken:
            self._broken = True
            message = f"kernels are compiled one by one from here on: {first_line(error)}"
            warn(message)
        return Compiled()


def _together(stats: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of a program: the seconds of all its kernels, the registers and spills of the largest."""
    if len(stats) == 1:
        return stats[0]
    names = dict.fromkeys(name for one in stats for name in one)
    return {name: (sum if name == "compile_s" else max)(one.get(name, 0.0) for one in stats) for name in names}


_TOO_LONG = Compiled("timeout", f"compiling took longer than {COMPILE_S:g} s")


def _prepare_process(preload: Sequence[str]) -> None:
    live_with_parent()
    for module in preload:
        importlib.import_module(module)


def _prepare_library(candidate: Candidate, problem: Problem, device: Device) -> Compiled:
    """In a process of the pool: let a library compile what it keeps on disk."""
    begun = time.perf_counter()
    try:
        program = program_of(candidate, problem, device)
        if isinstance(program, HostProgram) and program.prepare is not None:
            program.prepare()
    except Exception as error:  # anyone's code: what it raises is its result
        return Compiled("build_failed", f"{type(error).__name__}: {first_line(error)}")
    return Compiled(stats={"compile_s": round(time.perf_counter() - begun, 3)})


def _compile(source: KernelSource, arch: int) -> Compiled:
    """In a process of the pool: leave the kernel in the disk cache, from where the worker loads it."""
    begun = time.perf_counter()
    try:
        kernel = source.load(arch)
    except BuildError as error:
        return Compiled("build_failed", first_line(error))
    except Exception as error:  # a source may be anyone's code: what it raises is its result
        return Compiled("build_failed", f"{type(error).__name__}: {first_line(error)}")
    return _compiled(kernel, time.perf_counter() - begun)


def _compiled(kernel: Kernel, seconds: float) -> Compiled:
    stats = {
        "compile_s": round(seconds, 3),
        "registers": float(kernel.registers),
        "spill_bytes": float(kernel.spill_bytes),
    }
    return Compiled(code=kernel.code, stats=stats)
