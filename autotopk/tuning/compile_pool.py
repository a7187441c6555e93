"""Kernels compiled ahead of need: a pool of processes works while the device measures."""

import importlib
import multiprocessing
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from autotopk.candidate import Candidate
from autotopk.device import Device
from autotopk.errors import AutotopkWarning, BuildError, UnknownStrategyError, UnsupportedProblemError
from autotopk.identity import NOTHING, Identity
from autotopk.kernel import KernelSource
from autotopk.problem import Problem
from autotopk.strategy import HostProgram, KernelProgram
from autotopk.tuning.candidates import program_of
from autotopk.tuning.timing import first_line
from autotopk.tuning.worker import live_with_parent
from autotopk.tuning_db.records import Status

COMPILE_S = 120.0
"""Longest wait for the next kernel to be finished."""


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


class CompilePool:
    """The compile pool of one device; kernels are identified by their cache file, and built once."""

    def __init__(self, device: Device, *, preload: Sequence[str] = (), processes: int | None = None) -> None:
        """Set up; processes start with the first kernel.

        Args:
            device: what to compile for.
            preload: modules that the processes import first.
            processes: as many as there are cores but one, by default.
        """
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.processes = processes or max(1, cores - 1)
        self._device = device
        self._preload = tuple(preload)
        self._pool: ProcessPoolExecutor | None = None
        self._broken = False
        self._kernels: dict[Path, Future[Compiled]] = {}

    def submit(self, problem: Problem, candidates: Iterable[Candidate]) -> None:
        """Start compiling what these candidates need and nobody asked for yet."""
        for candidate in candidates:
            self._start(problem, candidate)

    def ready(
        self, problem: Problem, candidates: Iterable[Candidate], until: float
    ) -> Iterator[tuple[Candidate, Build]]:
        """The candidates as they become ready, those first that are; stops at `until` on the monotonic clock."""
        pending: dict[Future[Compiled], list[tuple[Candidate, KernelProgram]]] = {}
        for candidate in candidates:
            started = self._start(problem, candidate)
            if isinstance(started, Build):
                yield candidate, started
            else:
                future, program = started
                pending.setdefault(future, []).append((candidate, program))
        while pending:
            left = until - time.monotonic()
            done, _ = wait(pending, timeout=max(0.0, min(COMPILE_S, left)), return_when=FIRST_COMPLETED)
            if not done and left <= COMPILE_S:
                return
            finished = {future: self._result(future) for future in done} or dict.fromkeys(pending, _TOO_LONG)
            for future, compiled in finished.items():
                for candidate, program in pending.pop(future):
                    yield candidate, self._build(program, compiled)

    def close(self) -> None:
        """Stop compiling at once."""
        if self._pool is not None:
            running = list((getattr(self._pool, "_processes", None) or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in running:  # a compiler at work would be waited for at exit
                process.terminate()
            self._pool = None

    def _start(self, problem: Problem, candidate: Candidate) -> "tuple[Future[Compiled], KernelProgram] | Build":
        try:
            program = program_of(candidate, problem, self._device)
            if isinstance(program, HostProgram):
                return Build(identity=program.identity(self._device.arch))
            path = program.source.cache_path(self._device.arch)
        except (UnsupportedProblemError, UnknownStrategyError) as error:
            return Build("unsupported", first_line(error))
        except Exception as error:  # a strategy may be anyone's code: what it raises is its result
            return Build("build_failed", f"{type(error).__name__}: {first_line(error)}")
        if path not in self._kernels:
            if self._broken:
                return self._build(program, Compiled())  # the worker, which is replaced when it dies, compiles it
            try:
                self._kernels[path] = self._processes().submit(_compile, program.source, self._device.arch)
            except BrokenProcessPool as error:
                return self._build(program, self._give_up(error))
        return self._kernels[path], program

    def _build(self, program: KernelProgram, compiled: Compiled) -> Build:
        arch = self._device.arch
        if compiled.code:
            identity = program.identity_as(compiled.code, arch)
        else:
            identity = Identity(program.source_digest(arch), "")
        return Build(compiled.status, compiled.error, identity, compiled.stats)

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
            warnings.warn(message, AutotopkWarning, stacklevel=2)
        return Compiled()


_TOO_LONG = Compiled("timeout", f"compiling took longer than {COMPILE_S:g} s")


def _prepare_process(preload: Sequence[str]) -> None:
    live_with_parent()
    for module in preload:
        importlib.import_module(module)


def _compile(source: KernelSource, arch: int) -> Compiled:
    """In a process of the pool: leave the kernel in the disk cache, from where the worker loads it."""
    begun = time.perf_counter()
    try:
        kernel = source.load(arch)
    except BuildError as error:
        return Compiled("build_failed", first_line(error))
    except Exception as error:  # a source may be anyone's code: what it raises is its result
        return Compiled("build_failed", f"{type(error).__name__}: {first_line(error)}")
    stats = {
        "compile_s": round(time.perf_counter() - begun, 3),
        "registers": float(kernel.registers),
        "spill_bytes": float(kernel.spill_bytes),
    }
    return Compiled(code=kernel.code, stats=stats)
