"""Files that are no winners files, or too much of one: at once, within bounds, and told in a line."""

import gc
import os
import socket
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk.device import H100, cpu_device
from autotopk.errors import ArtifactError
from autotopk.key import TuningKey
from autotopk.runtime import state
from autotopk.runtime.state import Runtime
from autotopk.tuning_db import artifact
from autotopk.tuning_db.records import Winner
from tests.runtime.same import check, told, within
from tests.runtime.winners import CHUNKED, SORT, environment, python, winner

X = torch.randn(64, 4096)


def listening(path: Path) -> None:
    socket.socket(socket.AF_UNIX).bind(os.path.relpath(path))


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def answered() -> None:
    check(X, 128)
    check(X, 12)
    autotopk.topk_indices(X, 9)
    autotopk.explain(X, 7)


KINDS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": listening,
    "a folder": Path.mkdir,
    "huge": huge,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", ["AUTOTOPK_DB", "the user's winners"])
def test_what_is_no_regular_file_costs_a_warning(
    kind: str, layer: str, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cache_dir.mkdir()
    path = tmp_path / "other" if layer == "AUTOTOPK_DB" else cache_dir / "winners.sqlite"
    KINDS[kind](path)
    if layer == "AUTOTOPK_DB":
        monkeypatch.setenv("AUTOTOPK_DB", str(path))
    autotopk.reload()
    with within(20):
        [message] = told(answered)
    assert message.startswith(f"{layer} cannot be used: {path}: ")


@pytest.mark.parametrize("kind", KINDS)
def test_misses_go_to_a_regular_file_alone(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    KINDS[kind](tmp_path / "other")
    monkeypatch.setenv("AUTOTOPK_MISSES", str(tmp_path / "other"))
    with within(20):
        [message] = told(answered)
    assert message.startswith(f"misses cannot be written to {tmp_path / 'other'}: ")


def test_a_process_among_fifos_ends(tmp_path: Path, cache_dir: Path) -> None:
    cache_dir.mkdir()
    for path in (tmp_path / "db", tmp_path / "misses", cache_dir / "winners.sqlite", cache_dir / "tuning.sqlite"):
        os.mkfifo(path)
    code = "import signal; signal.alarm(60); import torch, autotopk; autotopk.topk(torch.randn(4, 9), 3); print('done')"
    variables = environment(cache_dir, AUTOTOPK_DB=str(tmp_path / "db"), AUTOTOPK_MISSES=str(tmp_path / "misses"))
    assert python(code, variables) == "done\n"


# Bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [5_000, 800_000, 20_000_000])
def test_long_texts_are_cut(length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.sqlite"
    artifact.publish([winner(64, 4096, 128, CHUNKED)], path)
    rename(path, "winner", "strategy", "x" * length)
    monkeypatch.setenv("AUTOTOPK_DB", str(path))
    autotopk.reload()
    [message] = told(lambda: check(X, 128))
    assert len(message) < 1000


def rename(path: Path, table: str, column: str, text: str) -> None:
    """Another text in all rows of a table, under a digest that holds."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", [text])
        rows = [*artifact._device_rows(connection), *artifact._rows(connection)]
        connection.execute("UPDATE digest SET sha256 = ?", [artifact._digest(rows)])


@pytest.mark.parametrize(
    ("table", "column"), [("device", "type"), ("winner", "strategy"), ("winner", "config"), ("winner", "measured_at")]
)
@pytest.mark.parametrize("text", ["\x1b[2J", "\u202eabc", "a\nb", '{"a":"\\u001b[2J"}'])
def test_control_characters_reach_nobody(
    table: str, column: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "control.sqlite"
    artifact.publish([winner(64, 4096, 128, CHUNKED)], path)
    rename(path, table, column, text)
    if text.isprintable() and column in ("type", "measured_at"):
        return  # escaped as it is, a text like any other
    monkeypatch.setenv("AUTOTOPK_DB", str(path))
    autotopk.reload()
    [message] = told(lambda: check(X, 128))
    assert message.isprintable()
    assert message.startswith(f"{path}: 1 of 1 winners are left out, the first because {column} is ")


def test_an_odd_device_costs_its_own_winners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "odd.sqlite"
    here = winner(64, 4096, 128, CHUNKED)
    artifact.publish([here, replace(here, device=H100), replace(here, device=replace(H100, memory_gib=80))], path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE device SET processors = 0 WHERE memory_gib = 80")
        rows = [*artifact._device_rows(connection), *artifact._rows(connection)]
        connection.execute("UPDATE digest SET sha256 = ?", [artifact._digest(rows)])
    monkeypatch.setenv("AUTOTOPK_DB", str(path))
    autotopk.reload()
    [message] = told(lambda: check(X, 128))
    assert message.endswith("1 of 3 winners are left out, the first because processors is 0, not a positive integer")
    assert autotopk.explain(X, 128).choice.step == "exact"
    assert {one.device for one in artifact.contents(path).winners()} == {cpu_device(), H100}
    with pytest.raises(ArtifactError, match="processors is 0"):
        artifact.read(path)


@pytest.mark.parametrize("limit", ["MAX_WINNERS", "MAX_DEVICES", "MAX_BYTES", "MAX_STEPS"])
def test_more_than_anybody_has_is_refused_whole(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.sqlite"
    here = winner(64, 4096, 128, CHUNKED)
    shapes = [replace(here.key, rows=rows) for rows in range(1, 500)]
    artifact.publish([replace(here, key=key, device=device) for key in shapes for device in (here.device, H100)], path)
    monkeypatch.setattr(artifact, limit, 1)
    monkeypatch.setattr(artifact, "STEPS", 100)
    with pytest.raises(ArtifactError, match=r"more than 1 rows|too large: [\d,]+ bytes|interrupted"):
        artifact.contents(path)


# Time --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30,000 winners of this device."""
    path, one = tmp_path_factory.mktemp("many") / "many.sqlite", winner(1, 1024, 8, SORT)
    keys = [replace(one.key, rows=rows, k=k) for rows in range(1, 3001) for k in range(10, 20)]
    artifact.publish([replace(one, key=key) for key in keys], path)
    return path


def test_thirty_thousand_winners_are_read_without_making_one(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a quarter of a second of this thread, a new shape that half of them are near to thirty milliseconds."""
    monkeypatch.setenv("AUTOTOPK_DB", str(many))
    made = []

    def counted(*arguments: object) -> Winner:
        made.append(arguments)
        return Winner(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(artifact, "Winner", counted)
    begun = time.thread_time()
    known = Runtime().winners(cpu_device())
    assert time.thread_time() - begun < 1.5
    assert made == []
    asked = TuningKey("float32", 3000, 1500, 14, True)
    gc.collect()  # of what other tests left, not in the time below
    begun = time.thread_time()
    assert known.exact(asked) is None
    next(known.near(asked))
    assert time.thread_time() - begun < 0.1
    assert len(made) < 10


def test_many_threads_read_a_bad_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_DB", str(tmp_path / "missing.sqlite"))
    autotopk.reload()
    barrier = threading.Barrier(32)

    def first_call() -> None:
        barrier.wait()
        check(X, 128)

    threads = [threading.Thread(target=first_call) for _ in range(32)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    messages = [str(one.message) for one in caught]
    assert len([one for one in messages if one.startswith("AUTOTOPK_DB cannot be used")]) == 1
    assert len([one for one in messages if one.startswith("nothing like")]) == 1
    assert len(messages) == 2
    assert state.default.winners(cpu_device()).exact(TuningKey("float32", 64, 4096, 128, True)) is None
