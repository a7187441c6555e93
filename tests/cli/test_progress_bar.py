"""What is shown while a tuner works, with and without a terminal."""

import io
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from autotopk.candidate import Candidate
from autotopk.cli.progress_bar import ProgressBar, _told
from autotopk.cli.tables import times_faster
from autotopk.device import H100
from autotopk.tuning.events import (
    CandidateMeasured,
    Event,
    TuneStarted,
    WorkloadFinished,
    WorkloadResult,
    WorkloadStarted,
)
from autotopk.workloads import Workload
from tests.cli.conftest import ROOT
from tests.tuning_db.examples import measurement, winner

GPU = replace(H100, name="a [/red] GPU")
WORKLOAD = Workload(64, 1024, 8)
TUNED = WorkloadResult(WORKLOAD, "tuned", 4, {"ok": 3, "wrong": 1}, winner(), seconds=2.0)
FAILED = WorkloadResult(WORKLOAD, "failed", error="no [luck]\x1b[2J")
EVENTS: list[Event] = [
    TuneStarted(GPU, "aten", 2, 90.0, {"block_radix": ["no nvcc [yet]", "no g++"]}),
    WorkloadStarted(WORKLOAD, 0, 4, 4),
    CandidateMeasured(WORKLOAD, measurement(), 1),
    WorkloadFinished(TUNED, 0, 61.0),
    WorkloadStarted(WORKLOAD, 1, 4, 0),
    WorkloadFinished(FAILED, 1, 0.0),
]


def shown(*, terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200, color_system=None)
    with ProgressBar(console) as bar:
        for event in EVENTS:
            bar.tuner_event(event)
            bar._progress.refresh()  # not only when the next frame is due
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_lines_without_a_terminal() -> None:
    assert shown(terminal=False).splitlines() == [
        f"tuning 2 workloads on {GPU.fingerprint}, within 90 s",
        "block_radix steps aside, but for kernels compiled before: no nvcc [yet]; no g++",
        (
            "[1/2] 64x1024 k=8 float32 sorted: tuned, masked_argmax block=1024 warps=4 2.5 us, 4.00x faster, "
            "4 tried in 2.0 s; about 61 s left"
        ),
        "[2/2] 64x1024 k=8 float32 sorted: failed, no [luck]\\x1b[2J",
    ]


def test_one_workload_is_one() -> None:
    console = Console(file=io.StringIO(), width=200)
    with ProgressBar(console) as bar:
        bar.tuner_event(TuneStarted(GPU, "aten", 1, None, {}))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == f"tuning 1 workload on {GPU.fingerprint}\n"


def test_torchs_own_is_kept() -> None:
    own = replace(winner(), candidate=Candidate("torch_fallback", '{"chunk":0,"method":"topk"}'), ratio=1.16)
    told = _told(WorkloadResult(WORKLOAD, "tuned", 4, {"ok": 3}, own, seconds=2.0))
    assert told.startswith("64x1024 k=8 float32 sorted: tuned, kept torch.topk: nothing was faster, 2.5 us, 3 tried")
    assert "slower" not in told


def test_what_was_not_compiled_is_told() -> None:
    told = _told(WorkloadResult(WORKLOAD, "tuned", 9, {"ok": 3}, winner(), seconds=2.0, uncompiled=5))
    assert told.endswith("3 tried in 2.0 s, 5 not compiled in time")


def test_bar_on_a_terminal() -> None:
    output = shown(terminal=True)
    assert "about 61 s left" in output
    assert " 12%" in output  # a quarter of the first of two
    assert "100%" in output


@pytest.mark.parametrize(
    ("ratio", "words"), [(0.25, "4.00x faster"), (1.5, "1.50x slower"), (1.02, "same"), (0.97, "1.03x faster")]
)
def test_ratios_in_words(ratio: float, words: str) -> None:
    assert times_faster(ratio) == words


WITHOUT_TORCH = """
import builtins, os, pty, sys
pid, terminal = pty.fork()
if not pid:
    plain = builtins.__import__
    builtins.__import__ = lambda name, *more, **named: os._exit(3) if name == "torch" else plain(name, *more, **named)
    sys.argv = ["autotopk", sys.argv[1], "--tag", "ci"]
    from autotopk.cli.app import main
    main()
print(os.read(terminal, 8), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("command", ["tune", "bench", "warmup"])
def test_something_is_said_before_torch_is_imported(command: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert told.stdout == "b'starting' 3\n", told.stderr
