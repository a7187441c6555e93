"""The tuning database: what is recorded stays, and any trouble with the file is a DatabaseError."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from autotopk.candidate import Candidate
from autotopk.device import H100
from autotopk.errors import DatabaseError
from autotopk.tuning_db import artifact, engines, migrations
from autotopk.tuning_db.records import Measurement
from autotopk.tuning_db.store import Store
from autotopk.tuning_db.winners import Evidence, derive
from tests.tuning_db.examples import (
    ATEN,
    CPU,
    KEY,
    NATIVE,
    WARPS_4,
    ask,
    filled,
    measurement,
    measurements,
    unprivileged,
    winner,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.sqlite"


@pytest.fixture
def database(path: Path) -> Iterator[Store]:
    with Store.open(path) as opened:
        yield opened


@pytest.fixture
def run(database: Store) -> int:
    return database.begin_run(H100, ATEN, {"tag": "ci", "budget_s": None})


# What is recorded --------------------------------------------------------------------------------------------------


def test_new_file_is_marked_and_has_no_write_ahead_log(database: Store, path: Path) -> None:
    assert ask(path, "PRAGMA application_id") == [(migrations.APPLICATION_ID,)]
    assert ask(path, "PRAGMA user_version") == [(migrations.current(),)]
    assert ask(path, "PRAGMA journal_mode") == [("delete",)]
    tables = {"device", "environment", "candidate", "workload", "run", "measurement", "winner", "discard", "task"}
    assert {name for (name,) in ask(path, "SELECT name FROM sqlite_master WHERE type = 'table'")} == tables


@settings(max_examples=12, deadline=None)
@given(st.lists(measurements(), max_size=6))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, measured: list[Measurement]) -> None:
    path = filled(tmp_path_factory.mktemp("round") / "tuning.sqlite", *measured)
    with Store.open(path, read_only=True) as opened:
        assert opened.measurements() == sorted(measured, key=lambda one: (one.measured_at, one.uuid))


@pytest.mark.parametrize("name", ["a b.sqlite", "what?mode=memory", "50%41#é.sqlite"])
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    path = filled(tmp_path / "new folder" / name, measurement())
    assert path.exists()
    with Store.open(path, read_only=True) as opened:
        assert len(opened.measurements()) == 1


def test_measurements_of_a_device_key_or_stage(database: Store, run: int) -> None:
    here, screened = measurement(day=1), measurement(day=2, stage="screen")
    wide = measurement(day=3, key=replace(KEY, cols=2048))
    there = measurement(day=4, device=CPU)
    database.record(run, [wide, screened, here])
    database.record(database.begin_run(CPU, ATEN, {}), [there])
    assert database.measurements() == [here, screened, wide, there]
    assert database.measurements(device=CPU.fingerprint) == [there]
    assert database.measurements(key=KEY) == [here, screened, there]
    assert database.measurements(device=H100.fingerprint, key=KEY, stage="race") == [here]
    assert database.measurements(device="unknown") == []
    assert database.devices() == [CPU, H100]


def test_evidence_of_a_key_names_the_baseline(database: Store, run: int) -> None:
    first, second, wide = measurement(day=1), measurement(day=2), measurement(key=replace(KEY, cols=2048))
    later = database.begin_run(H100, NATIVE, {}, "GPU-1")
    database.record(later, [second])
    database.record(run, [first, wide])
    assert database.evidence(H100.fingerprint, KEY) == [
        Evidence(first, "aten", "", run),
        Evidence(second, "native", "GPU-1", later),
    ]
    assert database.evidence(CPU.fingerprint, KEY) == []


def test_provenance_of_a_run(database: Store, run: int, path: Path) -> None:
    database.end_run(run, "interrupted")
    killed = database.begin_run(H100, NATIVE, {})
    rows = ask(path, "SELECT id, arguments, outcome, ended > started FROM run ORDER BY id")
    assert rows == [(run, '{"tag":"ci","budget_s":null}', "interrupted", 1), (killed, "{}", None, None)]
    assert ask(path, "SELECT major, minor, memory_gib, l2_bytes FROM device") == [(9, 0, 79, 50 << 20)]
    assert ask(path, "SELECT torch, baseline FROM environment") == [("2.12.0", "aten"), ("2.13.0", "native")]


@pytest.mark.parametrize(
    "bad",
    [
        {"ratio": None, "status": "ok"},
        {"ratio": -1.0},
        {"ratio": float("nan")},
        {"samples_us": ()},
        {"baseline_us": ()},
        {"samples_us": (float("inf"),)},
        {"stage": "rave"},
        {"key": replace(KEY, k=4096)},
    ],
    ids=str,
)
def test_batch_with_a_bad_measurement_is_refused_whole(database: Store, run: int, bad: dict[str, Any]) -> None:
    with pytest.raises(DatabaseError, match=r"tuning\.sqlite"):
        database.record(run, [measurement(), replace(measurement(), **bad)])
    assert database.measurements() == []
    database.record(run, [measurement()])


def test_known_uuid_is_refused(database: Store, run: int) -> None:
    one = measurement()
    database.record(run, [one])
    with pytest.raises(DatabaseError, match="UNIQUE"):
        database.record(run, [replace(one, ratio=0.1)])
    assert database.measurements() == [one]


def test_what_a_refused_batch_met_is_not_taken_for_stored(database: Store, run: int) -> None:
    first = measurement(day=1)
    database.record(run, [first])
    fresh = {"name": "fresh", "key": replace(KEY, rows=3)}
    with pytest.raises(DatabaseError, match="UNIQUE"):
        database.record(run, [measurement(**fresh), first])  # type: ignore[arg-type]
    database.record(run, [measurement(name="other", key=replace(KEY, rows=5))])  # takes the numbers that are free again
    third = measurement(day=3, **fresh)  # type: ignore[arg-type]
    database.record(run, [third])
    assert database.measurements(key=third.key) == [third]


def test_what_is_known_is_not_looked_up_again(database: Store, run: int) -> None:
    """A run on a GPU stores thousands of measurements, one at a time, while the GPU waits."""
    database.record(run, [measurement(day=1)])
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement.split()[0])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        database.record(run, [measurement(day=2)])
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert statements == ["BEGIN", "INSERT"]
    assert len(database.measurements(key=KEY)) == 2


def test_measurement_must_fit_its_run(database: Store, run: int) -> None:
    with pytest.raises(ValueError, match="its run is on"):
        database.record(run, [measurement(device=CPU)])
    with pytest.raises(DatabaseError, match="no run 99"):
        database.record(99, [measurement()])


@pytest.mark.parametrize("change", ["UPDATE measurement SET ratio = 0.1", "DELETE FROM measurement"])
def test_measurements_are_never_changed(database: Store, run: int, path: Path, change: str) -> None:
    database.record(run, [measurement()])
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        ask(path, change)


def test_foreign_keys_are_enforced(database: Store, run: int) -> None:
    with database._transaction(engines.WRITE) as session, pytest.raises(Exception, match="FOREIGN KEY"):
        session.connection().exec_driver_sql("DELETE FROM device")


# Winners -----------------------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(st.lists(measurements(), max_size=10))
def test_stored_winners_are_the_derived_ones(
    tmp_path_factory: pytest.TempPathFactory, measured: list[Measurement]
) -> None:
    with Store.open(filled(tmp_path_factory.mktemp("derive") / "tuning.sqlite", *measured)) as opened:
        expected = derive(Evidence(one, "aten") for one in measured).values()
        found = opened.derive_winners()
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert opened.winners() == found
        assert opened.derive_winners() == found


def test_incumbent_survives_a_near_tie_across_sessions(path: Path) -> None:
    with Store.open(filled(path, measurement("z", 0.50))) as opened:
        opened.derive_winners()
    with Store.open(filled(path, measurement("a", 0.49, day=2))) as opened:
        assert [one.candidate.strategy for one in opened.derive_winners()] == ["z"]
    with Store.open(filled(path, measurement("a", 0.40, day=3))) as opened:
        assert [one.candidate.strategy for one in opened.derive_winners()] == ["a"]


def test_baseline_of_the_run_is_told(database: Store) -> None:
    database.record(database.begin_run(H100, NATIVE, {}), [measurement()])
    assert [one.baseline for one in database.derive_winners()] == ["native"]


def test_deriving_one_device_leaves_the_others(database: Store, run: int) -> None:
    database.record(run, [measurement()])
    elsewhere = database.begin_run(CPU, ATEN, {})
    database.record(elsewhere, [measurement("chunked", device=CPU)])
    assert [one.device for one in database.derive_winners(H100.fingerprint)] == [H100]
    assert database.winners(CPU.fingerprint) == []
    database.derive_winners()
    database.record(elsewhere, [measurement("chunked", None, day=2, device=CPU)])
    assert database.derive_winners(CPU.fingerprint) == []
    assert [one.device for one in database.winners()] == [H100]


# Merging -----------------------------------------------------------------------------------------------------------


def test_merge_adds_what_is_new_once(tmp_path: Path, path: Path) -> None:
    shared, ours, theirs = measurement("a", 0.5), measurement("b", 0.6), measurement("c", 0.4)
    other = filled(tmp_path / "other.sqlite", shared)
    with Store.open(path) as opened:
        assert opened.merge(other) == 1
        opened.record(opened.begin_run(H100, ATEN, {}), [ours])
        filled(other, theirs)
        assert opened.merge(other) == 1
        found = opened.winners()
        assert [(one.candidate.strategy, one.runner_up) for one in found] == [("c", Candidate("a", WARPS_4))]
        assert opened.merge(other) == 0
        assert opened.merge(path) == 0
        assert opened.winners() == found
        assert {one.uuid for one in opened.measurements()} == {shared.uuid, ours.uuid, theirs.uuid}


def test_merge_keeps_runs_and_baselines(tmp_path: Path, path: Path) -> None:
    with Store.open(tmp_path / "other.sqlite") as other:
        run = other.begin_run(CPU, NATIVE, {"tag": "seeds"})
        other.record(run, [measurement(device=CPU, key=replace(KEY, rows=rows)) for rows in (1, 2)])
        other.end_run(run, "finished")
    with Store.open(path) as opened:
        opened.record(opened.begin_run(H100, ATEN, {}), [measurement()])
        assert opened.merge(tmp_path / "other.sqlite") == 2
        assert {(one.device, one.baseline) for one in opened.winners()} == {
            (H100, "aten"),
            (CPU, "native"),
        }
    query = "SELECT uuid, arguments, started, ended, outcome FROM run WHERE outcome IS NOT NULL"
    assert ask(path, query) == ask(tmp_path / "other.sqlite", query)


@settings(max_examples=8, deadline=None)
@given(st.lists(measurements(), max_size=6), st.lists(measurements(), max_size=6))
def test_merging_either_way_gives_the_same_winners(
    tmp_path_factory: pytest.TempPathFactory, left: list[Measurement], right: list[Measurement]
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    with Store.open(filled(folder / "left", *left)) as one, Store.open(filled(folder / "right", *right)) as other:
        assert one.merge(other.place) == len(right)
        assert other.merge(one.place) == len(left)
        assert one.measurements() == other.measurements()
        assert one.winners() == other.winners()


def test_merge_of_no_database_changes_nothing(tmp_path: Path, path: Path) -> None:
    artifact.publish([winner()], tmp_path / "winners.sqlite")
    with Store.open(filled(path, measurement())) as opened:
        for bad in ("winners.sqlite", "missing.sqlite"):
            with pytest.raises(DatabaseError, match=bad):
                opened.merge(tmp_path / bad)
        assert len(opened.measurements()) == 1


# Files in trouble --------------------------------------------------------------------------------------------------


def text(path: Path) -> None:
    path.write_text("not a database\n" * 1000)


def folder(path: Path) -> None:
    path.mkdir()


def foreign(path: Path) -> None:
    ask(path, "CREATE TABLE somebody (a)")


def winners_file(path: Path) -> None:
    artifact.publish([winner()], path)


def newer(path: Path) -> None:
    Store.open(path).close()
    ask(path, "PRAGMA user_version = 7")


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (text, "file is not a database"),
        (folder, "not a regular file"),
        (foreign, "no tuning database of autotopk"),
        (winners_file, "no tuning database of autotopk"),
        (newer, "has schema 7; this autotopk reads up to 6"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_other_files_are_refused_and_left_alone(
    path: Path, make: Callable[[Path], None], reason: str, *, read_only: bool
) -> None:
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(DatabaseError, match=reason) as raised:
        Store.open(path, read_only=read_only)
    assert str(path) in str(raised.value)
    assert before is None or path.read_bytes() == before


def test_damage_inside_is_a_database_error(path: Path) -> None:
    filled(path, *(measurement(error="x" * 1000) for _ in range(200)))
    content = path.read_bytes()
    path.write_bytes(content[:8192] + bytes(len(content) - 8192))
    with pytest.raises(DatabaseError, match="malformed"), Store.open(path) as opened:
        opened.measurements()


def test_damaged_text_is_a_database_error(path: Path) -> None:
    filled(path, measurement(build_stats={"registers": 32.0}))
    path.write_bytes(path.read_bytes().replace(b'{"registers"', b'!"registers"'))
    with Store.open(path) as opened, pytest.raises(DatabaseError, match="Expecting value"):
        opened.measurements()


ODD: list[tuple[str, str, str, str]] = [
    ("measurement", "samples_us", "'5'", "samples_us is 5, not positive numbers"),
    ("measurement", "samples_us", "'[\"5\"]'", "samples_us is ['5'], not positive numbers"),
    ("measurement", "samples_us", "'[NaN]'", "samples_us is [nan], not positive numbers"),
    ("measurement", "baseline_us", "'[]'", "is damaged: CHECK constraint failed in measurement"),
    ("measurement", "ratio", "'fast'", "ratio is 'fast', not a positive number"),
    ("measurement", "margin", "9e999", "margin is inf, not a number"),
    ("measurement", "status", "'odd'", "status is 'odd', not one of"),
    ("measurement", "measured_at", "x'00'", "measured_at is "),
    ("measurement", "build_stats", "'[]'", "build_stats is [], not an object of numbers"),
    ("measurement", "build_stats", "5", "build_stats is 5, not an object of numbers"),
    ("candidate", "config", "'[1]'", "config is '[1]', not a JSON object"),
    ("candidate", "strategy", "'a b' WHERE id = 1", "strategy is 'a b', not an identifier"),
    ("workload", "cols", "'many'", "cols is 'many', not a positive integer"),
    ("workload", "k", "5000", "is damaged: CHECK constraint failed in workload"),
    ("device", "name", "char(27)", "name is '\\x1b', not a printable text"),
    ("device", "processors", "78", "has the columns of "),
    ("winner", "gap", "'wide'", "gap is 'wide', not a number"),
]


@pytest.mark.parametrize(("table", "column", "value", "reason"), ODD)
def test_odd_value_is_a_database_error(path: Path, table: str, column: str, value: str, reason: str) -> None:
    with Store.open(filled(path, measurement(), measurement("slow", 2.0))) as opened:
        opened.derive_winners()
    ask(path, "DROP TRIGGER measurement_refuses_update")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE {table} SET {column} = {value}")
    with pytest.raises(DatabaseError) as raised, Store.open(path, read_only=True) as opened:
        opened.winners()
    assert str(path) in str(raised.value)
    assert reason in str(raised.value)
    with Store.open(path.with_name("ours.sqlite")) as ours:
        if table != "winner":
            with pytest.raises(DatabaseError):
                ours.merge(path)
        assert ours.measurements() == []


@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "CREATE TRIGGER more AFTER INSERT ON run BEGIN DELETE FROM winner; END",
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_views_and_triggers_of_others_are_refused(path: Path, made: str, *, read_only: bool) -> None:
    ask(filled(path, measurement()), made)
    with pytest.raises(DatabaseError, match="a view or trigger that autotopk did not make: more"):
        Store.open(path, read_only=read_only)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_fifo_is_refused_at_once(path: Path, *, read_only: bool) -> None:
    os.mkfifo(path)
    with pytest.raises(DatabaseError, match="not a regular file"):
        Store.open(path, read_only=read_only)


def test_reading_needs_a_database(path: Path) -> None:
    with pytest.raises(DatabaseError, match="no tuning database at"):
        Store.open(path, read_only=True)
    assert not path.exists()
    path.touch()
    with pytest.raises(DatabaseError, match="has schema 0"):
        Store.open(path, read_only=True)
    Store.open(path).close()
    Store.open(path, read_only=True).close()


def test_read_only_store_does_not_write(path: Path) -> None:
    before = filled(path, measurement()).read_bytes()
    with Store.open(path, read_only=True) as opened:
        for write in (opened.derive_winners, lambda: opened.begin_run(H100, ATEN, {})):
            with pytest.raises(DatabaseError, match="readonly"):
                write()
    assert path.read_bytes() == before


def test_read_only_files_can_be_read_and_not_written(public: Path) -> None:
    path = filled(public / "tuning.sqlite", measurement())
    path.chmod(0o444)
    public.chmod(0o555)
    with unprivileged():
        with Store.open(path, read_only=True) as opened:
            assert len(opened.measurements()) == 1
        for unfit in (path, public / "new.sqlite", public / "folder" / "new.sqlite"):
            with pytest.raises(DatabaseError, match=unfit.name), Store.open(unfit) as opened:
                opened.begin_run(H100, ATEN, {})


def test_writer_waits_for_another(database: Store, run: int, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        Timer(0.3, other.rollback).start()
        database.record(run, [measurement()])
    assert len(database.measurements()) == 1


def test_writer_that_waited_in_vain_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, measurement())
    monkeypatch.setattr(engines, "BUSY_S", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="database is locked"):
            Store.open(path)
        with Store.open(path, read_only=True) as reader:
            assert len(reader.measurements()) == 1
