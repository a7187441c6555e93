"""`show`, `export` and `import`: winners and measurements on their way between machines."""

import hashlib
import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autotopk.candidate import Candidate
from autotopk.device import H100
from autotopk.errors import AutotopkWarning
from autotopk.settings import database_path, user_winners_path
from autotopk.tuning_db import artifact
from autotopk.tuning_db.store import Store
from tests.cli.conftest import SMALL, Cli, process
from tests.tuning_db.examples import ATEN, CPU, measurement, winner


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The tuning database of another machine."""
    path = tmp_path / "other.sqlite"
    with Store.open(path) as store:
        store.record(
            store.begin_run(H100, ATEN, {}), [measurement(), measurement("slow", 2.0), measurement("bad", None)]
        )
        store.record(store.begin_run(CPU, ATEN, {}), [measurement(device=CPU)])
        store.derive_winners()
    return path


def test_show_lists_winners(cli: Cli, other: Path) -> None:
    told = cli("show", "--db", other, "--device", "H100").stdout
    assert H100.fingerprint in told
    assert "64x1024 k=8 float32 sorted" in told
    assert "2.00x faster" in told
    assert CPU.name not in told


def test_show_all_lists_statuses(cli: Cli, other: Path) -> None:
    found = json.loads(cli("show", "--db", other, "--all", "--device", "H100", "--json").stdout)
    assert {(one["candidate"]["strategy"], one["status"]) for one in found} == {
        ("quick", "ok"),
        ("slow", "ok"),
        ("bad", "wrong"),
    }
    assert "wrong" in cli("show", "--db", other, "--all").stdout


def test_show_without_a_database_lists_what_is_served(cli: Cli) -> None:
    assert "nothing in the winners that run time serves" in cli("show").stdout
    artifact.publish([winner()], user_winners_path())
    assert "4.00x faster" in cli("show").stdout


def test_exported_winners_are_followed_elsewhere(cli: Cli, tuned_cache: Path, tmp_path: Path) -> None:
    exported = tmp_path / "winners.sqlite"
    told = cli("export", "--winners-only", exported).stdout
    for file in (exported, tmp_path / "winners.json", tmp_path / "winners.sqlite.sha256"):
        assert f"  {file}\n" in told
        assert file.exists()
    assert f"AUTOTOPK_DB={exported}" in told
    digest = hashlib.sha256(exported.read_bytes()).hexdigest()
    assert f"{digest}  winners.sqlite\n" in (tmp_path / "winners.sqlite.sha256").read_text()

    sort = Candidate("torch_fallback", '{"chunk":0,"method":"sort"}')
    planted = [replace(one, candidate=sort) for one in artifact.read(exported)]
    artifact.publish(planted, exported)
    explain = ("explain", *SMALL, "--device", "cpu", "--json")
    deployed = process(*explain, cache=tmp_path / "empty", AUTOTOPK_DB=str(exported))
    found = json.loads(deployed.stdout)
    assert (found["step"], found["config"]["method"]) == ("exact", "sort")
    assert json.loads(process(*explain, cache=tmp_path / "empty").stdout)["step"] == "torch"


def test_export_of_what_is_served(cli: Cli, tmp_path: Path) -> None:
    artifact.publish([winner()], user_winners_path())
    cli("export", "--winners-only", tmp_path / "copy.sqlite")
    assert artifact.read(tmp_path / "copy.sqlite") == (winner(),)


def test_export_of_one_device(cli: Cli, other: Path, tmp_path: Path) -> None:
    cli("export", "--winners-only", tmp_path / "copy.sqlite", "--db", other, "--device", "H100")
    assert {one.device for one in artifact.read(tmp_path / "copy.sqlite")} == {H100}


def test_export_of_nothing(cli: Cli, tmp_path: Path) -> None:
    assert "no winners" in cli("export", "--winners-only", tmp_path / "winners.sqlite", code=2).stderr
    assert not (tmp_path / "winners.sqlite").exists()


def test_export_replaces_its_own(cli: Cli, other: Path, tmp_path: Path) -> None:
    for device in ("H100", "a CPU"):
        cli("export", "--winners-only", tmp_path / "copy.sqlite", "--db", other, "--device", device)
    assert {one.device for one in artifact.read(tmp_path / "copy.sqlite")} == {CPU}


@pytest.mark.parametrize("name", ["copy.sqlite", "copy.json", "copy.sqlite.sha256"])
@pytest.mark.parametrize(
    "content", [b"", b"mine", b"{}", b'{"format": 2, "weights": []}', b"0" * 64 + b"  copy.sqlite\n"]
)
def test_export_replaces_nothing_else(cli: Cli, other: Path, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    told = cli("export", "--winners-only", tmp_path / "copy.sqlite", "--db", other, code=2).stderr
    assert told == (
        f"error: {tmp_path / name} is no file that autotopk wrote, and is left alone: choose another name, "
        "or export with --force\n"
    )
    assert (tmp_path / name).read_bytes() == content
    assert {*tmp_path.glob("copy*")} == {tmp_path / name}


def test_export_does_not_replace_the_measurements(cli: Cli, other: Path) -> None:
    before = other.read_bytes()
    assert str(other) in cli("export", "--winners-only", other, "--db", other, code=2).stderr
    assert other.read_bytes() == before


def test_export_over_a_fifo(cli: Cli, other: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "copy.sqlite")
    assert (
        "choose another name" in cli("export", "--winners-only", tmp_path / "copy.sqlite", "--db", other, code=2).stderr
    )


def test_damaged_winners_of_the_user_are_replaced(cli: Cli, other: Path) -> None:
    user_winners_path().parent.mkdir()
    user_winners_path().write_text("damaged")
    cli("import", other)
    assert len(artifact.read(user_winners_path())) == 2


def test_import_into_another_database_leaves_what_is_served(cli: Cli, other: Path, tmp_path: Path) -> None:
    artifact.publish([winner()], user_winners_path())
    told = cli("import", other, "--db", tmp_path / "mine.sqlite").stdout
    assert artifact.read(user_winners_path()) == (winner(),)
    assert f"published to {tmp_path / 'mine.winners.sqlite'}" in told
    assert len(artifact.read(tmp_path / "mine.winners.sqlite")) == 2


def test_the_users_database_by_any_name_is_the_users(cli: Cli, other: Path, tmp_path: Path) -> None:
    cli("import", other)
    before = artifact.read(user_winners_path())
    (tmp_path / "link.sqlite").symlink_to(database_path())
    user_winners_path().unlink()
    cli("import", other, "--db", tmp_path / "link.sqlite")
    assert artifact.read(user_winners_path()) == before


MARKED = "[/red]:warning:[b]x[/]"
"""A name that must come out as it went in."""


def test_markup_in_names_is_no_markup(cli: Cli, tmp_path: Path) -> None:
    device, path = replace(CPU, name=MARKED), tmp_path / "[red]marked.sqlite"
    candidate = Candidate("torch_fallback", json.dumps({"m": MARKED}))
    artifact.publish([winner(device=device, candidate=candidate, runner_up=None)], path)
    told = cli("show", "--db", path).stdout
    assert device.fingerprint in told
    assert f"m={MARKED}" in told.split()
    assert "[red]marked" in told
    assert (
        f"  {tmp_path}/[red]copy.json\n"
        in cli("export", "--winners-only", tmp_path / "[red]copy.sqlite", "--db", path).stdout
    )
    with Store.open(tmp_path / "marked.sqlite") as store:
        bad = [measurement(device=device), measurement("bad", None, device=device, error=f"{MARKED}\x1b[2J" * 200)]
        store.record(store.begin_run(device, ATEN, {}), bad)
    told = " ".join(cli("show", "--all", "--db", tmp_path / "marked.sqlite").stdout.split())
    assert MARKED[:8] in told
    assert "\x1b" not in told
    assert len(told) < 3000


def test_one_odd_row_hides_no_other(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "odd.sqlite"
    artifact.publish([winner(), winner(device=CPU)], path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE device SET name = '\x1b[2J' WHERE type = 'cpu'")
        rows = [*artifact._device_rows(connection), *artifact._rows(connection)]
        connection.execute("UPDATE digest SET sha256 = ?", [artifact._digest(rows)])
    reason = r"1 of 2 winners are left out, the first because name is '\\x1b\[2J', not"
    with pytest.warns(AutotopkWarning, match=reason):
        assert H100.fingerprint in cli("show", "--db", path).stdout


def test_import_adds_measurements_and_publishes(cli: Cli, tuned_cache: Path, other: Path) -> None:
    before = artifact.read(user_winners_path())
    assert "4 new measurements" in cli("import", other).stdout
    published = artifact.read(user_winners_path())
    assert set(before) < set(published)
    assert {H100, CPU} <= {one.device for one in published}
    assert "0 new measurements" in cli("import", other).stdout
    assert artifact.read(user_winners_path()) == published


def test_import_of_a_winners_file_says_what_to_do(cli: Cli, tmp_path: Path, cache_dir: Path) -> None:
    artifact.publish([winner()], tmp_path / "winners.sqlite")
    told = cli("import", tmp_path / "winners.sqlite", code=2).stderr
    assert "holds winners" in told
    assert f"AUTOTOPK_DB={tmp_path / 'winners.sqlite'}" in told
    assert not cache_dir.exists()


def test_import_of_nothing_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    assert str(tmp_path / "absent") in cli("import", tmp_path / "absent", code=2).stderr
    assert not user_winners_path().exists()
