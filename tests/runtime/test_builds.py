"""No call waits for a compiler: what is compiled answers until a process beside has compiled what is faster."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch

import autotopk
from autotopk import settings
from autotopk.candidate import Candidate
from autotopk.device import cpu_device
from autotopk.problem import Problem
from autotopk.runtime import builds, launch
from autotopk.runtime.state import default
from autotopk.tuning_db import artifact
from tests.runtime.laddered import ARCH, Driver, Laddered, Rung, settled
from tests.runtime.logged import compiled, gone
from tests.runtime.same import check, told, unwarned
from tests.runtime.winners import CHUNKED, winner

X = torch.randn(4, 2048)
K = 9


@pytest.fixture(autouse=True)
def background(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As users have it."""
    monkeypatch.delenv("AUTOTOPK_BUILD")
    yield
    default.builds.stop()


def a_winner(cache_dir: Path, name: str = "fast") -> None:
    """Measured for X, and in force."""
    candidate = Candidate("laddered", f'{{"name":"{name}"}}')
    artifact.publish([winner(4, 2048, K, candidate=candidate)], cache_dir / "winners.sqlite")
    autotopk.reload()


def ran() -> str:
    """The step and the kernel that a call would run."""
    choice = autotopk.explain(X, K).choice
    return f"{choice.step} {choice.candidate.knobs.get('name', 'torch')}"


def told_of(name: str) -> str:
    """What `explain` says of a kernel that does not run."""
    return next(line for line in str(autotopk.explain(X, K)).splitlines() if f'"name":"{name}"' in line or name in line)


@unwarned
def test_the_ladder_answers_until_the_winner_is_there(cache_dir: Path, strategy: Laddered, driver: Driver) -> None:
    a_winner(cache_dir)
    strategy.load("high")
    assert ran() == "ladder high"
    assert "not compiled yet, which the first call has done in the background" in told_of("fast")
    assert compiled(strategy.log) == []  # explaining starts nothing
    strategy.seconds = 0.5
    check(X, K)
    assert "being compiled in the background" in told_of("fast")
    check(X, K)
    settled()
    check(X, K)
    check(X, K)
    assert driver.launched == ["high", "high", "fast", "fast"]
    assert ran() == "exact fast"
    [one] = compiled(strategy.log)
    assert one["name"] == "fast"
    assert one["pid"] != os.getpid()
    assert one["nice"] > os.nice(0)
    assert not one["torch"]


@unwarned
def test_without_a_ladder_the_order_goes_on(cache_dir: Path, strategy: Laddered, driver: Driver) -> None:
    """Next a neighbour that is there, then torch.topk; one kernel is compiled, the winner's."""
    strategy.steps = []
    a_winner(cache_dir)
    check(X, K)
    settled()
    assert driver.launched == []
    check(X, K)
    assert driver.launched == ["fast"]
    assert [one["name"] for one in compiled(strategy.log)] == ["fast"]
    neighbour = winner(4, 2048, 2 * K, CHUNKED)
    candidate = Candidate("laddered", '{"name":"usual"}')
    artifact.publish([winner(4, 2048, K, candidate=candidate), neighbour], cache_dir / "winners.sqlite")
    autotopk.reload()
    assert ran() == "neighbour torch"


@unwarned
def test_a_heuristic_is_compiled_beside_too(strategy: Laddered, driver: Driver) -> None:
    strategy.load("low")
    check(X, K)
    settled()
    check(X, K)
    assert driver.launched == ["low", "usual"]


