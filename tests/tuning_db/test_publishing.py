"""Readers beside publishers: nobody waits for the other, and nobody sees half of a file."""

import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from autotopk.errors import ArtifactError
from autotopk.files import exclusive
from autotopk.tuning_db import artifact
from tests.tuning_db.examples import LATER, MANY, checksums_hold, unprivileged


def test_reading_changes_nothing_and_needs_no_right_to_write(public: Path) -> None:
    path = public / "winners.sqlite"
    artifact.publish(MANY, path)
    before = {file: file.read_bytes() for file in public.iterdir()}
    path.chmod(0o444)
    public.chmod(0o555)
    with unprivileged():
        assert len(artifact.read(path)) == len(MANY)
    assert {file: file.read_bytes() for file in public.iterdir()} == before


def test_no_lock_stops_a_reader(published: Path) -> None:
    with closing(sqlite3.connect(published, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert len(artifact.read(published)) == len(MANY)


def test_publishers_of_one_folder_take_turns(published: Path) -> None:
    with ThreadPoolExecutor() as pool:
        with exclusive(published.parent):
            other = pool.submit(artifact.publish, LATER, published)
            with pytest.raises(TimeoutError):
                other.result(timeout=0.5)
            assert {one.time_us for one in artifact.read(published)} == {2.5}
        other.result(timeout=30)
    assert {one.time_us for one in artifact.read(published)} == {3.5}


def keep_publishing(path: Path, stop: Event) -> None:
    for found in cycle([LATER, MANY]):
        artifact.publish(found, path)
        if stop.is_set():
            return


def test_readers_see_one_publication_or_the_other(published: Path) -> None:
    context = get_context("spawn")
    stop = context.Event()
    publishers = [context.Process(target=keep_publishing, args=(published, stop)) for _ in range(2)]
    for publisher in publishers:
        publisher.start()
    seen: set[float] = set()
    reads = 0
    while reads < 100 or len(seen) < 2:
        times = {one.time_us for one in artifact.read(published)}
        assert len(times) == 1
        seen |= times
        reads += 1
        assert all(publisher.is_alive() for publisher in publishers)
    stop.set()
    for publisher in publishers:
        publisher.join(30)
        assert publisher.exitcode == 0
    assert checksums_hold(published)
    assert len(os.listdir(published.parent)) == 3


@pytest.mark.parametrize("replaced", [0, 1, 2])
def test_publisher_that_dies_leaves_winners_and_no_wrong_checksum(
    published: Path, monkeypatch: pytest.MonkeyPatch, replaced: int
) -> None:
    replace_file, left = os.replace, iter(range(replaced))

    def die(source: Any, target: Any) -> None:
        if next(left, None) is None:
            raise OSError("power cut")
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(ArtifactError, match="power cut"):
        artifact.publish(LATER, published)
    assert {one.time_us for one in artifact.read(published)} == {3.5 if replaced else 2.5}
    assert not published.with_name("winners.sqlite.sha256").exists()


def test_importing_it_loads_no_sqlalchemy() -> None:
    heavy = "{'sqlalchemy', 'optuna', 'triton', 'tilelang'}"
    code = f"import sys, autotopk.tuning_db.artifact; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_copied_file_reads_alone(published: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    copy = shutil.copy(published, tmp_path / "elsewhere" / "winners.sqlite")
    assert artifact.read(Path(copy)) == artifact.read(published)
