"""Try shipped kernels on a kind of GPU that is new to them: those that answer rightly are used from then on."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import torch

from autotopk import packs
from autotopk.device import Device, cuda_device
from autotopk.errors import MeasurementError, warn

CASE_S = 60.0
"""Longest case; most take some milliseconds. The first one starts the process."""

BUDGET_S = 600.0
"""Longest check; what was not reached by then is not used."""

COMMAND = (sys.executable, "-m", "autotopk.runtime.check_cases")

OnProgress = Callable[[int, int, str], None]
"""Is told how many cases are done, of how many, and what is next."""


def is_needed(device: Device) -> bool:
    """Whether kernels are shipped for a device that nobody has checked on one of its compute capability."""
    shipped = packs.here()
    return shipped is not None and device.type == "cuda" and bool(shipped.untried(device.arch))


def ensure(index: int, on_progress: OnProgress = lambda done, total, what: None) -> packs.Check | None:
    """Check those kernels for a CUDA device that nobody has checked; None where there are none. Raises as `run`."""
    shipped, device = packs.here(), cuda_device(index)
    if shipped is None or not is_needed(device):
        return None
    return _run(shipped, device, index, shipped.untried(device.arch), on_progress)


def tried(place: torch.device, on_progress: OnProgress = lambda done, total, what: None) -> packs.Check | None:
    """`ensure` for where something is to run, a CPU included; where nothing can be found out, a warning says so."""
    if place.type != "cuda":
        return None
    try:
        return ensure(torch.cuda.current_device() if place.index is None else place.index, on_progress)
    except MeasurementError as error:
        warn(f"shipped kernels are not used: {error}")
        return None


def run(index: int, on_progress: OnProgress = lambda done, total, what: None) -> packs.Check | None:
    """Check all kernels for a CUDA device; None where none are shipped.

    What is found out counts from now on. Raises MeasurementError where nothing can be found out.
    """
    shipped, device = packs.here(), cuda_device(index)
    pack = None if shipped is None else shipped.pack(device.arch)
    if shipped is None or pack is None:
        return None
    return _run(shipped, device, index, {*pack.kernels}, on_progress)


def _run(shipped: packs.Packs, device: Device, index: int, names: set[str], on_progress: OnProgress) -> packs.Check:
    found = _Found()
    until = time.monotonic() + BUDGET_S
    while not found.finished and time.monotonic() < until:
        before = found.done
        todo = sorted(names - found.passed - {*found.failed})
        with closing(_told({"index": index, "names": todo}, until)) as told:
            for one in told:
                found.take(one, on_progress)
        if found.begun is not None and time.monotonic() < until:
            found.take({**found.begun, "status": "failed", "why": f"it ended its process, or took {CASE_S:g} s"})
        if not found.finished and found.done == before:
            raise MeasurementError(f"kernels cannot be checked here: {' '.join(COMMAND)} does not run")
    pack = shipped.pack(device.arch)
    codes = {} if pack is None else {name: code for name, (*_, code) in pack.kernels.items()}
    failed = {codes[name]: reason for name, reason in found.failed.items()}
    check = packs.Check(device.fingerprint, frozenset(codes[name] for name in found.passed) - {*failed}, failed)
    shipped.keep_check(device.arch, check)
    return check


class _Found:
    """What was told so far."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: dict[str, str] = {}
        self.done = 0
        self.begun: dict[str, Any] | None = None
        self.finished = False

    def take(self, told: dict[str, Any], on_progress: OnProgress = lambda done, total, what: None) -> None:
        """Note one step."""
        self.begun, kernels = None, told.get("kernels", ())
        match told["status"]:
            case "begun":
                self.begun = told
                on_progress(self.done, self.done + told["left"], told["what"])
            case "passed":
                self.done += 1
                self.passed.update(kernels)
                for kernel in kernels:
                    self.failed.pop(kernel, None)  # the other one of that program was wrong
            case "failed":
                self.done += 1
                suspects = [kernel for kernel in kernels if kernel not in self.passed]
                self.failed |= dict.fromkeys(suspects or kernels, f"{told['what']}: {told['why']}")
            case "unasked":
                self.failed |= dict.fromkeys(kernels, "no problem was found that it serves on such a GPU")
            case "finished":
                self.finished = True


def _told(request: dict[str, Any], until: float) -> Generator[dict[str, Any], None, None]:
    """What a process that checks tells, until it ends, or is ended because it takes too long."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    lines: SimpleQueue[str] = SimpleQueue()
    assert process.stdin is not None
    try:
        Thread(target=_read, args=(process, lines), daemon=True).start()
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.close()
        while line := lines.get(timeout=max(0.0, min(CASE_S, until - time.monotonic()))):
            yield json.loads(line)
    except Empty:
        pass
    finally:
        process.kill()
        process.wait()


def _read(process: "subprocess.Popen[str]", lines: "SimpleQueue[str]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")
