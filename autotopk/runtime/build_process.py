"""A process that compiles kernels for another one, so that no call waits for a compiler.

It is started as `python -c`: multiprocessing would import the user's script again. It imports neither that nor torch,
runs at the lowest priority that is not idle, and leads a session of its own: a Ctrl-C at a terminal does not reach it.
It ends, with the compilers that it has started, when its parent closes it, ends in whatever way, or is killed.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue

from autotopk.errors import BuildError
from autotopk.kernel import Kernel, KernelSource

LONGEST_S = 600.0
"""Longest compilation; a compiler that takes longer hangs."""

_NICENESS = 10
_LOOK_S = 1.0  # between looks whether the parent is there
_MAIN = "import sys; sys.path[:] = {path!r}; from autotopk.runtime.build_process import serve; serve({pipe}, {parent})"


@dataclass(frozen=True, slots=True)
class Built:
    """How a compilation ended: with a kernel, which is in the cache too, or with an error."""

    kernel: Kernel | None = None
    error: str = ""
    seconds: float = 0.0


class BuildProcess:
    """The parent's end. The process starts with the first job, and again after it was lost; one thread gives jobs."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._ended = False
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def build(self, source: KernelSource, arch: int) -> Built:
        """Compile, as this process would with its import path and environment of now. Raises nothing."""
        try:
            # the source apart: what it needs may be on that path alone
            job = pickle.dumps((sys.path, dict(os.environ), pickle.dumps(source), arch))
        except Exception as error:  # a source may be anyone's code
            return Built(error=f"no other process can be told what to compile: {type(error).__name__}: {error}")
        try:
            pipe = self._started()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return Built(error=f"no process that compiles can be started: {error}")
        try:
            pipe.send_bytes(job)
            if pipe.poll(LONGEST_S):
                built: Built = pipe.recv()
                return built
        except Exception:  # also what cannot be unpickled, of a source that is anyone's code
            return Built(error=f"the process that compiles has died: {self._exit(_LOOK_S)}")
        self._exit(0.0)
        return Built(error=f"compiling took longer than {LONGEST_S:g} s")

    def kill(self) -> None:
        """End the process at once and for good, from any thread."""
        with self._starting:
            self._ended = True
            self._kill()

    def close(self) -> None:
        """The same, by the thread that gives the jobs."""
        self.kill()
        self._drop_pipe()

    def forget(self) -> None:
        """In a forked child: let go of the process, which is its parent's."""
        self._starting = threading.Lock()
        self._ended = True
        self._drop_pipe()
        if self._process is not None:
            self._process.returncode = 0  # nothing to wait for
            self._process = None

    def _started(self) -> Connection:
        """The pipe to a running process. Raises OSError."""
        if self._pipe is not None:
            if not self._has_ended():
                return self._pipe
            self._exit(0.0)  # somebody killed it while it was idle
        if "python" not in os.path.basename(sys.executable or "").lower() or getattr(sys, "frozen", False):
            raise OSError(f"{sys.executable!r} is no Python interpreter")
        with self._starting:
            if self._ended:
                raise OSError("this process ends")
            ours, theirs = Pipe()
            path = [place for place in sys.path if isinstance(place, str)]
            main = _MAIN.format(path=path, pipe=theirs.fileno(), parent=os.getpid())
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", main],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    pass_fds=[theirs.fileno()],
                )
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            self._pipe = ours
            return ours

    def _has_ended(self) -> bool:
        """Whether there is no process, or one to be waited for: until then its number is nobody else's."""
        if self._process is None or self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody else has waited for it
            return True

    def _kill(self) -> None:
        """End the process, and what it has started, unless it was waited for before."""
        if self._process is not None and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except OSError:  # nothing is left of it
                pass
            self._process.wait()

    def _exit(self, patience_s: float) -> str:
        """How the process ended, at the latest now; the next job starts another."""
        with self._starting:
            until = time.monotonic() + patience_s
            while not self._has_ended() and time.monotonic() < until:
                time.sleep(0.01)
            self._kill()
            code = self._process.returncode if self._process is not None else 0
            self._process = None
        self._drop_pipe()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _drop_pipe(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


def serve(pipe: int, parent: int) -> None:
    """The process: one `Built` for each job, until the parent is gone."""
    os.set_inheritable(pipe, False)  # a compiler that holds it would hide the parent's end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    connection = Connection(pipe)
    jobs: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, jobs, parent), daemon=True).start()
    while True:
        connection.send(_build(jobs.get()))


def _receive(connection: Connection, jobs: "SimpleQueue[bytes]", parent: int) -> None:
    """Take jobs while one is at work; end the session, compilers too, when the parent is gone."""
    try:
        while os.getppid() == parent:
            if connection.poll(_LOOK_S):
                jobs.put(connection.recv_bytes())
    except (EOFError, OSError):
        pass
    finally:
        os.killpg(0, signal.SIGKILL)


def _build(job: bytes) -> Built:
    begun = time.perf_counter()
    try:
        path, environment, source, arch = pickle.loads(job)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)
        kernel = pickle.loads(source).load(arch)
    except BuildError as error:
        return Built(error=str(error))
    except BaseException as error:  # a source may be anyone's code: what it raises is its result
        return Built(error=f"{type(error).__name__}: {error}")
    return Built(kernel, seconds=time.perf_counter() - begun)
