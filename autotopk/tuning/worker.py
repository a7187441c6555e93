"""A process of its own that runs candidates on one device, so that a crash or a hang costs one candidate."""

import contextlib
import importlib
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import torch

from autotopk.candidate import Candidate
from autotopk.errors import (
    BuildError,
    MeasurementError,
    UnknownStrategyError,
    UnsupportedProblemError,
    WrongAnswerError,
)
from autotopk.problem import Problem
from autotopk.tuning.evaluate import Evaluator, Screening
from autotopk.tuning.noise import CoreTime
from autotopk.tuning.timing import first_line
from autotopk.tuning_db.records import Status

START_S = 180.0
"""Longest start of a worker: imports, the CUDA context."""

SLICE_S = 1.0
"""Of a wait."""

OPEN_S = 120.0
"""Longest preparation of a problem: its inputs, torch.topk."""

PADDING = (512, 2 << 20)
"""Bytes between which torch's allocator places tensors, small ones and large: so many more before each problem's."""

Value = TypeVar("Value")

_SPOILING: frozenset[Status] = frozenset({"crashed", "timeout", "untimed"})
"""After these the process is replaced: errors of CUDA stay with a process for ever, and so may a broken capture."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[Value]):
    """How a request ended."""

    status: Status
    value: Value | None = None
    """Present where the status is "ok"."""
    error: str | None = None
    """First line of what went wrong."""
    contention: float = 0.0
    """Share of the turn in which the process wanted a core and had none, see `noise`; 0 where a GPU is timed."""


class Worker:
    """The parent's end. The process starts on first use, and again after it was lost or spoiled."""

    def __init__(self, device: torch.device, *, preload: Sequence[str] = (), timeout_s: float = 30.0) -> None:
        """Set up; nothing is started yet.

        Args:
            device: where candidates run.
            preload: modules that the process imports first, for strategies that register themselves.
            timeout_s: longest turn of one candidate.
        """
        self.busy_s = 0.0
        """Seconds of turns that left the process usable: what a crash or a hang costs is nobody's share."""
        self._device = device
        self._preload = tuple(preload)
        self._timeout_s = timeout_s
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._open: Problem | None = None
        self._another: Worker | None = None

    def start(self) -> None:
        """Start the process now. Raises MeasurementError where it does not start."""
        if self._process is None:
            self._start()

    def screen(self, problem: Problem, candidate: Candidate, samples: int) -> Reply[Screening]:
        """See `Evaluator.screen`. Raises MeasurementError where not even torch.topk can be timed; so do the others."""
        return self._turn(problem, "screen", candidate, samples)

    def sample(self, problem: Problem, candidate: Candidate | None) -> Reply[float]:
        """See `Evaluator.sample`."""
        return self._turn(problem, "sample", candidate)

    def adversarial_slowdown(self, problem: Problem, candidate: Candidate) -> Reply[float]:
        """See `Evaluator.adversarial_slowdown`."""
        reply: Reply[float] = self._turn(problem, "adversarial_slowdown", candidate)
        self._open = None
        return reply

    @property
    def another(self) -> "Worker":
        """One more process, where code and data lie elsewhere in memory."""
        if self._another is None:
            self._another = Worker(self._device, preload=self._preload, timeout_s=self._timeout_s)
        return self._another

    def places(self, count: int) -> list["Worker"]:
        """To run at so many places in memory: another process and this by turns, this alone where no other starts."""
        try:
            self.another.start()
        except MeasurementError:
            return [self] * count
        self.release()
        return [self if turn % 2 else self.another for turn in range(count)]

    def release(self) -> None:
        """Let go of the problem, whose inputs are made again when it is asked about."""
        if self._open is not None:
            self._open = None
            self._request(OPEN_S, "release")

    def close(self) -> None:
        """End the process, whatever it is doing, and the other one."""
        if self._another is not None:
            self._another.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _turn(self, problem: Problem, method: str, *arguments: Any) -> Reply[Any]:
        self._ensure(problem)
        begun = time.monotonic()
        reply = self._request(self._timeout_s, method, *arguments)
        if reply.status not in _SPOILING:
            self.busy_s += time.monotonic() - begun
        return reply

    def _ensure(self, problem: Problem) -> None:
        """A running process that has the problem open."""
        if self._process is None:
            self._start()
        if self._open != problem:
            self._open = None  # the process drops the old one first
            reply = self._request(OPEN_S, "open", problem)
            if reply.status != "ok":
                raise MeasurementError(f"torch.topk cannot be timed for {problem}: {reply.status}: {reply.error}")
            self._open = problem

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, str(self._device), torch.get_num_threads(), self._preload)
        process = context.Process(target=_serve, args=arguments, name="autotopk-worker", daemon=True)
        process.start()
        self._process = process
        theirs.close()  # so that the end of the process is the end of the pipe
        reply: Reply[None] = self._receive(START_S)
        if reply.status != "ok":
            raise MeasurementError(f"the worker on {self._device} does not start: {reply.status}: {reply.error}")

    def _request(self, timeout_s: float, method: str, *arguments: Any) -> Reply[Any]:
        assert self._connection is not None
        with contextlib.suppress(BrokenPipeError):  # `_receive` reports its end
            self._connection.send((method, arguments))
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> Reply[Any]:
        assert self._connection is not None
        try:
            if any(self._connection.poll(part) for part in slices(timeout_s)):
                reply: Reply[Any] = self._connection.recv()
            else:
                reply = Reply("timeout", error=f"took longer than {timeout_s:g} s")
        except (EOFError, ConnectionError):
            reply = Reply("crashed", error=f"the process ended: {self._exit()}")
        if reply.status in _SPOILING:
            self.close()
        return reply

    def _exit(self) -> str:
        assert self._process is not None
        self._process.join(5)
        code = self._process.exitcode
        return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def slices(seconds: float) -> Iterator[float]:
    """A wait in parts: where a scheduler stops this process and those that it waits for, that counts for one alone."""
    count = max(1, math.ceil(seconds / SLICE_S))
    return repeat(seconds / count, count)


