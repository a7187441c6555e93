"""A worker survives whatever a candidate does, and says what it was."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from math import inf
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.errors import MeasurementError
from autotopk.problem import Problem
from autotopk.tuning.evaluate import Evaluator
from autotopk.tuning.timing import CpuTimer
from autotopk.tuning.worker import Worker, _serve, slices
from tests.tuning.planted import Planted, Way

PROBLEM = Problem.contiguous(4, 64, 5, device_type="cpu")
PRELOAD = ("tests.tuning.planted",)
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.one_process


def way(name: str) -> Candidate:
    return Planted().candidate(Way(name))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(torch.device("cpu"), preload=PRELOAD, timeout_s=5) as worker:
        yield worker


def test_a_right_answer_is_timed_beside_torch_topk(worker: Worker) -> None:
    reply = worker.screen(PROBLEM, TORCH_TOPK, samples=4)
    assert reply.status == "ok"
    assert reply.value is not None
    assert len(reply.value.samples_us) == len(reply.value.baseline_us) == 4
    assert not reply.value.cold
    assert 0 < (worker.sample(PROBLEM, None).value or 0) < (worker.sample(PROBLEM, way("slow")).value or 0)
    assert worker.busy_s > 0.02


def test_what_is_far_slower_than_torch_topk_has_one_sample(worker: Worker) -> None:
    reply = worker.screen(PROBLEM, way("slow"), samples=4)
    assert reply.value is not None
    assert len(reply.value.samples_us) == len(reply.value.baseline_us) == 1
    assert min(reply.value.samples_us) > 2000


def test_what_was_screened_is_not_prepared_again_to_be_raced(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, prepare = list[object](), CpuTimer.prepare

    def noted(timer: CpuTimer, run: Callable[[Tensor], object], enough_us: float = inf) -> Callable[[], float]:
        prepared.append(run)
        return prepare(timer, run, enough_us)

    monkeypatch.setattr(CpuTimer, "prepare", noted)
    evaluator = Evaluator(PROBLEM, torch.device("cpu"))
    evaluator.screen(TORCH_TOPK, samples=2)
    assert evaluator.sample(TORCH_TOPK) > 0
    assert len(prepared) == 2, "torch.topk beside it, and itself"


def test_another_process_is_one_that_ends_with_the_first() -> None:
    with Worker(torch.device("cpu"), preload=PRELOAD, timeout_s=5) as worker:
        assert worker.sample(PROBLEM, way("right")).status == "ok"
        assert worker.another is worker.another
        assert worker.another.sample(PROBLEM, way("right")).status == "ok"
        first, second = worker._process, worker.another._process
        assert first is not None
        assert second is not None
        assert first.pid != second.pid
        worker.release()
        worker.release()
        assert worker.sample(PROBLEM, way("right")).status == "ok", "its inputs are made again"
        assert worker._process is first
    assert not first.is_alive()
    assert not second.is_alive()


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("wrong_on_ties", "wrong", "on 'all_equal', 4x64 float32 k=5 (largest, sorted) on cpu: "),
        ("crash", "crashed", "the process ended: SIGSEGV"),
        ("leave", "crashed", "the process ended: exit code 3"),
        ("fail", "crashed", "RuntimeError: an illegal memory access was encountered"),
        ("hang", "timeout", "took longer than 5 s"),
        ("exhaust", "out_of_memory", "tried to allocate 1 EiB"),
        ("exhaust_host", "out_of_memory", ""),
        ("refuse", "unsupported", "not this one after all"),
        ("unbuildable", "build_failed", "ptxas has died"),
        ("no_such_way", "crashed", "KeyError: 'no_such_way'"),
    ],
)
def test_how_a_candidate_ends_is_told_and_the_next_one_runs(worker: Worker, name: str, status: str, error: str) -> None:
    reply = worker.screen(PROBLEM, way(name), samples=3)
    assert reply.status == status
    assert reply.value is None
    assert reply.error is not None
    assert reply.error.startswith(error)
    assert "\n" not in reply.error
    assert worker.screen(PROBLEM, way("right"), samples=1).status == "ok"


def test_a_winner_is_checked_on_every_adversary(worker: Worker) -> None:
    assert worker.screen(PROBLEM, way("wrong_on_denormals"), samples=1).status == "ok"
    reply = worker.adversarial_slowdown(PROBLEM, way("wrong_on_denormals"))
    assert reply.status == "wrong"
    assert reply.error is not None
    assert "'denormals'" in reply.error
    worst = worker.adversarial_slowdown(PROBLEM, way("right"))
    assert worst.value is not None
    assert worst.value >= 1


def test_what_torch_topk_cannot_do_is_no_candidates_fault(worker: Worker) -> None:
    """The problem before it is opened anew."""
    assert worker.screen(PROBLEM, way("right"), samples=1).status == "ok"
    with pytest.raises(MeasurementError, match=r"torch.topk cannot be timed for 1x100000000000000.*out_of_memory"):
        worker.screen(Problem.contiguous(1, 10**14, 5, device_type="cpu"), way("right"), samples=1)
    assert worker.screen(PROBLEM, way("right"), samples=1).status == "ok"


def test_a_worker_that_cannot_start_says_why() -> None:
    with (
        Worker(torch.device("cpu"), preload=("no_such_module",)) as worker,
        pytest.raises(MeasurementError, match=r"does not start: crashed: ModuleNotFoundError.*no_such_module"),
    ):
        worker.screen(PROBLEM, way("right"), samples=1)


KILLED = """
import os, signal, threading, torch
from autotopk.tuning.worker import Worker

