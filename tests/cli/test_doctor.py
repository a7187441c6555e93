"""`autotopk doctor`: what is fine, what is slow, what is broken."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from autotopk import packs, registry, settings
from autotopk.candidate import Candidate
from autotopk.cli import doctor
from autotopk.cli.doctor import Finding, Level, _version
from autotopk.compilers import nvcc
from autotopk.device import H100, cpu_device
from autotopk.runtime import self_check
from autotopk.tuning_db import artifact
from tests.cli.conftest import Cli
from tests.compilers.small_sources import KERNEL, TravellingSource, pack
from tests.packaging.test_kernels_script import Laddered
from tests.tuning_db.examples import winner


def test_fresh_installation_is_usable(cli: Cli, cache_dir: Path) -> None:
    told = cli("doctor").stdout
    assert cpu_device().fingerprint in told
    for word in (
        "torch ",
        "triton ",
        "tilelang ",
        "nvcc: ",
        "C extension",
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
    monkeypatch.setattr(registry, "_targets", lambda: {"broken_plugin": "no_such_module:strategy"})
    monkeypatch.setattr(registry, "_available", registry._available.__wrapped__)  # as if nobody had asked before
    assert "warning strategy 'broken_plugin' is left out" in cli("doctor").stdout


# Kernels that are shipped


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TravellingSource:
    """The only rung, packed for the GPU that is here."""
    found = TravellingSource(tmp_path / "log")
    monkeypatch.setattr(doctor, "devices_here", lambda: [cpu_device(), H100])
    monkeypatch.setattr(registry, "built_in", lambda: [Laddered(found)])
    monkeypatch.setenv("AUTOTOPK_PACKS", str(pack(tmp_path / "packs", [found])))
    return found


def told_of_kernels(cli: Cli) -> tuple[str, str]:
    [told] = [one for one in json.loads(cli("doctor", "--json").stdout) if one["section"] == "kernels"]
    return told["level"], told["text"]


def test_kernels_that_nobody_has_checked(cli: Cli, source: TravellingSource, tmp_path: Path) -> None:
    level, text = told_of_kernels(cli)
    assert level == "warning"
    assert text.startswith(
        f"{tmp_path / 'packs' / 'sm_90.pack'}: 1 kernel for {H100.name}; unchecked ones are not used: "
    )
    assert text.endswith("`autotopk doctor --check` tries them")


@pytest.mark.parametrize(
    ("failed", "level", "end"),
    [
        ({}, "ok", f"checked on {H100.fingerprint}"),
        ({KERNEL.code: "4x9 is wrong"}, "warning", "; 1 is not used here: 4x9 is wrong"),
        ({"of another pack": "4x9 is wrong"}, "ok", f"checked on {H100.fingerprint}"),
    ],
)
def test_kernels_that_were_checked(
    cli: Cli, source: TravellingSource, failed: dict[str, str], level: str, end: str
) -> None:
    shipped = packs.here()
    assert shipped is not None
    shipped.keep_check(90, packs.Check(H100.fingerprint, frozenset({KERNEL.code}) - {*failed}, failed))
    found, text = told_of_kernels(cli)
    assert (found, text[-len(end) :]) == (level, end)


def test_kernels_of_edited_files(cli: Cli, source: TravellingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = packs.here()
    assert shipped is not None
    shipped.keep_check(90, packs.Check(H100.fingerprint, frozenset({KERNEL.code})))
    monkeypatch.setattr(registry, "built_in", lambda: [Laddered(replace(source, device="edited"))])
    level, text = told_of_kernels(cli)
    assert level == "warning"
    assert text.endswith("; 1 of other device files than those here is not used: `make kernels`")


def test_kernels_for_other_gpus_and_none(cli: Cli, source: TravellingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "devices_here", lambda: [cpu_device(), replace(H100, name="V100", capability=(7, 0))])
    assert told_of_kernels(cli) == ("note", "none are shipped for V100 (sm_70)")
    monkeypatch.setenv("AUTOTOPK_PACKS", "0")
    assert told_of_kernels(cli) == ("note", "off (AUTOTOPK_PACKS=0)")


def test_check_tries_them_on_every_kind_of_gpu(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    gpus = [H100, replace(H100, capability=(8, 9)), H100]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(doctor, "device_of", lambda place: gpus[place.index])
    monkeypatch.setattr(doctor, "devices_here", lambda: [cpu_device()])
    monkeypatch.setattr(self_check, "run", lambda index, on_progress: asked.append(index))
    cli("doctor", "--check")
    assert len(asked) == 2
    assert {gpus[index].arch for index in asked} == {90, 89}
