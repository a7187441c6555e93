"""`export`, `verify` and `diff`: what comes into a bundle, whether it would be served, and what differs."""

import json
import os
import random
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from autotopk import registry
from autotopk.candidate import Candidate
from autotopk.device import H100, Device
from autotopk.fitted import Fitted
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.tuning_db import artifact
from autotopk.tuning_db.bundle import Bundle, kernel_name
from autotopk.tuning_db.records import Winner
from tests.cli.conftest import Cli, process
from tests.registered import registered
from tests.runtime.winners import winner as cpu_winner
from tests.tuning_db.bundles import Small, cubin, flip_bit, keys, parts, sealed
from tests.tuning_db.examples import winner

A100 = Device("cuda", "NVIDIA A100-SXM4-80GB", (8, 0), 108, 40 << 20, 79, 163 << 10)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    with registered(Small(tmp_path / "log")) as strategy:
        yield strategy


@pytest.fixture
def tuned(small: Small, tmp_path: Path) -> Path:
    """A winners file of two winners with one kernel, and one with another; both are in the cache."""
    for knob in (1, 2):
        small.source(knob).load(90)
    return published(tmp_path / "tuned.sqlite", small.winner(1), small.winner(1, rows=65), small.winner(2, rows=66))


def published(path: Path, *winners: Winner) -> Path:
    artifact.publish(winners, path)
    return path


# Export --------------------------------------------------------------------------------------------------------------


