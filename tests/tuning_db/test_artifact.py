"""The published winners: what goes in comes out, and any other file is an ArtifactError."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk.candidate import Candidate
from autotopk.device import H100, Device
from autotopk.errors import ArtifactError
from autotopk.tuning_db import artifact
from autotopk.tuning_db.records import Winner
from autotopk.tuning_db.store import Store
from tests.tuning_db.examples import CPU, KEY, unprivileged, winner, winners

MANY = [winner(device=device, key=replace(KEY, rows=rows)) for device in (H100, CPU) for rows in range(1, 41)]
LATER = [replace(one, time_us=3.5) for one in MANY]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "winners.sqlite"


@pytest.fixture
def published(path: Path) -> Path:
    artifact.publish(MANY, path)
    return path


def edit(path: Path, *statements: str, digest: bool = True) -> None:
    """Change a published file by hand, its digest too unless told otherwise."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        if digest:
            rows = [*artifact._device_rows(connection), *artifact._rows(connection)]
            connection.execute("UPDATE digest SET sha256 = ?", [artifact._digest(rows)])


def checksums_hold(path: Path) -> bool:
    """Whether `sha256sum -c` is content."""
    command = ["sha256sum", "--check", "--strict", f"{path.name}.sha256"]
    return subprocess.run(command, cwd=path.parent, capture_output=True).returncode == 0


# What is published -------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        winners,
        max_size=4,
        unique_by=(lambda one: (one.device.fingerprint, one.key), lambda one: one.device.fingerprint),
    )
)
def test_round_trip(given_winners: list[Winner]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "winners.sqlite")
        artifact.publish(given_winners, path)
        assert sorted(artifact.read(path), key=repr) == sorted(given_winners, key=repr)


def test_winners_of_several_devices_live_in_one_file(published: Path) -> None:
    found = artifact.read(published)
    assert {one.device for one in found} == {H100, CPU}
    assert sorted(found, key=repr) == sorted(MANY, key=repr)


def test_three_files_of_which_the_twin_says_the_same(published: Path) -> None:
    assert sorted(os.listdir(published.parent)) == ["winners.json", "winners.sqlite", "winners.sqlite.sha256"]
    told = json.loads(published.with_suffix(".json").read_text())
    for one, its in zip(artifact.read(published), told["winners"], strict=True):
        assert its["candidate"] == {"strategy": one.candidate.strategy, "knobs": one.candidate.knobs}
        assert (its["device"], its["key"], its["ratio"]) == (one.device.fingerprint, asdict(one.key), one.ratio)
    assert {name: device["processors"] for name, device in told["devices"].items()} == {
        one.fingerprint: one.processors for one in (H100, CPU)
    }
    assert checksums_hold(published)


def test_same_winners_are_the_same_bytes(published: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.sqlite"
    artifact.publish(reversed(MANY), again)
    assert again.read_bytes() == published.read_bytes()


def test_no_write_ahead_log_in_the_header(published: Path) -> None:
    assert published.read_bytes()[18:20] == b"\x01\x01"


@pytest.mark.parametrize(
    "name", ["a b.sqlite", "what?mode=memory.sqlite", "50%41#é.sqlite", "winners", "winners.v1.db"]
)
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    artifact.publish(MANY, tmp_path / "new folder" / name)
    assert len(artifact.read(tmp_path / "new folder" / name)) == len(MANY)
    assert checksums_hold(tmp_path / "new folder" / name)


def test_nothing_is_a_fine_thing_to_publish(path: Path) -> None:
    artifact.publish([], path)
    assert artifact.read(path) == ()


@pytest.mark.parametrize(
    "bad",
    [
        [winner(), winner(candidate=Candidate("other", "{}"))],
        [winner(time_us=float("nan"))],
        [winner(candidate=Candidate("other", "[]"))],
        [winner(candidate=Candidate("no name", "{}"))],
        [winner(key=replace(KEY, k=0))],
    ],
    ids=["two for one key", "nan", "config", "strategy", "k"],
)
def test_what_could_not_be_read_back_is_not_published(published: Path, bad: list[Winner]) -> None:
    before = published.read_bytes()
    with pytest.raises(ArtifactError, match=f"cannot be published as {published}"):
        artifact.publish(bad, published)
    assert published.read_bytes() == before
    assert len(os.listdir(published.parent)) == 3
    assert checksums_hold(published)


def test_places_that_cannot_be_written(tmp_path: Path, public: Path) -> None:
    (tmp_path / "folder.sqlite").mkdir()
    (tmp_path / "file").touch()
    for unfit in (tmp_path / "folder.sqlite", tmp_path / "file" / "winners.sqlite", tmp_path / "winners.json"):
        with pytest.raises(ArtifactError, match=unfit.name):
            artifact.publish(MANY, unfit)
    public.chmod(0o555)
    with unprivileged(), pytest.raises(ArtifactError, match="Permission denied"):
        artifact.publish(MANY, public / "winners.sqlite")


# What is refused ---------------------------------------------------------------------------------------------------


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("not a database\n" * 1000)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])


