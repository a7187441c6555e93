"""`autotopk doctor`: what is fine, what is slow, what is broken."""

import json
from pathlib import Path

import pytest

from autotopk import settings
from autotopk.candidate import Candidate
from autotopk.cli.doctor import Finding, Level, _version
from autotopk.compilers import nvcc
from autotopk.device import cpu_device
from autotopk.tuning_db import artifact
from tests.cli.conftest import Cli
from tests.tuning_db.examples import winner


def test_fresh_installation_is_usable(cli: Cli, cache_dir: Path) -> None:
    told = cli("doctor").stdout
    assert cpu_device().fingerprint in told
    for word in (
        "torch ",
        "triton ",
        "tilelang ",
        "nvcc: ",
        "C launcher",
        "AUTOTOPK_DB: not set",
        "no tuning database",
    ):
        assert word in told
    assert "torch_fallback on " in told
    assert not cache_dir.exists()


def test_counts_winners_and_measurements(cli: Cli, tuned_cache: Path) -> None:
    told = cli("doctor").stdout
    assert f"user cache: {tuned_cache / 'winners.sqlite'}: 2 winners, 2 for the devices here\n" in told
    assert f"tuning database {tuned_cache / 'tuning.sqlite'}: " in told


def test_winners_of_other_devices_alone_are_a_note(cli: Cli) -> None:
    artifact.publish([winner()], settings.user_winners_path())
    findings = json.loads(cli("doctor", "--json").stdout)
    [told] = [one for one in findings if one["text"].startswith("user cache: ")]
    assert told["level"] == "note"
    assert told["text"].endswith(": 1 winner, none for the devices here")


@pytest.mark.parametrize(
    ("name", "version", "level", "text"),
    [
        ("torch", "2.15.0+cu130", "note", "torch 2.15.0+cu130 is newer than the newest tested, 2.13"),
        ("torch", "3.0a1", "note", "torch 3.0a1 is newer than the newest tested, 2.13"),
        ("torch", "2.13.4", "ok", "torch 2.13.4"),
        ("torch", "2.9.1", "warning", "torch 2.9.1 is older than the oldest supported, 2.10"),
        ("triton", "3.6.0", "ok", "triton 3.6.0"),
        ("triton", "3.9.0", "note", "triton 3.9.0 is newer than the newest tested, 3.7"),
        ("tilelang", "0.1.16", "note", "tilelang 0.1.16 is newer than the newest tested, 0.1.15"),
        ("tilelang", "absent", "note", "tilelang is not installed"),
    ],
)
def test_versions_against_those_tested(name: str, version: str, level: Level, text: str) -> None:
    assert _version(name, version) == Finding("software", level, text)


def test_what_is_missing_is_said_with_the_command_that_brings_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "find", lambda: None)
    told = cli("doctor").stdout
    assert f"TileLang kernels cannot be compiled here: nvcc is not found ({nvcc.INSTALL}" in told


def test_stale_winners(cli: Cli) -> None:
    sort = Candidate("torch_fallback", '{"chunk":0,"method":"sort"}')
    here = winner(device=cpu_device(), candidate=sort)
    artifact.publish([here], settings.user_winners_path())
    assert "1 stale (torch_fallback compiles to other code since)" in cli("doctor").stdout


def test_winners_of_an_unknown_strategy(cli: Cli) -> None:
    artifact.publish([winner(device=cpu_device(), candidate=Candidate("gone", "{}"))], settings.user_winners_path())
    assert "1 not served (gone, or its configuration, is unknown here)" in cli("doctor").stdout


@pytest.mark.parametrize("content", [None, b"", b"not a database", b"SQLite format 3\0" + b"\xff" * 4096])
def test_unreadable_deployment_is_broken(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    deployed = tmp_path / "deployed.sqlite"
    if content is not None:
        deployed.write_bytes(content)
    monkeypatch.setenv("AUTOTOPK_DB", str(deployed))
    told = cli("doctor", code=1).stdout
    assert f"broken  AUTOTOPK_DB: {deployed}" in told


@pytest.mark.parametrize("name", ["winners.sqlite", "tuning.sqlite"])
def test_damaged_files_of_the_user_are_broken(cli: Cli, cache_dir: Path, name: str) -> None:
    cache_dir.mkdir()
    (cache_dir / name).write_bytes(b"not a database")
    assert str(cache_dir / name) in cli("doctor", code=1).stdout


def test_kernels_that_others_can_write(cli: Cli) -> None:
    folder = settings.kernel_dir()
    folder.mkdir(0o700, parents=True)
    assert "not loaded" not in cli("doctor").stdout
    folder.chmod(0o777)
    told = cli("doctor").stdout
    assert f"warning compiled kernels are not loaded: others can write to {folder}: `chmod -R go-w {folder}`" in told


def test_plugin_that_does_not_import(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotopk import registry

    monkeypatch.setattr(registry, "_targets", lambda: {"broken_plugin": "no_such_module:strategy"})
    assert "warning strategy 'broken_plugin' is left out" in cli("doctor").stdout