def live_with_parent() -> None:
    """Make this child leave Ctrl-C to its parent, and end with it even where that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True, name="parent-watch").start()


def _serve(connection: Connection, device_name: str, threads: int, preload: Sequence[str]) -> None:
    """The process: one reply to each request, until the parent is gone."""
    live_with_parent()
    # schedulers send it to every process of a job: the candidate at hand is not to blame
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    device = torch.device(device_name)
    evaluator: Evaluator | None = None
    padding: list[torch.Tensor] = []
    opened = 0

    def start() -> None:
        torch.set_num_threads(threads)  # the parent's: winners of a CPU are for so many
        for module in preload:
            importlib.import_module(module)
        if device.type == "cuda":
            torch.cuda.set_device(device.index or 0)
            torch.cuda.init()

    def release() -> None:
        nonlocal evaluator, padding
        evaluator, padding = None, []
        if device.type == "cuda":
            torch.cuda.empty_cache()

    def open_problem(problem: Problem) -> None:
        nonlocal evaluator, padding, opened
        release()  # the old inputs go before the new ones come
        opened += 1
        if device.type == "cuda":
            padding = [torch.empty(opened % 8 * size, dtype=torch.uint8, device=device) for size in PADDING]
        evaluator = Evaluator(problem, device)

    own: dict[str, Callable[..., None]] = {"open": open_problem, "release": release}
    with contextlib.suppress(EOFError, ConnectionError):  # the parent is gone
        connection.send(_outcome(start))
        while True:
            method, arguments = connection.recv()
            action = own.get(method) or getattr(evaluator, method)
            connection.send(_turn_on_cpu(action, *arguments) if device.type == "cpu" else _outcome(action, *arguments))


def _turn_on_cpu(action: Callable[..., Value], *arguments: Any) -> Reply[Value]:
    before = CoreTime.now()
    reply = _outcome(action, *arguments)
    return replace(reply, contention=CoreTime.now().contention_since(before))


def _outcome(action: Callable[..., Value], *arguments: Any) -> Reply[Value]:
    """Every way in which a candidate can end, short of ending the process."""
    try:
        return Reply("ok", action(*arguments))
    except (UnsupportedProblemError, UnknownStrategyError) as error:
        return Reply("unsupported", error=first_line(error))
    except BuildError as error:
        return Reply("build_failed", error=first_line(error))
    except WrongAnswerError as error:
        return Reply("wrong", error=first_line(error))
    except MeasurementError as error:
        return Reply("untimed", error=first_line(error))
    except (torch.OutOfMemoryError, MemoryError) as error:
        return Reply("out_of_memory", error=first_line(error))
    except Exception as error:  # a candidate may be anyone's code: what it raises is its result
        status: Status = "out_of_memory" if "can't allocate memory" in str(error) else "crashed"  # the CPU's allocator
        return Reply(status, error=f"{type(error).__name__}: {first_line(error)}")