def header_alone(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def missing(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE winner (device)")


def tuning_database(path: Path) -> None:
    path.unlink()
    Store.open(path).close()


def wrong_free_list(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[39] = 5  # pages that the header says are free
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (empty, "not a winners file"),
        (text, "file is not a database"),
        (truncated, "malformed"),
        (header_alone, "malformed|not a database"),
        (wrong_free_list, "damaged: .*freelist"),
        (missing, "unable to open"),
        (folder, "unable to open|disk I/O"),
        (foreign, "not a winners file"),
        (tuning_database, "not a winners file"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_other_files_are_refused(published: Path, damage: Callable[[Path], None], reason: str) -> None:
    damage(published)
    with pytest.raises(ArtifactError, match=reason) as raised:
        artifact.read(published)
    assert str(published) in str(raised.value)


def test_unreadable_file_is_refused(public: Path) -> None:
    artifact.publish(MANY, public / "winners.sqlite")
    (public / "winners.sqlite").chmod(0)
    with unprivileged(), pytest.raises(ArtifactError, match="unable to open"):
        artifact.read(public / "winners.sqlite")


def test_newer_format_says_so(published: Path) -> None:
    edit(published, f"PRAGMA user_version = {artifact.FORMAT + 1}")
    with pytest.raises(ArtifactError, match=r"has format 3; this autotopk reads up to 2"):
        artifact.read(published)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE more (a)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER more AFTER INSERT ON digest BEGIN SELECT 1; END",
        "ALTER TABLE winner ADD COLUMN more",
        "DROP TABLE digest",
    ],
)
def test_other_tables_are_refused(published: Path, statement: str) -> None:
    edit(published, statement, digest=False)
    with pytest.raises(ArtifactError, match="its tables are not those"):
        artifact.read(published)


def test_change_by_hand_is_noticed(published: Path) -> None:
    edit(published, "UPDATE winner SET time_us = 1 WHERE rows = 7", digest=False)
    with pytest.raises(ArtifactError, match="do not match its digest"):
        artifact.read(published)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("device", "x'00'"),
        ("dtype", "'float33'"),
        ("rows", "0"),
        ("rows", "1.5"),
        ("cols", "'many'"),
        ("cols", "4"),  # less than k
        ("k", "-1"),
        ("sorted", "2"),
        ("strategy", "'os.system'"),
        ("strategy", "''"),
        ("config", "'[1]'"),
        ("config", "'{'"),
        ("config", """'{"a": null}'"""),
        ("config", """'{"a": [1]}'"""),
        ("config", """'{"a": NaN}'"""),
        ("config", f"'{'[' * 100_000}'"),
        ("config", "NULL"),
        ("source", "NULL"),
        ("code", "x'00'"),
        ("time_us", "0"),
        ("time_us", "-1"),
        ("time_us", "9e999"),
        ("baseline_us", "NULL"),
        ("ratio", "'fast'"),
        ("baseline", "NULL"),
        ("measured_at", "NULL"),
        ("runner_up_strategy", "'a b'"),
        ("runner_up_config", "'[]'"),
        ("gap", "-9e999"),
        ("adversarial_slowdown", "0"),
    ],
)
def test_bad_value_is_named(published: Path, column: str, value: str) -> None:
    edit(published, f"UPDATE winner SET {column} = {value} WHERE rows = 7 AND device LIKE 'cuda%'")
    with pytest.raises(ArtifactError, match=rf"{'k' if value == '4' else column} is .*(, not |more than cols)"):
        artifact.read(published)