def test_a_bundle_has_the_winners_and_their_kernels(cli: Cli, small: Small, tuned: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.bundle"
    before = small.source(1).compilations
    told = cli("export", path, "--db", tuned).stdout
    assert told.splitlines() == [
        f"3 winners and 2 kernels, unsigned, from {tuned}:",
        f"  {path}",
        f"deploy: copy b.bundle and set AUTOTOPK_DB={path}",
    ]
    assert small.source(1).compilations == before
    assert [*tmp_path.glob("b.*")] == [path]
    assert artifact.read(path) == artifact.read(tuned)
    opened = Bundle.read(path)
    assert opened.kernels == {kernel_name(small.source(knob), 90): small.source(knob).made(90).code for knob in (1, 2)}
    assert {*opened.manifest["compilers"]} == {"nvcc", "tilelang", "triton"}
    assert opened.manifest["devices"] == [H100.fingerprint]
    assert len(opened.workloads()) == 3
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_same_winners_make_the_same_file(cli: Cli, tuned: Path, tmp_path: Path) -> None:
    """Also from a bundle, whose kernels need no compiler."""
    cli("export", tmp_path / "one", "--db", tuned)
    cli("export", tmp_path / "other", "--db", tuned)
    cli("export", tmp_path / "copy", "--db", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes() == (tmp_path / "copy").read_bytes()


def test_kernels_of_a_bundle_are_not_compiled_again(
    cli: Cli, small: Small, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("export", tmp_path / "one", "--db", tuned)
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(tmp_path / "bare"))
    before = small.source(1).compilations
    cli("export", tmp_path / "copy", "--db", tmp_path / "one")
    assert small.source(1).compilations == before


def test_a_missing_kernel_is_compiled(cli: Cli, small: Small, tmp_path: Path) -> None:
    cli("export", tmp_path / "b", "--db", published(tmp_path / "w.sqlite", small.winner(3)))
    assert small.source(3).compilations == 1
    assert small.source(3).is_cached(90)


@pytest.mark.slow
def test_missing_kernels_are_compiled_side_by_side(
    cli: Cli, small: Small, tuned: Path, tmp_path: Path, cache_dir: Path
) -> None:
    shutil.rmtree(cache_dir)
    cli("export", tmp_path / "b", "--db", tuned)
    assert small.source(1).compilations == 4
    assert len(Bundle.read(tmp_path / "b").kernels) == 2


def test_kernels_of_other_architectures(cli: Cli, small: Small, tmp_path: Path) -> None:
    for arch in (80, 90):
        small.source(1).load(arch)
    winners = published(tmp_path / "w.sqlite", small.winner(1), small.winner(1, device=A100))
    cli("export", tmp_path / "own", "--db", winners)
    cli("export", tmp_path / "one", "--db", winners, "--arch", "80")
    cli("export", tmp_path / "both", "--db", winners, "--arch", "80,90", "--device", "H100")
    found = {name: sorted(one[:5] for one in Bundle.read(tmp_path / name).kernels) for name in ("own", "one", "both")}
    assert found == {"own": ["sm_80", "sm_90"], "one": ["sm_80"], "both": ["sm_80", "sm_90"]}


def test_kernels_that_do_not_compile(cli: Cli, small: Small, tmp_path: Path) -> None:
    small.source(1).load(90)
    unknown = winner(candidate=Candidate("gone", "{}"), key=replace(winner().key, rows=7))
    winners = published(tmp_path / "w.sqlite", small.winner(1), small.winner(9, rows=65), unknown)
    told = cli("export", tmp_path / "b", "--db", winners, code=2).stderr
    assert "2 kernels of these winners missing, the first: gone {} at 7x1024 k=8 float32 sorted for sm_90: " in told
    assert "--partial leaves them out" in told
    assert not (tmp_path / "b").exists()
    result = cli("export", tmp_path / "b", "--db", winners, "--partial")
    assert 'left out: small {"knob":9} at 65x1024 k=8 float32 sorted for sm_90: no compiler takes it' in result.stderr
    assert "3 winners and 1 kernel, " in result.stdout
    cli("verify", tmp_path / "b", code=1)


def test_winners_only(cli: Cli, tuned: Path, tmp_path: Path) -> None:
    told = cli("export", tmp_path / "w.sqlite", "--db", tuned, "--winners-only").stdout
    assert [line.strip() for line in told.splitlines()[1:4]] == [
        str(tmp_path / name) for name in ("w.sqlite", "w.json", "w.sqlite.sha256")
    ]
    assert (tmp_path / "w.sqlite").read_bytes()[:6] == b"SQLite"
    for option in (["--partial"], ["--arch", "90"], ["--sign", "key.pem"]):
        assert "--winners-only goes with none of" in cli("export", "x", "--winners-only", *option, code=2).stderr


@pytest.mark.parametrize("arch", ["9", "9.0", "sm_90", "1000", ""])
def test_odd_architectures(cli: Cli, arch: str) -> None:
    assert cli("export", "x", "--arch", arch, code=2).stderr.startswith("error: --arch ")


FOREIGN = [b"", b"mine", b"autotopk", b"PK\x03\x04", b"SQLite format 3\0" + bytes(84)]


@pytest.mark.parametrize("content", FOREIGN)
@pytest.mark.parametrize("kind", ["bundle", "winners"])
def test_export_replaces_nothing_foreign(cli: Cli, tmp_path: Path, kind: str, content: bytes) -> None:
    winners = published(tmp_path / "w.sqlite", cpu_winner(4, 256, 8))
    path, only = tmp_path / "copy.file", ["--winners-only"] if kind == "winners" else []
    path.write_bytes(content)
    told = cli("export", path, "--db", winners, *only, code=2).stderr
    assert f"{path} is no {'bundle' if kind == 'bundle' else 'file'} that autotopk wrote, and is left alone" in told
    assert path.read_bytes() == content
    cli("export", path, "--db", winners, "--force", *only)
    assert artifact.read(path) == artifact.read(winners)
    cli("export", path, "--db", winners, *only)  # its own


def test_export_replaces_its_own_kind_alone(cli: Cli, tmp_path: Path) -> None:
    winners = published(tmp_path / "w.sqlite", cpu_winner(4, 256, 8))
    cli("export", tmp_path / "b", "--db", winners)
    for path, only in ((winners, []), (tmp_path / "b", ["--winners-only"])):
        before = path.read_bytes()
        assert "is left alone" in cli("export", path, "--db", winners, *only, code=2).stderr
        assert path.read_bytes() == before
    (tmp_path / "b").write_bytes((tmp_path / "b").read_bytes()[:100])  # damaged, but a bundle
    cli("export", tmp_path / "b", "--db", winners)
    os.mkfifo(tmp_path / "fifo")
    assert "is left alone" in cli("export", tmp_path / "fifo", "--db", winners, code=2).stderr
    assert "no bundle can be written" in cli("export", tmp_path, "--db", winners, "--force", code=2).stderr


def test_export_of_nothing(cli: Cli, tmp_path: Path) -> None:
    assert "no winners" in cli("export", tmp_path / "b", code=2).stderr
    assert not (tmp_path / "b").exists()


def test_help_says_what_a_bundle_is(cli: Cli) -> None:
    told = " ".join(cli("export", "--help").stdout.split())
    for words in ("--winners-only", "--arch LIST", "--sign KEY.pem", "--partial", "--force", "manifest of digests"):
        assert words in told
    assert "Exit code 0" in " ".join(cli("verify", "--help").stdout.split())


def test_import_of_a_bundle_says_what_to_do(cli: Cli, tuned: Path, tmp_path: Path) -> None:
    cli("export", tmp_path / "b", "--db", tuned)
    assert f"AUTOTOPK_DB={tmp_path / 'b'}" in cli("import", tmp_path / "b", code=2).stderr
    assert "64x1024" in cli("show", "--db", tmp_path / "b").stdout


# Verify --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bundled(cli: Cli, tuned: Path, tmp_path: Path) -> Path:
    cli("export", tmp_path / "good.bundle", "--db", tuned)
    return tmp_path / "good.bundle"


def entries(cli: Cli, *arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    found = json.loads(cli("verify", *arguments, "--json", code=code).stdout)["winners"]
    assert isinstance(found, list)
    return found


def test_verify_of_a_good_bundle(cli: Cli, bundled: Path) -> None:
    told = cli("verify", bundled).stdout
    assert "3 of 3 winners served as measured; 2 kernels, unsigned" in told
    [one, *_] = entries(cli, bundled)
    assert one == {
        "workload": "64x1024 k=8 float32 sorted",
        "device": H100.fingerprint,
        "candidate": {"strategy": "small", "config": '{"knob":1}'},
        "resolves": True,
        "loads": True,
        "fits": None,
        "current": True,
        "reason": "",
    }


def test_verify_is_of_the_bundle_not_of_the_cache(cli: Cli, small: Small, bundled: Path) -> None:
    manifest, members = parts(bundled.read_bytes())
    name = kernel_name(small.source(2), 90)
    del members[name], manifest["members"][name]
    bundled.write_bytes(sealed(manifest, members))
    assert small.source(2).is_cached(90)
    found = entries(cli, bundled, code=1)
    assert [(one["loads"], one["reason"]) for one in found[2:]] == [(False, f"kernel {name} is not in the bundle")]
    assert [one["loads"] for one in found[:2]] == [True, True]
    assert "NO" in cli("verify", bundled, code=1).stdout


def test_verify_says_what_is_not_served(cli: Cli, small: Small, tmp_path: Path) -> None:
    one = small.winner(1)
    stale = replace(small.winner(1, rows=2), identity=winner().identity)
    gone = replace(small.winner(1, rows=3), candidate=Candidate("gone", "{}"))
    odd = replace(small.winner(1, rows=4), candidate=Candidate("small", '{"knob":77}'))
    none = replace(small.winner(1, rows=5), candidate=Candidate("small", '{"other":1}'))
    small.source(1).load(90)
    cli("export", tmp_path / "b", "--partial", "--db", published(tmp_path / "w.sqlite", one, stale, gone, odd, none))
    found = {row["workload"].split("x")[0]: row for row in entries(cli, tmp_path / "b", code=1)}
    told = {rows: (row["resolves"], row["loads"], row["current"]) for rows, row in found.items()}
    assert told == {
        "64": (True, True, True),
        "2": (True, True, False),
        "3": (False, None, None),
        "4": (False, None, None),
        "5": (False, None, None),
    }
    reasons = [found[rows]["reason"] for rows in ("2", "3", "4", "5")]
    for reason, word in zip(reasons, ("stale", "gone", "does not fit", "no configuration"), strict=True):
        assert word in reason


def test_verify_of_kernels_for_another_architecture(cli: Cli, small: Small, bundled: Path, tmp_path: Path) -> None:
    manifest, members = parts(bundled.read_bytes())
    name = kernel_name(small.source(2), 90)
    made = replace(small.source(2).made(90), cubin=cubin(80))
    members[name] = zlib.compress(made.to_bytes(name))
    bundled.write_bytes(sealed(manifest, members))
    [reason] = [one["reason"] for one in entries(cli, bundled, code=1) if not one["loads"]]
    assert reason == f"kernel {name} is for sm_80"


def test_verify_of_a_file_that_others_can_write(cli: Cli, bundled: Path) -> None:
    bundled.chmod(0o666)
    found = entries(cli, bundled, code=1)
    assert {one["reason"] for one in found} == {
        f"its kernels are not loaded: others can write to {bundled}: `chmod -R go-w {bundled}`"
    }


def test_verify_of_damaged_files(cli: Cli, bundled: Path, tmp_path: Path) -> None:
    content = bundled.read_bytes()
    for seed in range(20):
        bundled.write_bytes(flip_bit(content, random.Random(seed)))
        assert cli("verify", bundled, code=2).stderr.startswith("error: ")
    assert "absent" in cli("verify", tmp_path / "absent", code=2).stderr
    assert cli("verify", tmp_path, code=2).stderr.startswith("error: ")


def test_verify_of_a_winners_file(cli: Cli, small: Small, tuned: Path, cache_dir: Path) -> None:
    assert len(entries(cli, tuned)) == 3
    shutil.rmtree(cache_dir)
    assert [one["reason"].partition(" ")[0] for one in entries(cli, tuned, code=1)] == ["kernel"] * 3


def test_verify_on_the_device_here(cli: Cli, bundled: Path, tmp_path: Path) -> None:
    mine = published(tmp_path / "w.sqlite", cpu_winner(4, 256, 8), winner())
    found = entries(cli, published(tmp_path / "mine.sqlite", cpu_winner(4, 256, 8)), "--device")
    assert [one["fits"] for one in found] == [True]
    assert {one["fits"] for one in entries(cli, mine, "--device", code=1)} == {True, None}


def test_verify_where_nothing_is_for_the_device_here(cli: Cli, bundled: Path) -> None:
    if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0):
        pytest.skip("the bundle is for this GPU")
    assert "none is for " in cli("verify", bundled, "--device", code=1).stdout


def test_signed_bundles(cli: Cli, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (private, public), (_, other) = keys(tmp_path / "ours"), keys(tmp_path / "theirs")
    assert ", signed, " in cli("export", tmp_path / "b", "--db", tuned, "--sign", private).stdout
    assert "2 kernels, signed" in cli("verify", tmp_path / "b", "--key", public).stdout
    assert "signature is not by the key" in cli("verify", tmp_path / "b", "--key", other, code=2).stderr
    monkeypatch.setenv("AUTOTOPK_DB_KEY", str(other))
    assert "signature is not by the key" in cli("verify", tmp_path / "b", code=2).stderr
    cli("verify", tmp_path / "b", "--key", public)
    assert "bears no" not in cli("export", tmp_path / "b", "--db", tuned).stdout
    assert "it is not signed" in cli("verify", tmp_path / "b", "--key", public, code=2).stderr
    assert "key " in cli("export", tmp_path / "c", "--db", tuned, "--sign", public, code=2).stderr


# Diff ----------------------------------------------------------------------------------------------------------------


def test_diff_of_the_same(cli: Cli, bundled: Path, tuned: Path) -> None:
    assert cli("diff", bundled, bundled).stdout == "the same winners and kernels\n"
    assert cli("diff", bundled, tuned).stdout == "the same winners and kernels\n"  # which has no kernels to compare
    assert json.loads(cli("diff", bundled, tuned, "--json").stdout) == {
        "winners": [],
        "kernels": {},
        "predictions": False,
    }


def test_what_was_fitted_travels_in_a_bundle(
    cli: Cli, small: Small, bundled: Path, tuned: Path, tmp_path: Path
) -> None:
    fitted = [Fitted(small.winner(1).device.fingerprint, "topk", "strategy", "small", (1.0, 2.0, 1e30, 1e30))]
    artifact.publish(artifact.read(tuned), tuned, fitted)
    cli("export", tmp_path / "new", "--db", tuned)
    cli("export", tmp_path / "again.sqlite", "--db", tmp_path / "new", "--winners-only")
    for path in (tmp_path / "new", tmp_path / "again.sqlite"):
        assert [Fitted.of(row) for row in artifact.contents(path).fitted] == fitted
    assert cli("diff", bundled, tmp_path / "new", code=1).stdout.splitlines() == [
        "winners: the same",
        "kernels: the same",
        "predictions: changed",
    ]


def test_diff(cli: Cli, small: Small, bundled: Path, tmp_path: Path) -> None:
    small.source(3).load(90)
    slower = replace(small.winner(1, rows=65), ratio=0.9)
    cli(
        "export",
        tmp_path / "new",
        "--db",
        published(tmp_path / "w.sqlite", small.winner(3), slower, small.winner(1, rows=1)),
    )
    told = cli("diff", bundled, tmp_path / "new", code=1).stdout
    assert "winners: 1 added, 1 removed, 2 changed" in told
    assert "kernels: 1 added, 1 removed" in told
    found = json.loads(cli("diff", bundled, tmp_path / "new", "--json", code=1).stdout)
    assert [(one["workload"].split("x")[0], one["change"]) for one in found["winners"]] == [
        ("1", "added"),
        ("64", "changed"),
        ("65", "changed"),
        ("66", "removed"),
    ]
    changed = found["winners"][2]
    assert (changed["old"]["ratio"], changed["new"]["ratio"]) == (0.25, 0.9)
    assert found["kernels"] == {
        kernel_name(small.source(3), 90): "added",
        kernel_name(small.source(2), 90): "removed",
    }


def test_diff_of_kernels_alone(cli: Cli, small: Small, bundled: Path, tmp_path: Path) -> None:
    manifest, members = parts(bundled.read_bytes())
    name = kernel_name(small.source(2), 90)
    manifest["members"][name][2] = "0" * 32
    (tmp_path / "other").write_bytes(sealed(manifest, members))
    assert json.loads(cli("diff", bundled, tmp_path / "other", "--json", code=1).stdout)["kernels"] == {name: "changed"}


def test_diff_of_what_cannot_be_read(cli: Cli, bundled: Path, tmp_path: Path) -> None:
    assert "absent" in cli("diff", bundled, tmp_path / "absent", code=2).stderr
    (tmp_path / "other").write_bytes(bundled.read_bytes()[:-1])
    assert "does not match its digest" in cli("diff", tmp_path / "other", bundled, code=2).stderr


# Kernels as they are -------------------------------------------------------------------------------------------------


@pytest.mark.compile
def test_a_real_kernel_on_a_machine_without_a_cache(cli: Cli, tmp_path: Path) -> None:
    strategy, problem = registry.get("lane_merge"), Problem.contiguous(64, 128, 8)
    config = strategy.heuristic(problem, H100)
    program = strategy.program(config, problem, H100)
    candidate, identity = strategy.candidate(config), program.identity(problem, 90)
    one = winner(key=TuningKey.of(problem), candidate=candidate, identity=identity, runner_up=None)
    path = tmp_path / "real.bundle"
    cli("export", path, "--db", published(tmp_path / "w.sqlite", one))
    verified = process("verify", path, cache=tmp_path / "bare")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert not (tmp_path / "bare").exists()