@unwarned
def test_indices_alone_wait_for_their_own_kernel(
    strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `topk` runs may be there already."""
    both = autotopk.strategy.Features(answers=frozenset({"pairs", "indices"}))
    monkeypatch.setattr(Laddered, "features", both)
    source = strategy.source
    monkeypatch.setattr(
        strategy,
        "program",
        lambda config, problem, device: autotopk.program.KernelProgram.of(
            source(config.name if problem.answer == "pairs" else f"{config.name}_alone"), autotopk.program.Extent()
        ),
    )
    strategy.load("usual")
    expected = torch.topk(X, K).indices.to(torch.int32)
    assert torch.equal(autotopk.topk_indices(X, K), expected)
    settled()
    assert [one["name"] for one in compiled(strategy.log)] == ["usual_alone"]


@unwarned
@pytest.mark.parametrize("mode", ["never", "NEVER"])
def test_never(mode: str, cache_dir: Path, strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_BUILD", mode)
    a_winner(cache_dir)
    strategy.load("low")
    check(X, K)
    check(X, K)
    assert driver.launched == ["low", "low"]
    assert "AUTOTOPK_BUILD=never leaves so" in told_of("fast")
    assert default.builds._thread is None
    assert compiled(strategy.log) == []


@unwarned
def test_wait(cache_dir: Path, strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_BUILD", "wait")
    a_winner(cache_dir)
    strategy.load("low")
    assert ran() == "exact fast"
    check(X, K)
    assert driver.launched == ["fast"]
    assert [one["pid"] for one in compiled(strategy.log)] == [os.getpid()]


@unwarned
def test_what_is_bound_without_a_call_is_compiled(
    strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the tuner, in its own processes."""
    monkeypatch.setenv("AUTOTOPK_BUILD", "never")
    problem, device = Problem.contiguous(4, 2048, K, device_type="cpu"), cpu_device()
    launch.bind(strategy.program(Rung("fast"), problem, device), problem, device)(X)
    assert driver.launched == ["fast"]


def test_a_word_that_is_no_mode(strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_BUILD", "later")
    monkeypatch.setattr(settings, "_warned", set())
    messages = told(lambda: (check(X, K), check(X[:2], K)))  # type: ignore[func-returns-value]
    assert messages == ["AUTOTOPK_BUILD=later is none of background, wait, never: background is taken"]
    settled()
    assert compiled(strategy.log)[0]["pid"] != os.getpid()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("fails", r"error: no such instruction\nat line 7"),
        ("dies", "the process that compiles has died: SIGKILL"),
        ("exits", "SystemExit: a plugin that ends the process"),
    ],
)
def test_a_failure_is_remembered(how: str, reason: str, cache_dir: Path, strategy: Laddered, driver: Driver) -> None:
    """With its reason, until `reload`; it is told once, and the next in line is compiled."""
    a_winner(cache_dir)
    strategy.how["fast"] = how
    strategy.load("low")
    assert told(lambda: check(X, K)) == []
    settled()
    [message] = told(lambda: (check(X, K), check(X[:, :2047], K)))  # type: ignore[func-returns-value]
    assert message == f'laddered {{"name":"fast"}} cannot be compiled and is left out: {reason}'
    assert f"cannot be compiled: {reason}" in told_of("fast")
    settled()
    assert [one["name"] for one in compiled(strategy.log)].count("fast") == 1
    assert driver.launched[:2] == ["low", "low"]
    strategy.how.clear()
    autotopk.reload()
    assert told(lambda: check(X, K)) == []
    settled()
    check(X, K)
    assert driver.launched[-1] == "fast"


@unwarned
def test_threads_have_a_kernel_compiled_once(cache_dir: Path, strategy: Laddered, driver: Driver) -> None:
    a_winner(cache_dir)
    strategy.seconds = 0.3
    barrier = Barrier(8)

    def call(rows: int) -> None:
        barrier.wait()
        check(X[: rows % 2 + 3], K)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(8)))
    settled()
    assert len(compiled(strategy.log)) == 1
    check(X, K)
    assert driver.launched == ["fast"]


