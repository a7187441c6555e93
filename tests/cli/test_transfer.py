"""`show`, `export` and `import`: winners and measurements on their way between machines."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotopk.candidate import Candidate
from autotopk.device import H100
from autotopk.settings import user_winners_path
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
    told = cli("export", exported).stdout
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
    cli("export", tmp_path / "copy.sqlite")
    assert artifact.read(tmp_path / "copy.sqlite") == (winner(),)


def test_export_of_one_device(cli: Cli, other: Path, tmp_path: Path) -> None:
    cli("export", tmp_path / "copy.sqlite", "--db", other, "--device", "H100")
    assert {one.device for one in artifact.read(tmp_path / "copy.sqlite")} == {H100}


def test_export_of_nothing(cli: Cli, tmp_path: Path) -> None:
    assert "no winners" in cli("export", tmp_path / "winners.sqlite", code=2).stderr
    assert not (tmp_path / "winners.sqlite").exists()


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
