"""Kernels whose compilations are written to a file, for processes that import neither torch nor pytest."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotopk.errors import BuildError
from autotopk.kernel import Kernel, KernelSource


@dataclass(frozen=True)
class LoggedSource(KernelSource):
    """Compiles to a kernel of its name, unless its name says otherwise."""

    log: Path
    name: str
    seconds: float = 0.0
    how: str = ""
    """"fails", "dies", "exits", "starts a compiler"."""

    def cache_key(self) -> str:
        return self.name

    def compile(self, arch: int) -> Kernel:
        told: dict[str, Any] = {"name": self.name, "pid": os.getpid(), "torch": "torch" in sys.modules}
        told |= {"nice": os.nice(0), "main": getattr(sys.modules["__main__"], "__file__", "")}
        if self.how == "starts a compiler":
            told["compiler"] = subprocess.Popen(["sleep", str(self.seconds)]).pid
        with self.log.open("a") as file:
            file.write(json.dumps(told) + "\n")
        time.sleep(self.seconds)
        if self.how == "fails":
            raise BuildError("error: no such instruction\nat line 7")
        if self.how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "exits":
            sys.exit("a plugin that ends the process")
        return Kernel(b"cubin", self.name, (), 32)


def compiled(log: Path) -> list[dict[str, Any]]:
    """Every compilation that was begun."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def begun(log: Path, number: int = 1, seconds: float = 20.0) -> list[dict[str, Any]]:
    """The compilations, once so many were begun."""
    until = time.monotonic() + seconds
    while len(found := compiled(log)) < number:
        assert time.monotonic() < until, f"only {found}"
        time.sleep(0.01)
    return found


def gone(pid: int, seconds: float = 10.0) -> None:
    """Wait until a process has ended, and is no zombie of this one's."""
    until = time.monotonic() + seconds
    while _is_there(pid):
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.01)


def _is_there(pid: int) -> bool:
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" or int(parent) == os.getpid()  # others' are theirs to wait for
