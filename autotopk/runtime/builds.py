"""Kernels that are compiled while calls go on, and those that cannot be.

A thread of the process takes them one at a time to one other process, see `build_process`; both start with the first
kernel and end when none was wanted for a while. What is compiled is in the kernel cache; whoever waits for it is told.
"""

import atexit
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path

from autotopk import kernel_cache
from autotopk.errors import inert
from autotopk.kernel import KernelSource
from autotopk.program import Program
from autotopk.runtime.build_process import BuildProcess, Built
from autotopk.runtime.counters import counters
from autotopk.runtime.forked import forgets

LINGER_S = 20.0
"""How long the other process waits for a further kernel: a compiler takes half a second to import."""

log = logging.getLogger("autotopk.builds")

Then = Callable[[], object]


class Builds:
    """Those of one `Runtime`. Kernels are known by the file that caches them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[tuple[Path, KernelSource, int]] = deque()
        self._waiting: dict[Path, list[Then]] = {}
        self._failed: dict[Path, str] = {}
        self._thread: threading.Thread | None = None
        self._process = BuildProcess()
        _all.add(self)
        forgets(self)

    def want(self, program: Program, arch: int, then: Then) -> None:
        """Have what a program lacks compiled; `then` is called, in any thread, whenever a kernel of it is settled.

        It is called at once where nothing is left to be compiled. Raises what the program's sources raise.
        """
        lacking = [(one.cache_path(arch), one) for one in program.sources if one.cached(arch) is None]
        with self._changed:
            lacking = [(path, source) for path, source in lacking if path not in self._failed]
            for path, source in lacking:
                if path not in self._waiting:
                    self._waiting[path] = []
                    self._queue.append((path, source, arch))
                self._waiting[path].append(then)
            if self._queue and self._thread is None:
                self._start()
            self._changed.notify_all()
        if not lacking:
            then()

    def failure(self, program: Program, arch: int) -> str:
        """Why a kernel of a program could not be compiled; empty where none was tried in vain. Raises BuildError."""
        if not self._failed:
            return ""
        reasons = [self._failed.get(source.cache_path(arch), "") for source in program.sources]
        return next(filter(None, reasons), "")

    def is_pending(self, program: Program, arch: int) -> bool:
        """Whether a kernel of a program is being compiled, or is about to be. Raises BuildError."""
        return bool(self._waiting) and any(source.cache_path(arch) in self._waiting for source in program.sources)

    def settle(self, path: Path, source: KernelSource, arch: int, built: Built) -> str:
        """Take in how a compilation ended, and return what went wrong."""
        error = built.error
        try:
            if built.kernel is not None and source.cached(arch) is None:  # the other process could not write it
                kernel_cache.write(path, built.kernel.to_bytes(path.name))
        except Exception as failed:  # a source may be anyone's code
            error = f"{type(failed).__name__}: {failed}"
        error = inert(error.strip())
        counters.happened("failed_builds" if error else "builds")
        log.info("%s for sm_%d: %s", path.stem, arch, error or "compiled")
        with self._changed:
            waiting = self._waiting.pop(path, [])
            if error:
                self._failed[path] = error
        for then in waiting:
            then()
        return error

    def reset(self) -> None:
        """Forget failures and whatever was not begun."""
        with self._changed:
            self._queue.clear()
            self._waiting.clear()
            self._failed.clear()

    def stop(self) -> None:
        """End the other process at once; what is wanted next starts another."""
        with self._changed:
            process, self._process, self._thread = self._process, BuildProcess(), None
            self._queue.clear()
            self._waiting.clear()
            self._changed.notify_all()
        process.kill()

    def forget(self) -> None:
        """In a forked child, which has neither the thread nor the other process: who waited asks anew."""
        self._changed = threading.Condition()
        waiting, self._waiting = self._waiting, {}
        self._queue.clear()
        self._thread = None
        self._process.forget()
        self._process = BuildProcess()
        for then in [then for its in waiting.values() for then in its]:
            then()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, args=(self._process,), name="autotopk-builds", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self._queue.clear()
            self._waiting.clear()
        else:
            self._thread = thread

    def _run(self, process: BuildProcess) -> None:
        """The thread, as long as the process is this object's."""
        try:
            while (job := self._next(process)) is not None:
                built = process.build(*job[1:])
                if process is self._process:
                    self.settle(*job, built)
        finally:
            process.close()

    def _next(self, process: BuildProcess) -> tuple[Path, KernelSource, int] | None:
        """The next kernel to compile; None when it is time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or process is not self._process, LINGER_S)
            if process is not self._process:
                return None
            if self._queue:
                return self._queue.popleft()
            self._process, self._thread = BuildProcess(), None
            return None


_all: "weakref.WeakSet[Builds]" = weakref.WeakSet()


def _stop_all() -> None:
    for builds in list(_all):
        builds.stop()


atexit.register(_stop_all)
