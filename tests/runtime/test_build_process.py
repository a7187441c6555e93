"""The process that compiles ends with its parent, however that ends, and nothing of it is seen."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotopk import registry
from autotopk.device import H100
from autotopk.kernel import KernelSource
from autotopk.problem import Problem
from autotopk.program import Extent, KernelProgram
from autotopk.runtime import build_process
from autotopk.runtime.build_process import BuildProcess
from autotopk.runtime.builds import Builds
from tests.cli.conftest import ROOT
from tests.runtime.logged import LoggedSource, begun, compiled, gone
from tests.runtime.winners import environment


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def process() -> Iterator[BuildProcess]:
    with closing(BuildProcess()) as process:
        yield process


PARENT = """
import os, signal, sys, time
from pathlib import Path
from autotopk.program import Extent, KernelProgram
from autotopk.runtime.builds import Builds
from tests.runtime.logged import LoggedSource, begun, compiled

print("begins", flush=True)
log, seconds, how = Path({log!r}), {seconds}, {how!r}
builds = Builds()

def want(name):
    done = []
    source = LoggedSource(log, name, seconds, how)
    builds.want(KernelProgram.of(source, Extent()), 90, lambda: done.append(1))
    return done

done = want("one")
"""


class Parent:
    """A script without a main guard that has a kernel compiled, and goes on as it is told."""

    def __init__(self, folder: Path, then: str, seconds: float = 0.0, how: str = "") -> None:
        self.log = folder / "log"
        script = folder / "script.py"
        script.write_text(PARENT.format(log=str(self.log), seconds=seconds, how=how) + then)
        variables = environment(folder / "cache", PYTHONPATH=str(ROOT))
        self.process = subprocess.Popen(
            [sys.executable, script],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ended(self) -> tuple[int, str]:
        """Exit code, and what it printed."""
        printed, errors = self.process.communicate(timeout=60)
        assert errors == ""
        return self.process.returncode, printed


ENDS = {
    "returns": "",
    "raises": "raise SystemExit(3)",
    "leaves at once": "os._exit(4)",
    "is terminated": "os.kill(os.getpid(), signal.SIGTERM)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "is killed after a fork": "os.fork() or (time.sleep(3), os._exit(0)); os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("how", ENDS)
def test_nothing_is_left(how: str, tmp_path: Path) -> None:
    """Neither the process nor the compiler that it has started; and nobody waits for them."""
    started = time.monotonic()
    parent = Parent(tmp_path, "begun(log)\n" + ENDS[how], seconds=100, how="starts a compiler")
    code, printed = parent.ended()
    [one] = compiled(parent.log)
    gone(one["pid"])
    gone(one["compiler"])
    assert code == {"returns": 0, "raises": 3, "leaves at once": 4, "is terminated": -15}.get(how, -9)
    assert printed == "begins\n"  # the script was imported once
    assert time.monotonic() - started < 30


def test_ctrl_c_is_the_parents(tmp_path: Path) -> None:
    """At a terminal it reaches every process of the group: the compilation goes on, and nothing is printed."""
    then = """
try:
    os.write(1, b"waits\\n")
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
while not done:
    time.sleep(0.01)
print(len(compiled(log)))
"""
    parent = Parent(tmp_path, then, seconds=1)
    [one] = begun(parent.log)
    assert parent.process.stdout is not None
    while parent.process.stdout.readline() != "waits\n":
        pass
    os.killpg(parent.process.pid, signal.SIGINT)
    os.kill(one["pid"], signal.SIGINT)
    assert parent.ended() == (0, "interrupted\n1\n")


def test_a_forked_child_starts_its_own(tmp_path: Path) -> None:
    """Who waited is told in the child too, and asks anew; the parent's compilation goes on."""
    then = """
begun(log)
if child := os.fork():
    while not done:
        time.sleep(0.01)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    assert done == [1] and builds._thread is None and not builds._waiting
    second = want("two")
    while not second:
        time.sleep(0.01)
    sys.exit(7)
"""
    parent = Parent(tmp_path, then, seconds=0.5)
    assert parent.ended()[1].splitlines() == ["begins", "7"]
    one, two = compiled(parent.log)
    assert (one["name"], two["name"]) == ("one", "two")
    assert one["pid"] != two["pid"]
    gone(one["pid"])
    gone(two["pid"])


def test_environment_and_path_of_now(
    process: BuildProcess, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels go to the cache folder of the call, and come from modules that were found since."""
    assert process.build(LoggedSource(log, "one"), 90).error == ""
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(tmp_path / "other"))
    (tmp_path / "kernels_of_ours.py").write_text(
        "from dataclasses import dataclass\n"
        "from tests.runtime.logged import LoggedSource\n\n"
        "@dataclass(frozen=True)\nclass Source(LoggedSource):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import kernels_of_ours  # type: ignore[import-not-found]

    source: KernelSource = kernels_of_ours.Source(log, "two")
    assert process.build(source, 90).error == ""
    assert source.cache_path(90).is_relative_to(tmp_path / "other")
    assert source.is_cached(90)
    assert len({one["pid"] for one in compiled(log)}) == 1


@dataclass(frozen=True)
class Untold(LoggedSource):
    """No pickle stands for it."""

    def __reduce__(self) -> str:
        return "no_such_name"


def test_what_cannot_be_told(process: BuildProcess, log: Path) -> None:
    assert process.build(Untold(log, "one"), 90).error.startswith(
        "no other process can be told what to compile: PicklingError"
    )
    assert process.build(LoggedSource(log, "one"), 90).error == ""


def test_no_interpreter(process: BuildProcess, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for executable in ("", "/no/such/python", "/bin/true"):
        monkeypatch.setattr(sys, "executable", executable)
        assert process.build(LoggedSource(log, "one"), 90).error.startswith("no process that compiles can be started")


def test_a_compiler_that_hangs(process: BuildProcess, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_process, "LONGEST_S", 1.0)
    built = process.build(LoggedSource(log, "one", 100), 90)
    assert built.error == "compiling took longer than 1 s"
    [one] = compiled(log)
    gone(one["pid"])
    assert process.build(LoggedSource(log, "two"), 90).error == ""


def test_killed_while_idle(process: BuildProcess, log: Path) -> None:
    """As by a kernel that is short of memory: the next one is not to blame."""
    assert process.build(LoggedSource(log, "one"), 90).error == ""
    os.kill(compiled(log)[0]["pid"], signal.SIGKILL)
    time.sleep(0.1)
    assert process.build(LoggedSource(log, "two"), 90).error == ""


def test_started_by_nobody_else(log: Path) -> None:
    """Builds that want nothing have neither a thread nor a process."""
    builds = Builds()
    assert pickle.dumps(sys.path)
    source = LoggedSource(log, "one")
    source.load(90)
    told: list[int] = []
    builds.want(KernelProgram.of(source, Extent()), 90, lambda: told.append(1))
    assert told == [1]
    assert builds._thread is None
    builds.stop()


@pytest.mark.compile
def test_a_kernel_of_triton(process: BuildProcess) -> None:
    strategy = registry.get("masked_argmax")
    problem = Problem.contiguous(4, 8, 2)
    [config, *_] = strategy.shortlist(problem, H100)
    [source] = strategy.program(config, problem, H100).sources
    built = process.build(source, 90)
    assert built.error == ""
    assert built.kernel == source.cached(90)
    assert built.seconds > 0
