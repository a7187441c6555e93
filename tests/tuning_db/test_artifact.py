"""The published winners: what goes in comes out, and any other file is an ArtifactError."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk.candidate import Candidate
from autotopk.device import H100
from autotopk.errors import ArtifactError
from autotopk.fitted import Fitted
from autotopk.tuning_db import artifact, formats
from autotopk.tuning_db.records import Winner
from autotopk.tuning_db.store import Store
from tests.tuning_db.examples import CPU, KEY, MANY, checksums_hold, unprivileged, winner, winners


def columns_of(connection: sqlite3.Connection) -> list[str]:
    return [name for _, name, *_ in connection.execute("PRAGMA table_info(winner)")]


def edit(path: Path, *statements: str, digest: bool = True) -> None:
    """Change a published file by hand, its digest too unless told otherwise."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        if digest:
            key = formats.KEY if "routing" in columns_of(connection) else formats.KEY_3
            rows = [*artifact._device_rows(connection), *artifact._rows(connection, key)]
            connection.execute("UPDATE digest SET sha256 = ?", [artifact._digest(rows)])


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
        (missing, "No such file"),
        (folder, "not a regular file"),
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
    with unprivileged(), pytest.raises(ArtifactError, match="Permission denied"):
        artifact.read(public / "winners.sqlite")


def test_newer_format_says_so(published: Path) -> None:
    edit(published, f"PRAGMA user_version = {formats.FORMAT + 1}")
    with pytest.raises(ArtifactError, match=r"has format 6; this autotopk reads up to 5"):
        artifact.read(published)


def write_as(published: Path, format: int, winner: str, *lacking: str) -> None:
    """Make a file one of an older format, whose table of winners lacks some columns."""
    columns = ", ".join(name for name in formats.COLUMNS if name not in lacking)
    edit(
        published,
        "ALTER TABLE winner RENAME TO newer",
        winner,
        f"INSERT INTO winner SELECT {columns} FROM newer",
        "DROP TABLE newer",
        "DROP TABLE fitted",
        f"PRAGMA user_version = {format}",
    )


FITTED = [
    Fitted(H100.fingerprint, "topk", "strategy", "lane_merge", (1.0, 0.25)),
    Fitted(H100.fingerprint, "topk", "candidate", 'lane_merge {"lanes":8}', (3.0,)),
    Fitted(CPU.fingerprint, "windows", "regions", "000001", (1.0, 2.0, 3.0, 1.0, 0.0, 1.05, 7.0)),
]


def test_what_was_fitted_travels_beside_the_winners(path: Path) -> None:
    stranger = replace(FITTED[0], device="cuda|nobody's")
    artifact.publish(MANY, path, [*FITTED, stranger])
    found = artifact.contents(path)
    assert sorted(map(Fitted.of, found.fitted), key=repr) == sorted(FITTED, key=repr)
    assert sorted(found.winners(), key=repr) == sorted(MANY, key=repr)
    assert artifact.to_bytes(MANY, FITTED) == artifact.to_bytes(reversed(MANY), reversed(FITTED))
    assert artifact.to_bytes(MANY, FITTED) != artifact.to_bytes(MANY)


def test_the_digest_is_also_of_what_was_fitted(path: Path) -> None:
    artifact.publish(MANY, path, FITTED)
    edit(path, "UPDATE fitted SET numbers = '[2.0,0.25]' WHERE part = 'strategy'", digest=False)
    with pytest.raises(ArtifactError, match="its winners do not match its digest"):
        artifact.read(path)


def test_odd_fits_are_left_out_and_winners_stay(path: Path) -> None:
    artifact.publish(MANY, path, FITTED)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE fitted SET name = 'a' || char(10) WHERE part = 'strategy'")
        rows = [*artifact._device_rows(connection), *artifact._rows(connection), *artifact._fitted_rows(connection)]
        connection.execute("UPDATE digest SET sha256 = ?", [artifact._digest(rows)])
    found = artifact.contents(path)
    assert (len(found.winners()), found.fitted) == (len(MANY), [])
    assert (
        found.loss
        == r"what was fitted is left out, because name is 'a\n', not a printable text of up to 4100 characters"
    )
    with pytest.raises(ArtifactError, match="not a printable text"):
        artifact.read(path)


def test_format_4_knows_no_fits(published: Path) -> None:
    edit(published, "DROP TABLE fitted", "PRAGMA user_version = 4")
    assert sorted(artifact.read(published), key=repr) == sorted(MANY, key=repr)
    assert artifact.contents(published).fitted == []


def test_format_3_knows_no_routers(published: Path) -> None:
    write_as(published, 3, formats.TABLES_3["winner"], "routing")
    assert sorted(artifact.read(published), key=repr) == sorted(MANY, key=repr)


def test_routers_have_winners_of_their_own(tmp_path: Path) -> None:
    rule = "sigmoid+bias:4of8"
    both = (winner(), winner(key=replace(KEY, routing=rule)))
    artifact.publish(both, tmp_path / "winners.sqlite")
    assert {one.key.routing for one in artifact.read(tmp_path / "winners.sqlite")} == {"", rule}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [("'softmix'", "routing is .softmix., not "), ("'softmax:2of7'", "1024 experts are not in n_group=7 groups")],
)
def test_bad_rule_is_named(published: Path, rule: str, reason: str) -> None:
    edit(published, f"UPDATE winner SET routing = {rule} WHERE rows = 7")
    with pytest.raises(ArtifactError, match=reason):
        artifact.read(published)


def test_format_2_knows_no_margins(published: Path) -> None:
    write_as(published, 2, formats.TABLES_2["winner"], "margin", "routing")
    expected = [replace(one, margin=None) for one in MANY]
    assert expected != MANY
    assert sorted(artifact.read(published), key=repr) == sorted(expected, key=repr)


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