if __name__ == "__main__":
    from tests.tuning.test_worker import PRELOAD, PROBLEM, way  # in a worker it is too early for the planted strategy

    worker = Worker(torch.device("cpu"), preload=PRELOAD)
    worker.screen(PROBLEM, way("right"), 1)
    print(worker._process.pid, flush=True)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    worker.screen(PROBLEM, way("hang"), 1)
"""


def test_a_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    pid, until = int(parent.stdout), time.monotonic() + 10
    while _runs(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(pid)


@pytest.mark.parametrize("left", ["at once", "with a reply unread", "after a request"])
def test_a_worker_whose_parent_is_gone_ends_without_a_word(left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotopk.tuning.worker.live_with_parent", lambda: None)  # which may come too late
    ours, theirs = multiprocessing.Pipe()
    with ThreadPoolExecutor(1) as pool, closing(theirs):
        if left != "at once":
            serving = pool.submit(_serve, theirs, "cpu", torch.get_num_threads(), ())
            assert ours.poll(10)
        if left == "after a request":
            assert ours.recv().status == "ok"
            ours.send(("open", (PROBLEM,)))
        ours.close()
        if left == "at once":
            serving = pool.submit(_serve, theirs, "cpu", torch.get_num_threads(), ())
        serving.result(10)


def test_the_end_of_a_job_is_no_candidates_fault(worker: Worker) -> None:
    assert worker.screen(PROBLEM, way("right"), samples=1).status == "ok"
    assert worker._process is not None
    assert worker._process.pid is not None
    os.kill(worker._process.pid, signal.SIGTERM)
    assert worker.screen(PROBLEM, way("right"), samples=1).status == "ok"


STOPPED = """
import os, subprocess, torch
from autotopk.tuning.worker import Worker

if __name__ == "__main__":
    from tests.tuning.test_worker import PRELOAD, PROBLEM, way  # in a worker it is too early for the planted strategy

    os.setpgid(0, 0)
    with Worker(torch.device("cpu"), preload=PRELOAD, timeout_s=4) as worker:
        worker.screen(PROBLEM, way("right"), 1)
        go_on = f"sleep 0.5; kill -STOP -{os.getpid()}; sleep 6; kill -CONT -{os.getpid()}"
        shell = subprocess.Popen(["sh", "-c", go_on], start_new_session=True)
        print(*(worker.screen(PROBLEM, way("slow"), 100).status for _ in range(4)))
        shell.wait()
"""


def test_stopped_time_is_no_candidates_fault(tmp_path: Path) -> None:
    """A tuner and its worker that a scheduler stops for longer than a turn may take."""
    script = tmp_path / "stopped.py"
    script.write_text(STOPPED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["ok"] * 4, done.stderr


def test_a_wait_is_as_long_as_its_slices() -> None:
    for seconds in (0.0, 0.3, 1.0, 30.0, 120.5):
        parts = [*slices(seconds)]
        assert sum(parts) == pytest.approx(seconds)
        assert len(parts) >= 1
        assert max(parts) <= 1


def _runs(pid: int) -> bool:
    """Whether a process is alive; one that nobody waits for any more is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
