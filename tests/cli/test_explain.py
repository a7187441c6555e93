"""`autotopk explain`: what would run, here and on devices that are elsewhere."""

import json
import re
from pathlib import Path

import pytest

from autotopk.candidate import Candidate
from autotopk.compilers import nvcc
from autotopk.device import H100
from autotopk.settings import shipped_winners_path, user_winners_path
from autotopk.tuning_db import artifact
from autotopk.workloads import Workload
from tests.cli.conftest import SMALL, Cli
from tests.tuning_db.examples import winner


def test_names_strategy_step_and_device(cli: Cli) -> None:
    told = cli("explain", *SMALL, "--device", "cpu").stdout
    assert "4x256 float32 k=8 (largest, sorted) on cpu" in told
    assert "runs torch_fallback" in told
    assert "by torch" in told
    assert "not masked_argmax: " in told


def test_follows_what_was_tuned(cli: Cli, tuned_cache: Path) -> None:
    (expected,) = [w for w in json.loads(cli("show", "--json").stdout) if w["key"]["sorted"]]
    told = json.loads(cli("explain", *SMALL, "--device", "cpu", "--json").stdout)
    assert told["step"] == "exact"
    assert told["config"] == json.loads(expected["candidate"]["config"])
    assert told["ratio"] == expected["ratio"]
    assert told["current"]


def test_flags_reach_the_problem(cli: Cli) -> None:
    told = json.loads(cli("explain", *SMALL, "--device", "cpu", "--smallest", "--unsorted", "--json").stdout)
    assert not told["problem"]["largest"]
    assert not told["problem"]["sorted"]


def test_what_cannot_be_built_is_not_said_to_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    monkeypatch.setattr(nvcc, "reasons_missing", lambda: ["nvcc is not found (get it)"])
    shipped, key = shipped_winners_path(), Workload(64, 8192, 256, "float32", sorted=True).key
    assert shipped
    (won,) = (one.candidate.strategy for one in artifact.read(shipped) if one.key == key and "H200" in one.device.name)
    told = cli("explain", "--rows", "64", "--cols", "8192", "-k", "256", "--device", "H200").stdout
    assert "  runs torch_fallback" in told
    assert re.search(f"not {won} .* measured at 64x8192 k=256 .*: cannot be built here: nvcc is not found", told)
    assert told.endswith("not here: what can be built follows the compilers and the kernel cache of this machine\n")
    assert "not here" not in cli("explain", *SMALL, "--device", "cpu").stdout


def test_device_of_another_machine_by_part_of_its_name(cli: Cli) -> None:
    chunked = Candidate("torch_fallback", '{"chunk":512,"method":"chunked"}')
    artifact.publish([winner(candidate=chunked)], user_winners_path())
    arguments = ("explain", "--rows", "64", "--cols", "1024", "-k", "8", "--device", "h100")
    told = json.loads(cli(*arguments, "--json").stdout)
    assert told["device"]["fingerprint"] == H100.fingerprint
    assert (told["step"], told["config"]["method"], told["current"]) == ("exact", "chunked", False)
    assert "stale" in cli(*arguments).stdout
