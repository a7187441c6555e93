"""What calls need is compiled and loaded ahead of them."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

import autotopk
from autotopk.candidate import Candidate
from autotopk.device import cpu_device
from autotopk.errors import MeasurementError, SelectionError
from autotopk.key import TuningKey
from autotopk.problem import MemoryLayout, Problem
from autotopk.program import HostProgram
from autotopk.runtime import self_check
from autotopk.runtime.state import default
from autotopk.runtime.warmup import Warmed, warmup
from autotopk.tuning_db import artifact
from autotopk.workloads import Workload, tagged
from tests.runtime.laddered import Driver, Laddered, Rung
from tests.runtime.logged import begun, compiled, gone
from tests.runtime.same import check, told, unwarned, within
from tests.runtime.winners import winner

X = torch.randn(4, 2048)
K = 9
SHAPE = (4, 2048, K)


@pytest.fixture
def driver(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Beside which calls compile nothing; what is asked for does."""
    monkeypatch.setenv("AUTOTOPK_BUILD", "never")
    return driver


def told_of(report: autotopk.WarmupReport) -> list[tuple[str, str, str]]:
    return [(row.choice.step, str(row.choice.candidate.knobs.get("name", "torch")), row.origin) for row in report.rows]


@unwarned
def test_what_is_warm_is_found(cache_dir: Path, strategy: Laddered, driver: Driver) -> None:
    """Of two problems, each with its kernel; compiled elsewhere, loaded here."""
    candidate = Candidate("laddered", '{"name":"fast"}')
    artifact.publish([winner(4, 2048, K, candidate=candidate)], cache_dir / "winners.sqlite")
    autotopk.reload()
    check(X, K)  # leaves a plan for torch.topk
    far = (1, 1 << 20, 3)
    report = autotopk.warmup([SHAPE, far], device="cpu")
    assert told_of(report) == [("exact", "fast", "built"), ("heuristic", "usual", "built")]
    assert driver.loaded == {"fast", "usual"}
    assert [one["pid"] == os.getpid() for one in compiled(strategy.log)] == [False, False]
    assert all(row.ms > 0 for row in report.rows)
    check(X, K)
    assert driver.launched == ["fast"]
    assert told_of(warmup([SHAPE, far], device="cpu")) == [("exact", "fast", "cache"), ("heuristic", "usual", "cache")]
    for one in compiled(strategy.log):
        gone(one["pid"])


@unwarned
def test_one_kernel_of_many_problems_is_compiled_once(strategy: Laddered, driver: Driver) -> None:
    rows: list[tuple[int, int]] = []
    seen: list[Warmed] = []

    def progress(row: Warmed, done: int, total: int) -> None:
        seen.append(row)
        rows.append((done, total))

    report = warmup([(1, 64, 2), (2, 64, 2), (1, 64, 2)], device="cpu", progress=progress)
    assert len(compiled(strategy.log)) == 1
    assert rows == [(1, 2), (2, 2)]
    assert tuple(seen) == report.rows


@unwarned
def test_nothing_is_compiled_or_loaded_unless_asked(strategy: Laddered, driver: Driver) -> None:
    strategy.load("high")
    assert told_of(warmup(SHAPE, device="cpu", build=False)) == [("ladder", "high", "cache")]
    assert compiled(strategy.log) == []
    assert driver.loaded == {"high"}
    assert told_of(warmup(SHAPE, device="cpu", load=False)) == [("heuristic", "usual", "built")]
    assert driver.loaded == {"high"}


