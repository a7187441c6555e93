"""Processes that need the same kernel at the same time, and what those leave that are killed."""

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autotopk import files, kernel_cache
from autotopk.errors import BuildError
from autotopk.files import scratch_folder
from autotopk.kernel import Kernel
from tests.compilers.small_sources import CountingSource

ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path: Path) -> CountingSource:
    return CountingSource(tmp_path / "log")


PROCESSES = """
import os, signal, sys, time
from dataclasses import replace
from pathlib import Path
from tests.compilers.small_sources import KERNEL, CountingSource

source = CountingSource(Path(sys.argv[1]), seconds=0.5)
killed = sys.argv[2] == "killed"
start, go = os.pipe()
children = []
for number in range(8):
    if not (child := os.fork()):
        os.close(go)
        os.read(start, 1)
        os._exit(source.load(90) != replace(KERNEL, symbol="a_90"))
    children.append(child)
first = os.fork()
if not first:
    if killed:
        replace(source, seconds=60).load(90)
    os._exit(0)
while killed and not source.compilations:
    time.sleep(0.01)
os.close(start)
os.close(go)  # all at once
if killed:
    time.sleep(0.3)
    assert source.compilations == 1  # they wait
    os.kill(first, signal.SIGKILL)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print(codes, source.compilations, sorted(path.suffix for path in source.cache_path(90).parent.iterdir()))
"""
"""Eight processes; "killed": while a ninth compiles, which never ends."""


@pytest.mark.parametrize(("how", "compilations"), [("together", 1), ("killed", 2)])
def test_one_process_compiles_for_all(how: str, compilations: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROCESSES, str(tmp_path / "log"), how]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (f"{[0] * 8} {compilations} ['.kernel2']\n", "")


def at_once(count: int, function: Callable[[], object]) -> list[object]:
    barrier = threading.Barrier(count)

    def one(_: int) -> object:
        barrier.wait()
        return function()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_one_thread_compiles_for_all(source: CountingSource) -> None:
    slow = replace(source, seconds=0.2)
    assert len(set(at_once(8, lambda: slow.load(90)))) == 1
    assert source.compilations == 1


def test_kernels_do_not_wait_for_each_other(source: CountingSource) -> None:
    with kernel_cache.turn(replace(source, code="b").cache_path(90)):
        source.load(90)


@dataclass(frozen=True)
class FailingSource(CountingSource):
    together: threading.Barrier = field(default_factory=lambda: threading.Barrier(7), compare=False)

    def compile(self, arch: int) -> Kernel:
        """The first fails alone, the seven that waited for it while all of them compile."""
        super().compile(arch)
        if self.compilations > 1:
            self.together.wait(20)  # less than kernel_cache.WAIT_S
        raise BuildError("syntax error")


def test_a_failed_compilation_is_not_repeated_one_by_one(source: CountingSource) -> None:
    failing = FailingSource(source.log, seconds=1.0)

    def fail() -> None:
        with pytest.raises(BuildError, match="syntax error"):
            failing.load(90)

    at_once(8, fail)
    assert source.compilations == 8


@pytest.fixture
def held(source: CountingSource) -> int:
    """A lock that another process holds and does not give back."""
    lock = source.cache_path(90).with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    handle = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def test_a_wait_has_an_end(source: CountingSource, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "WAIT_S", 0.3)
    begun = time.monotonic()
    source.load(90)
    assert 0.3 <= time.monotonic() - begun < 5
    assert source.compilations == 1
    assert source.is_cached(90)
    os.close(held)


def test_the_lock_of_a_killed_process_is_taken_over(source: CountingSource, held: int) -> None:
    os.close(held)  # as the kernel does
    source.load(90)
    assert [path.suffix for path in source.cache_path(90).parent.iterdir()] == [".kernel2"]


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_files_cannot_be_locked_everybody_compiles(
    source: CountingSource, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(error, "flock")

    monkeypatch.setattr(fcntl, "flock", refuse)
    source.load(90)
    with scratch_folder("nvcc"):
        pass
    assert source.compilations == 1
    assert source.is_cached(90)


# What killed processes leave


def aged(path: Path) -> Path:
    old = time.time() - files.ABANDONED_S - 1
    os.utime(path, (old, old), follow_symlinks=False)
    return path


def left_scratch() -> Path:
    """A scratch folder as a killed process leaves it."""
    with scratch_folder("tilelang") as folder:
        pass
    folder.mkdir(0o700)
    (folder / "kernel.cu").write_text("")
    return folder


def test_a_compilation_sweeps_and_the_cache_does_not(source: CountingSource, temporary: Path) -> None:
    source.load(90)
    folder = source.cache_path(90).parent
    name, users = "0123456789abcdef" * 2, [folder / "notes.lock", folder / "notes.tmp"]
    left = [folder / f"{name}{end}" for end in (".lock", "-0.1.15.lock", ".kernelx1y2z3w_.tmp", ".kernel2x1y2z3w4.tmp")]
    for path in left + users:
        path.touch()
        aged(path)
    left.append(aged(left_scratch()))
    kernel_cache.sweep_once.cache_clear()
    source.load(90)
    assert all(path.exists() for path in left)
    replace(source, code="b").load(90)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in users)
    assert len(list(folder.iterdir())) == 2 + len(users)
    assert list(temporary.iterdir()) == []


def test_what_is_young_or_in_use_or_not_ours_stays(temporary: Path) -> None:
    mine = aged(left_scratch())
    young = left_scratch()
    others = [temporary / name for name in ("autotopk-nvcc", "autotopk-backup-12345678", "tmp12345678")]
    for path in others:
        path.mkdir()
    target = temporary / "target"
    target.mkdir()
    link = temporary / "autotopk-nvcc-abcdefgh"
    link.symlink_to(target)
    for path in (*others, target, link):
        aged(path)
    with scratch_folder("triton") as used:
        aged(used)
        files.sweep_scratch()
        assert {path.name for path in temporary.iterdir()} == {
            path.name for path in (young, *others, target, link, used)
        }
    assert not mine.exists()


def test_a_sweep_has_an_end(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aged(left_scratch())
    monkeypatch.setattr(files, "_SWEEP_S", -1.0)
    files.sweep_scratch()
    assert len(list(temporary.iterdir())) == 1
    files.sweep(temporary / "nowhere", re.compile(".*"))


KILLED = """
import os, signal, sys
from autotopk.files import scratch_folder
with scratch_folder("nvcc") as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_killed_process_is_swept(temporary: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    run = subprocess.run([sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == -signal.SIGKILL
    folder = Path(run.stdout.strip())
    assert list(temporary.iterdir()) == [folder]
    files.sweep_scratch()
    assert folder.exists()
    aged(folder)
    files.sweep_scratch()
    assert not folder.exists()


def test_what_is_written_is_swept_by_its_name(source: CountingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of temporary files and locks as they are made."""

    def killed(temporary: str, path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            source.load(90)
    path = source.cache_path(90).parent
    assert sorted(aged(left).suffix for left in path.iterdir()) == [".lock", ".tmp"]
    kernel_cache.sweep_once.cache_clear()
    kernel_cache.sweep_once(path)
    assert list(path.iterdir()) == []