@pytest.mark.parametrize(
    ("column", "value"), [("processors", "0"), ("major", "-1"), ("name", "x'00'"), ("l2_bytes", "'much'")]
)
def test_bad_value_of_a_device_is_named(published: Path, column: str, value: str) -> None:
    edit(published, f"UPDATE device SET {column} = {value} WHERE type = 'cuda'")
    with pytest.raises(ArtifactError, match=rf"{column} is .*, not "):
        artifact.read(published)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE device SET processors = 78 WHERE type = 'cuda'", "has the columns of .*78 SMs"),
        ("DELETE FROM device WHERE type = 'cpu'", "table of devices does not have"),
        ("UPDATE winner SET runner_up_config = NULL WHERE rows = 7", "a runner-up is a strategy and its configuration"),
    ],
)
def test_rows_that_do_not_fit_each_other_are_refused(published: Path, statement: str, reason: str) -> None:
    edit(published, statement)
    with pytest.raises(ArtifactError, match=reason):
        artifact.read(published)


# Files of version 0.1 ----------------------------------------------------------------------------------------------


@pytest.fixture
def format_1(path: Path) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript((Path(__file__).parent / "schema_1" / "winners.sql").read_text())
    return path


def test_format_1_is_read(format_1: Path) -> None:
    with closing(sqlite3.connect(format_1)) as connection:
        rows = connection.execute(f"SELECT * FROM winner ORDER BY {artifact.KEY}").fetchall()
    found = artifact.read(format_1)
    assert len(found) == len(rows) == 5
    for one, row in zip(found, rows, strict=True):
        device, dtype, rows_, cols, k, order, strategy, config, version, *rest = row
        time_us, baseline_us, ratio, baseline, measured_at, runner_up, gap, slowdown = rest
        assert (one.device.fingerprint, one.key.dtype, one.key.sorted) == (device, dtype, order)
        assert (one.key.rows, one.key.cols, one.key.k) == (rows_, cols, k)
        assert (one.candidate, one.identity.code) == (Candidate(strategy, config), f"version {version}")
        assert (one.time_us, one.baseline_us, one.ratio, one.baseline) == (time_us, baseline_us, ratio, baseline)
        assert (one.measured_at, one.gap, one.adversarial_slowdown) == (measured_at, gap, slowdown)
        assert (one.runner_up and str(one.runner_up)) == runner_up
    assert {one.device for one in found} == {H100, Device("cpu", "a CPU", processors=4)}


@pytest.mark.parametrize(
    ("column", "value"),
    [("device", "'some GPU'"), ("config", "'['"), ("version", "NULL"), ("runner_up", "'a b'"), ("worst_ratio", "0")],
)
def test_bad_value_in_format_1_is_named(format_1: Path, column: str, value: str) -> None:
    with closing(sqlite3.connect(format_1, isolation_level=None)) as connection:
        connection.execute(f"UPDATE winner SET {column} = {value} WHERE device LIKE 'cuda%'")
        connection.execute("UPDATE digest SET sha256 = ?", [artifact._digest(artifact._rows(connection))])
    with pytest.raises(ArtifactError, match=rf"{column} is .*, not "):
        artifact.read(format_1)


def test_format_1_becomes_format_2_when_published_again(format_1: Path) -> None:
    before = artifact.read(format_1)
    artifact.publish(before, format_1)
    assert artifact.read(format_1) == before
    with closing(sqlite3.connect(format_1)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (artifact.FORMAT,)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pristine") / "winners.sqlite"
    artifact.publish(MANY[:8], path)
    return path


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_flipped_bits_cost_the_file_or_nothing(pristine: Path, data: st.DataObject) -> None:
    content = bytearray(pristine.read_bytes())
    place = st.integers(0, 200) | st.integers(0, len(content) - 1)
    for at in data.draw(st.lists(place, min_size=1, max_size=3)):
        content[at] ^= data.draw(st.integers(1, 255))
    damaged = pristine.with_name("damaged.sqlite")
    damaged.write_bytes(content)
    try:
        assert artifact.read(damaged) == artifact.read(pristine)
    except ArtifactError:
        pass


# Readers beside publishers -----------------------------------------------------------------------------------------


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
        with artifact._exclusive(published.parent):
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