def test_what_fails_gives_way(strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its reason; later calls do not try it again."""
    strategy.how["usual"] = "fails"
    strategy.load("low")
    report = warmup(SHAPE, device="cpu")
    assert told_of(report) == [("ladder", "low", "cache")]
    [reason] = report.rows[0].failed
    assert reason.startswith('laddered {"name":"usual"}: error: no such instruction')
    assert reason in str(report)
    monkeypatch.setenv("AUTOTOPK_BUILD", "background")
    told(lambda: check(X, K))
    assert driver.launched == ["low"]
    assert default.builds._thread is None


def test_what_cannot_be_loaded_gives_way(strategy: Laddered, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without the GPU."""
    strategy.load("usual")
    strategy.steps = []
    messages = told(lambda: told_of(warmup(SHAPE, device="cpu")))
    assert messages[0].startswith('laddered {"name":"usual"} failed and is left out: ')
    assert told_of(warmup(SHAPE, device="cpu")) == [("torch", "torch", "torch")]


@unwarned
def test_ctrl_c_blames_no_kernel(strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends what is being compiled, at once."""
    strategy.load("high")
    monkeypatch.setattr(strategy, "seconds", 60.0)
    by_problem = {1: "high", 2: "usual"}
    monkeypatch.setattr(strategy, "heuristic", lambda problem, device: Rung(by_problem[problem.rows]))

    def interrupted(*_: object) -> None:
        begun(strategy.log)
        raise KeyboardInterrupt

    with within(20), pytest.raises(KeyboardInterrupt):
        warmup([(1, 64, 2), (2, 64, 2)], device="cpu", progress=interrupted)
    [one] = compiled(strategy.log)
    gone(one["pid"])
    assert default.builds._failed == {}


@unwarned
def test_libraries_are_prepared(strategy: Laddered, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[int] = []
    program = HostProgram(lambda x: tuple(torch.topk(x, K)), prepare=lambda: prepared.append(1))
    monkeypatch.setattr(strategy, "program", lambda *_: program)
    assert told_of(warmup(SHAPE, device="cpu")) == [("heuristic", "usual", "library")]
    assert prepared == [1]


@unwarned
def test_a_cpu_without_strategies_of_its_own() -> None:
    report = warmup("ci", device="cpu")
    assert [row.problem for row in report.rows] == [workload.problem("cpu") for workload in tagged("ci")]
    assert {row.origin for row in report.rows} == {"torch"}
    assert str(report).endswith("torch's operators serve them, nothing is to be compiled")


PROBLEM = Problem.contiguous(4, 2048, K, "bfloat16", "cpu", largest=False, answer="indices")
MISS = {"device": cpu_device().fingerprint, **asdict(TuningKey("int8", 4, 9, 3, False))}


@unwarned
def test_everything_that_names_problems(tmp_path: Path) -> None:
    path = tmp_path / "misses"
    path.write_text(json.dumps(MISS) + "\n")
    what: list[Any] = [SHAPE, (4, 2048, K, "int8"), PROBLEM, Workload(4, 9, 2, sorted=False), path, str(path), [SHAPE]]
    assert [str(row.problem).removesuffix(" on cpu") for row in warmup(what, device="cpu").rows] == [
        "4x2048 float32 k=9 (largest, sorted)",
        "4x2048 int8 k=9 (largest, sorted)",
        "4x2048 bfloat16 k=9 (smallest, sorted)",
        "4x9 float32 k=2 (largest, any order)",
        "4x9 int8 k=3 (largest, any order)",
    ]
    for one in what:
        assert len(warmup(one, device="cpu").rows) == 1
    assert warmup([], device="cpu").rows == ()


ALONGSIDE = Problem(4, 9, 2, "float32", device_type="cpu", layout=MemoryLayout(36, col_stride=4, inner=4))


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("seed", r"what='seed' is no file, and no tag \(ci, seeds, "),
        (Path("/no/such/misses"), "what=.*/no/such/misses.* is no file"),
        (5, r"what=5 is not a shape \(rows, cols, k\) or"),
        (None, "what=None is not a shape"),
        ((4, 9), r"what=\(4, 9\) is not a shape"),
        ([(4, 9)], r"what=\(4, 9\) is not a shape"),
        ((4, 9, 2, "float33"), r"what=\(4, 9, 2, 'float33'\): dtype 'float33' is not one of float64, "),
        ((4, 9, 10), "1 <= k <= cols, got 4x9, k=10"),
        ((1 << 40, 1 << 40, 2), "the most that a tensor can have"),
        (Problem.contiguous(4, 9, 2), "is not about rows on cpu whose columns are adjacent"),
        (ALONGSIDE, "is not about rows on cpu whose columns are adjacent"),
    ],
    ids=str,
)
def test_what_names_none(what: Any, named: str) -> None:
    with pytest.raises(SelectionError, match=named):
        warmup(what, device="cpu")


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99", 1.5])
def test_devices_that_are_not_here(device: Any) -> None:
    with pytest.raises(SelectionError, match=r"^device=.* is not (cpu, cuda or cuda:INDEX|here: )"):
        warmup(SHAPE, device=device)


def test_shipped_kernels_are_checked_first_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ensure(index: int, on_progress: object) -> None:
        asked.append(index)
        raise MeasurementError("the process that checks died")

    monkeypatch.setattr(self_check, "ensure", ensure)
    with pytest.warns(autotopk.AutotopkWarning, match="shipped kernels are not used: the process that checks died"):
        self_check.tried(torch.device("cuda", 3))
    self_check.tried(torch.device("cpu"))
    assert asked == [3]
    places: list[torch.device] = []
    monkeypatch.setattr(self_check, "tried", places.append)
    warmup([(4, 64, 2)], device="cpu")
    assert places == [torch.device("cpu")]
