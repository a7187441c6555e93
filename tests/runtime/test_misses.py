"""Problems without a measured winner: a line each, when they are first met."""

import json
import os
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk.device import cpu_device
from autotopk.key import TuningKey
from autotopk.runtime import misses
from tests.runtime.same import check, told
from tests.runtime.winners import environment, python


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "misses.jsonl"
    monkeypatch.setenv("AUTOTOPK_MISSES", str(path))
    return path


def written(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ten_problems() -> None:
    for cols in range(5, 15):
        check(torch.randn(4, cols), 3)


def test_a_problem_is_written_once(path: Path) -> None:
    """Whatever the number of calls, layouts and operations."""
    for x in (torch.randn(4, 9), torch.randn(4, 18)[:, ::2], torch.randn(4, 10)[:, 1:]):
        for _ in range(3):
            check(x, 3)
            autotopk.topk_indices(x, 3)
    assert written(path) == [
        {"device": cpu_device().fingerprint, **asdict(TuningKey("float32", 4, 9, 3, True))},
    ]
    check(torch.randn(4, 9), 3, sorted=False)
    assert len(written(path)) == 2


def test_a_killed_process_has_written_them(tmp_path: Path, cache_dir: Path) -> None:
    path = tmp_path / "misses.jsonl"
    code = "import os, signal, torch, autotopk; autotopk.topk(torch.randn(4, 9), 3); print(flush=True); os._exit(0)"
    python(code, environment(cache_dir, AUTOTOPK_MISSES=str(path)))
    assert [line["cols"] for line in written(path)] == [9]


def test_number_is_bounded_and_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(misses, "MAX_KEYS", 3)
    [message] = told(ten_problems)
    assert len(written(path)) == 3
    assert message == f"3 problems without a winner are in {path}; further ones are left out"


def test_file_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(misses, "MAX_BYTES", 300)
    [message] = told(ten_problems)
    assert message.startswith(f"misses cannot be written to {path}: too large")
    assert len(written(path)) == len(path.read_text().splitlines()) < 5


def test_threads_write_whole_lines(path: Path) -> None:
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        for cols in range(5, 25):
            check(torch.randn(4, cols), 3)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(str(line["cols"])) for line in written(path)) == list(range(5, 25))


def test_nothing_is_kept_where_nobody_asks() -> None:
    ten_problems()
    assert autotopk.runtime.state.default.misses._written == set()
    assert not os.environ.get("AUTOTOPK_MISSES")
