"""Several processes on one tuning database, and processes that are killed."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from time import sleep

import pytest

from autotopk.device import H100
from autotopk.tuning_db.store import Store
from tests.tuning_db.examples import ATEN, KEY, measurement

BATCHES, BATCH = 15, 4


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """Fresh processes that need not import SQLAlchemy once more."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.tuning_db.examples", "autotopk.tuning_db.store"])
    return context


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.sqlite"


def batch(name: str, number: int) -> Iterator[dict[str, object]]:
    for one in range(BATCH):
        yield {"name": name, "key": replace(KEY, rows=1 + number), "config": f'{{"warps":{one}}}'}


def record_all(path: Path, name: str, start: Barrier) -> None:
    start.wait()
    with Store.open(path) as database:
        run = database.begin_run(H100, ATEN, {"name": name})
        for number in range(BATCHES):
            database.record(run, [measurement(**each) for each in batch(name, number)])  # type: ignore[arg-type]
            database.derive_winners()
        database.end_run(run, "finished")


def test_two_processes_create_and_fill_one_database(context: ForkServerContext, path: Path) -> None:
    start = context.Barrier(2)
    writers = [context.Process(target=record_all, args=(path, name, start)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    with Store.open(path, read_only=True) as database:
        assert len({one.uuid for one in database.measurements()}) == 2 * BATCHES * BATCH
        assert len(database.winners()) == BATCHES
        assert database.devices() == [H100]


def create(path: Path, start: Barrier) -> None:
    start.wait()
    Store.open(path).close()


def test_creation_is_raced_without_error(context: ForkServerContext, tmp_path: Path) -> None:
    for attempt in range(3):
        start = context.Barrier(4)
        arguments = (tmp_path / f"{attempt}.sqlite", start)
        creators = [context.Process(target=create, args=arguments) for _ in range(4)]
        for creator in creators:
            creator.start()
        for creator in creators:
            creator.join(60)
            assert creator.exitcode == 0


def record_for_ever(path: Path, told: Connection) -> None:
    """Tell each uuid once it is committed."""
    with Store.open(path) as database:
        run = database.begin_run(H100, ATEN, {})
        while True:
            measured = [measurement() for _ in range(BATCH)]
            database.record(run, measured)
            for one in measured:
                os.write(told.fileno(), one.uuid.encode())
            database.derive_winners()


def test_ten_kills_lose_nothing_committed(context: ForkServerContext, path: Path) -> None:
    random, committed = Random(0), set()
    for _ in range(10):
        hear, told = context.Pipe(duplex=False)
        writer = context.Process(target=record_for_ever, args=(path, told))
        writer.start()
        told.close()
        heard = os.read(hear.fileno(), 32)  # it is at work
        sleep(random.uniform(0, 0.1))
        writer.kill()
        writer.join()
        while more := os.read(hear.fileno(), 1 << 16):
            heard += more
        hear.close()
        committed |= {heard[start : start + 32].decode() for start in range(0, len(heard), 32)}
        with Store.open(path, read_only=True) as database:
            stored = [one.uuid for one in database.measurements()]
            assert committed <= set(stored)
            assert len(stored) % BATCH == 0
    assert len(committed) >= 10
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def die_amid_a_commit(path: Path) -> None:
    """Leave a journal beside a file that is half changed."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")  # changed pages reach the file before the commit
    connection.execute("BEGIN IMMEDIATE")
    for number in range(2000):
        connection.execute("INSERT INTO candidate (strategy, config) VALUES (?, ?)", [f"{number}" * 20, "v1"])
    os._exit(0)


def test_reader_rolls_back_what_a_kill_left_half_written(context: ForkServerContext, path: Path) -> None:
    with Store.open(path) as database:
        database.record(database.begin_run(H100, ATEN, {}), [measurement()])
    before = path.read_bytes()
    victim = context.Process(target=die_amid_a_commit, args=(path,))
    victim.start()
    victim.join(60)
    assert path.with_name("tuning.sqlite-journal").exists()
    assert path.read_bytes() != before
    with Store.open(path, read_only=True) as database:
        assert len(database.measurements()) == 1
    assert path.read_bytes() == before
