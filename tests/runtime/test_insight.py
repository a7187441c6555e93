"""Counts of calls, ranges and logs: off unless asked for, and right where they are."""

import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk import settings
from autotopk.candidate import Candidate
from autotopk.device import cpu_device
from autotopk.errors import AutotopkWarning
from autotopk.runtime import declared, insight
from autotopk.runtime.counters import Stats, counters
from autotopk.runtime.state import default
from autotopk.tuning_db import artifact
from tests.runtime.winners import CHUNKED, winner

X = torch.arange(4 * 300, dtype=torch.float32).reshape(4, 300)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A strategy answers on the CPU, rather than torch.topk."""
    monkeypatch.setenv("AUTOTOPK_STRATEGY", "torch_fallback")
    autotopk.watch(False)
    autotopk.reload()
    counters.reset()
    yield
    autotopk.watch(False)
    monkeypatch.undo()
    autotopk.reload()
    counters.reset()


def counted(stats: Stats) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for one in stats.calls:
        found[one.operation, one.strategy] = found.get((one.operation, one.strategy), 0) + one.count
    return found


@pytest.mark.usefixtures("forced")
def test_calls_are_counted_only_while_watched() -> None:
    autotopk.topk(X, 3)
    assert not autotopk.stats().calls
    autotopk.watch()
    expected = torch.topk(X, 3).values
    for _ in range(5):
        assert torch.equal(autotopk.topk(X, 3).values, expected)
    autotopk.topk_indices(X, 2)
    autotopk.topk(X, 0)
    found = autotopk.stats(reset=True)
    assert found.watching
    assert sum(counted(found).values()) == 7
    assert {operation for operation, _ in counted(found)} == {"topk", "topk_indices"}
    assert found.torch["k is 0"] == 1
    assert all(one.host_us > 0 for one in found.calls)
    assert autotopk.stats().calls == ()
    autotopk.watch(False)
    autotopk.topk(X, 3)
    assert autotopk.stats() == Stats(False)


def test_winners_are_told_by_step(cache_dir: Path) -> None:
    artifact.publish([winner(4, 300, 3), winner(4, 2048, 3, CHUNKED)], settings.user_winners_path())
    autotopk.reload()
    counters.reset()
    autotopk.watch()
    try:
        autotopk.topk(X, 3)
        autotopk.topk(X[:, :280], 3)  # near the first
        wide = torch.randn(4, 2048)
        for _ in range(3):
            assert torch.equal(autotopk.topk(wide, 3).values, torch.topk(wide, 3).values)
        found = autotopk.stats(reset=True)
    finally:
        autotopk.watch(False)
        autotopk.reload()
    steps = {(one.step, one.strategy): one.count for one in found.calls}
    assert steps == {("exact", "torch_fallback"): 4, ("bucket", "torch_fallback"): 1}
    assert (found.plans, found.misses) == (3, 1)


@pytest.mark.usefixtures("forced")
def test_nothing_is_left_of_watching() -> None:
    """A call that nobody watches has the very code that it had before."""
    before = {one.name: (vars(one).keys() - {"ask"}, one.ask) for one in declared.OPERATIONS}
    autotopk.watch()
    autotopk.watch()
    assert all(one.ask is not before[one.name][1] for one in declared.OPERATIONS)
    autotopk.watch(False)
    assert {one.name: (vars(one).keys() - {"ask"}, one.ask) for one in declared.OPERATIONS} == before


@pytest.mark.usefixtures("forced")
def test_gradients_count_once() -> None:
    autotopk.watch()
    x = X.clone().requires_grad_()
    autotopk.topk(x, 3).values.sum().backward()
    assert x.grad is not None
    assert x.grad.sum() == 12
    assert sum(one.count for one in autotopk.stats().calls) == 1


@pytest.mark.usefixtures("forced")
def test_errors_are_torchs_and_are_not_counted() -> None:
    autotopk.watch()
    with pytest.raises(RuntimeError, match="out of range"):
        autotopk.topk(X, 301)
    assert autotopk.stats().calls == ()
    autotopk.topk(X, 3)
    assert sum(one.count for one in autotopk.stats().calls) == 1


@pytest.mark.usefixtures("forced")
def test_threads_count_all() -> None:
    autotopk.watch()
    threads = [threading.Thread(target=lambda: [autotopk.topk(X, 3) for _ in range(50)]) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sum(one.count for one in autotopk.stats().calls) == 200


@pytest.mark.usefixtures("forced")
def test_plans_and_failures_are_counted_always() -> None:
    for k in (3, 4, 3):
        autotopk.topk(X, k)
    assert autotopk.stats().plans == 2
    with pytest.warns(AutotopkWarning, match="no room"):
        default.block(Candidate("some", "{}"), cpu_device(), RuntimeError("no room"))
    assert autotopk.stats().left_out == {"some: no room": 1}


@pytest.mark.usefixtures("forced")
def test_compiled_functions_are_not_broken() -> None:
    autotopk.watch()
    compiled = torch.compile(lambda x: autotopk.topk(x, 3).values + 1, fullgraph=True, backend="eager")
    assert torch.equal(compiled(X), torch.topk(X, 3).values + 1)


@pytest.mark.usefixtures("forced")
def test_ranges_name_query_and_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        names.append(name)
        yield

    monkeypatch.setattr(torch.cuda.nvtx, "mark", names.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range", noted)
    autotopk.watch(nvtx=True)
    autotopk.topk(X, 3)
    strategy = autotopk.stats().calls[0].strategy
    assert names == ["autotopk", f"autotopk.topk 4x300 k=3 float32 {strategy}"]
    autotopk.watch(nvtx=False)
    autotopk.topk(X, 3)
    assert len(names) == 2


@pytest.mark.usefixtures("forced")
def test_without_nvtx_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> None:
        raise RuntimeError("not built with it")

    monkeypatch.setattr(torch.cuda.nvtx, "mark", fails)
    with pytest.warns(AutotopkWarning, match="not built with it"):
        assert insight._ranges() is None


@pytest.mark.usefixtures("forced")
def test_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "autotopk"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        autotopk.topk(X, 3)
        default.block(Candidate("some", "{}"), cpu_device(), RuntimeError("no room"))
    assert "topk (4, 300) torch.float32" in caplog.text
    assert [one.name for one in caplog.records if "no room" in one.message] == ["autotopk.warnings"]


@pytest.mark.usefixtures("forced")
def test_prometheus() -> None:
    prometheus = pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")
    from autotopk.runtime.metrics import register

    registry = prometheus.CollectorRegistry()
    register(registry)
    autotopk.watch()
    for _ in range(3):
        autotopk.topk(X, 3)
    one = autotopk.stats().calls[0]
    place = {"operation": "topk", "step": one.step, "strategy": one.strategy}
    assert registry.get_sample_value("autotopk_calls_total", place) == 3
    assert registry.get_sample_value("autotopk_host_seconds_total", place) == pytest.approx(one.host_us / 1e6)
    assert registry.get_sample_value("autotopk_plans_total") == 1
    assert "# TYPE autotopk_builds_total counter" in prometheus.generate_latest(registry).decode()


CODE = """
import json, torch, autotopk
for _ in range(3):
    autotopk.topk(torch.zeros(2, 9), 2)
found = autotopk.stats()
print(json.dumps([found.watching, sum(one.count for one in found.calls)]))
"""


@pytest.mark.parametrize(("word", "told"), [("1", [True, 3]), ("0", [False, 0]), ("", [False, 0])])
def test_environment(word: str, told: list[object]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "AUTOTOPK_STATS": word},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == told
