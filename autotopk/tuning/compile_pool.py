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

from autotopk.device import Device
from autotopk.errors import AutotopkWarning, BuildError, UnknownStrategyError, UnsupportedProblemError
from autotopk.kernel import KernelSource
from autotopk.problem import Problem
from autotopk.strategy import HostProgram
from autotopk.tuning.candidates import Candidate
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
    build_stats: dict[str, float] = field(default_factory=dict)
    """Compile seconds, registers and spilled bytes of a thread; empty for what is not compiled."""


class CompilePool:
    """The compile pool of one device; kernels are told apart by where they are cached, and built once."""

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
        self._kernels: dict[Path, Future[Build]] = {}

    def submit(self, problem: Problem, candidates: Iterable[Candidate]) -> None:
        """Start compiling what these candidates need and nobody asked for yet."""
        for candidate in candidates:
            self._start(problem, candidate)

    def ready(
        self, problem: Problem, candidates: Iterable[Candidate], until: float
    ) -> Iterator[tuple[Candidate, Build]]:
        """The candidates as they become ready, those first that are; stops at `until` on the monotonic clock."""
        pending: dict[Future[Build], list[Candidate]] = {}
        for candidate in candidates:
            started = self._start(problem, candidate)
            if isinstance(started, Build):
                yield candidate, started
            else:
                pending.setdefault(started, []).append(candidate)
        while pending:
            left = until - time.monotonic()
            done, _ = wait(pending, timeout=max(0.0, min(COMPILE_S, left)), return_when=FIRST_COMPLETED)
            if not done and left <= COMPILE_S:
                return
            finished = {future: self._result(future) for future in done} or dict.fromkeys(pending, _TOO_LONG)
            for future, build in finished.items():
                for candidate in pending.pop(future):
                    yield candidate, build

    def close(self) -> None:
        """Stop compiling at once."""
        if self._pool is not None:
            running = list((getattr(self._pool, "_processes", None) or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in running:  # a compiler at work would be waited for at exit
                process.terminate()
            self._pool = None

    def _start(self, problem: Problem, candidate: Candidate) -> "Future[Build] | Build":
        try:
            program = candidate.program(problem, self._device)
            if isinstance(program, HostProgram):
                return Build()
            path = program.source.cache_path(self._device.arch)
        except (UnsupportedProblemError, UnknownStrategyError) as error:
            return Build("unsupported", first_line(error))
        except Exception as error:  # a strategy may be anyone's code: what it raises is its result
            return Build("build_failed", f"{type(error).__name__}: {first_line(error)}")
        if path not in self._kernels:
            if self._broken:
                return Build()  # the worker, which is replaced when it dies, compiles what is missing
            try:
                self._kernels[path] = self._processes().submit(_compile, program.source, self._device.arch)
            except BrokenProcessPool as error:
                return self._give_up(error)
        return self._kernels[path]

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.processes, multiprocessing.get_context("spawn"), _prepare_process, (self._preload,)
            )
        return self._pool

    def _result(self, future: "Future[Build]") -> Build:
        try:
            return future.result()
        except BrokenProcessPool as error:
            return self._give_up(error)

    def _give_up(self, error: BrokenProcessPool) -> Build:
        """Which kernel killed a process is not known: the worker meets it alone."""
        if not self._broken:
            self._broken = True
            message = f"kernels are compiled one by one from here on: {first_line(error)}"
            warnings.warn(message, AutotopkWarning, stacklevel=2)
        return Build()


_TOO_LONG = Build("timeout", f"compiling took longer than {COMPILE_S:g} s")


def _prepare_process(preload: Sequence[str]) -> None:
    live_with_parent()
    for module in preload:
        importlib.import_module(module)


def _compile(source: KernelSource, arch: int) -> Build:
    """In a process of the pool: leave the kernel in the disk cache, from where the worker loads it."""
    begun = time.perf_counter()
    try:
        kernel = source.load(arch)
    except BuildError as error:
        return Build("build_failed", first_line(error))
    except Exception as error:  # a source may be anyone's code: what it raises is its result
        return Build("build_failed", f"{type(error).__name__}: {first_line(error)}")
    build_stats = {
        "compile_s": round(time.perf_counter() - begun, 3),
        "registers": float(kernel.registers),
        "spill_bytes": float(kernel.spill_bytes),
    }
    return Build(build_stats=build_stats)