@unwarned
def test_a_damaged_file_is_compiled_anew(strategy: Laddered, driver: Driver) -> None:
    strategy.load("usual")
    path = strategy.source("usual").cache_path(ARCH)
    path.write_bytes(path.read_bytes()[:-1])
    check(X, K)
    settled()
    check(X, K)
    assert driver.launched == ["usual"]
    assert [one["pid"] == os.getpid() for one in compiled(strategy.log)] == [False]


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
def test_what_cannot_be_written_stays_in_memory(cache_dir: Path, strategy: Laddered, driver: Driver) -> None:
    (cache_dir / "kernels").mkdir(parents=True)
    (cache_dir / "kernels").chmod(0o777)
    check(X, K)
    settled()
    check(X, K)
    assert driver.launched == ["usual"]
    assert list((cache_dir / "kernels").iterdir()) == []


@unwarned
def test_nothing_begins_while_a_graph_is_captured(
    cache_dir: Path, strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is loaded answers, else torch.topk; a plan that is there is used."""
    a_winner(cache_dir)
    for name in ("fast", "low", "high"):
        strategy.load(name)
    monkeypatch.setattr(launch, "captured_on", lambda x: 0)
    check(X, K)
    assert driver.launched == []
    driver.loaded.add("high")
    check(X, K)
    check(X, K)
    assert driver.launched == ["high", "high"]
    assert len(default.plans("topk")) == 0
    monkeypatch.setattr(launch, "captured_on", lambda x: None)
    check(X, K)
    monkeypatch.setattr(launch, "captured_on", lambda x: 0)
    check(X, K)
    assert driver.launched[2:] == ["fast", "fast"]
    strategy.seconds = 1.0
    check(X[:, :2000], K)  # of this layout nothing is known
    assert default.builds._thread is None
    assert compiled(strategy.log) == []


@unwarned
@pytest.mark.parametrize("mode", ["wait", "never"])
def test_a_capture_compiles_nothing_in_any_mode(
    mode: str, strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTOPK_BUILD", mode)
    monkeypatch.setattr(launch, "captured_on", lambda x: 0)
    check(X, K)
    assert driver.launched == []
    assert compiled(strategy.log) == []


@unwarned
def test_the_process_ends_when_nothing_is_wanted(
    strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "LINGER_S", 0.1)
    for name in ("usual", "other"):
        monkeypatch.setattr(strategy, "heuristic", lambda *_, name=name: type(strategy).config_type(name))
        autotopk.reload()
        check(X, K)
        settled()
        gone(compiled(strategy.log)[-1]["pid"])
    first, second = compiled(strategy.log)
    assert first["pid"] != second["pid"]


@unwarned
def test_reload_forgets_what_was_not_begun(strategy: Laddered, driver: Driver) -> None:
    strategy.seconds = 0.3
    check(X, K)
    autotopk.reload()
    assert not default.builds._waiting
    check(X, K)
    settled()
    check(X, K)
    assert driver.launched == ["usual"]
    assert len(compiled(strategy.log)) == 1


@unwarned
def test_kernels_that_cannot_be_built_here_are_not_tried(
    cache_dir: Path, strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ladder answers, and nobody is warned: it is as fast."""
    a_winner(cache_dir)
    monkeypatch.setattr(strategy, "reasons_unbuildable", lambda: ["the compiler is missing"])
    strategy.load("high")
    for mode in ("background", "wait", "never"):
        monkeypatch.setenv("AUTOTOPK_BUILD", mode)
        autotopk.reload()
        check(X, K)
        assert ran() == "ladder high"
        assert "cannot be built here: the compiler is missing" in told_of("fast")
    assert driver.launched == ["high"] * 3
    assert compiled(strategy.log) == []


def test_a_ladder_that_raises(
    cache_dir: Path, strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategy, "ladder", lambda *_: 1 / 0)
    [message] = told(lambda: check(X, K))
    assert message == "laddered is left out where it raises ZeroDivisionError: division by zero"
    settled()
    check(X, K)
    assert driver.launched == ["usual"]
