"""`autotopk tune`: what it measures, prints, keeps and publishes."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autotopk.device import cpu_device
from autotopk.tuning_db import artifact
from tests.cli.conftest import ROOT, SMALL, Cli, process
from tests.runtime.same import within


def test_prints_winners_and_where_they_are(tuned: tuple[Path, str]) -> None:
    cache, output = tuned
    assert "no GPU in use" in output
    for order in ("sorted", "unsorted"):
        assert re.search(rf"4x256 k=8 float32 {order} +(torch_fallback|kept torch.topk: nothing was faster)", output)
    assert re.search(r"\d\.\d\dx (faster|slower)|same|kept", output)
    assert str(cache / "winners.sqlite") in output
    assert str(cache / "tuning.sqlite") in output
    assert {winner.device for winner in artifact.read(cache / "winners.sqlite")} == {cpu_device()}


def test_goes_on_from_what_is_kept(cli: Cli, tuned_cache: Path) -> None:
    before = len(json.loads(cli("show", "--all", "--json").stdout))
    told = cli("tune", *SMALL, "--budget", "30", "--device", "cpu")
    assert "known" in told.stderr
    assert len(json.loads(cli("show", "--all", "--json").stdout)) == before


def test_who_measures_some_strategies_is_told_what_that_publishes(cli: Cli, tuned_cache: Path) -> None:
    told = cli("tune", *SMALL, "--budget", "30", "--device", "cpu", "--strategy", "torch_fallback")
    assert "no other strategy is measured: the fastest of torch_fallback and torch.topk will serve" in told.stderr


def test_report_as_json(tmp_path: Path) -> None:
    """Alone on standard output; the progress is on standard error."""
    told = process("tune", *SMALL, "--budget", "30", "--device", "cpu", "--json", cache=tmp_path)
    report = json.loads(told.stdout)
    assert report["outcome"] == "finished"
    assert [(one["workload"]["rows"], one["outcome"]) for one in report["results"]] == [(4, "tuned")] * 2
    assert report["results"][0]["winner"]["device"]["name"] == cpu_device().name
    assert report["counts"] == {"ok": sum(one["measured"]["ok"] for one in report["results"])}
    assert report["winners_path"] == str(tmp_path / "winners.sqlite")
    assert "[2/2] " in told.stderr


def test_database_may_be_elsewhere(cli: Cli, tmp_path: Path, cache_dir: Path) -> None:
    told = cli("tune", *SMALL, "--budget", "30", "--device", "cpu", "--db", tmp_path / "mine.sqlite")
    assert str(tmp_path / "mine.sqlite") in told.stdout
    assert not cache_dir.exists()
    assert len(artifact.read(tmp_path / "mine.winners.sqlite")) == 2
    assert cli("show", "--db", tmp_path / "mine.sqlite", "--json").stdout != "[]\n"


def test_misses_are_tuned(cli: Cli, tmp_path: Path) -> None:
    misses = tmp_path / "misses"
    missed = process("explain", *SMALL, "--device", "cpu", cache=tmp_path, AUTOTOPK_MISSES=str(misses))
    assert missed.returncode == 0, missed.stderr
    cli("tune", "--from-misses", misses, "--budget", "30", "--device", "cpu")
    (winner,) = json.loads(cli("show", "--json").stdout)
    assert winner["key"] == {"dtype": "float32", "rows": 4, "cols": 256, "k": 8, "sorted": True, "routing": ""}


MISS = '{"device": "a GPU", "dtype": "float32", "rows": 4, "cols": 256, "k": 8, "sorted": true}'


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"device": "a GPU"}',
        '{"device": "a GPU", "count": 1, "rows": 0}',
        MISS.replace("4", "4.0"),
        MISS.replace("true", "1"),
        MISS.replace("8", "257"),
        MISS.replace('"float32"', "[]"),
        MISS.replace('"a GPU"', "5"),
        MISS.replace("}", ', "tags": ["ci"]}'),
    ],
)
def test_what_is_no_miss_is_named(cli: Cli, tmp_path: Path, line: str) -> None:
    (tmp_path / "misses").write_text(line)
    assert f"line 1: {line!r} is no miss" in cli("tune", "--from-misses", tmp_path / "misses", code=2).stderr


@pytest.mark.parametrize(
    "line", ["x" * 1_000_000, "[" * 100_000, MISS.replace("a GPU", "\\u001b[2J" * 9000), "\x1b[2J"]
)
def test_what_is_no_miss_is_named_in_a_line(cli: Cli, tmp_path: Path, line: str) -> None:
    (tmp_path / "misses").write_text(line)
    told = cli("tune", "--from-misses", tmp_path / "misses", code=2).stderr
    assert len(told) < 1500
    assert told.strip().isprintable()


def test_misses_are_read_from_a_regular_file_alone(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "misses")
    with within(20):
        assert "not a regular file" in cli("tune", "--from-misses", tmp_path / "misses", code=2).stderr


def test_misses_of_another_device_are_not_tuned_here(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "misses").write_text(json.dumps({"device": "a GPU", "count": 1, "rows": 4, "cols": 256, "k": 8}))
    told = cli("tune", "--from-misses", tmp_path / "misses", "--device", "cpu", code=2).stderr
    assert f"no miss of {cpu_device().fingerprint}, only of: a GPU" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_keeps_what_is_measured(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "autotopk", "tune", "--tag", "ci", "--device", "cpu"]
    environment = {**os.environ, "AUTOTOPK_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tuner:
        assert tuner.stderr is not None
        for line in tuner.stderr:
            if line.startswith("[1/"):
                break
        tuner.send_signal(number)
        output, _ = tuner.communicate(timeout=60)
    assert tuner.returncode == 130, output
    assert "interrupted" in output
    assert "the same command again goes on from here" in output
    assert len(artifact.read(tmp_path / "winners.sqlite")) >= 1


def test_a_dropped_winner_is_gone_until_it_is_tuned_again(cli: Cli, tuned_cache: Path) -> None:
    shape = ("--rows", "4", "--cols", "256", "-k", "8", "--device", "cpu")
    told = cli("drop", *shape, "--order", "any")
    assert "dropped 4x256 k=8 float32 unsorted" in told.stdout
    assert [one["key"]["sorted"] for one in json.loads(cli("show", "--json").stdout)] == [True]
    assert [winner.key.sorted for winner in artifact.read(tuned_cache / "winners.sqlite")] == [True]
    assert "nothing that counts was measured" in cli("drop", *shape, "--order", "any", code=2).stderr
    assert "say whose winners" in cli("drop", code=2).stderr
    before = len(json.loads(cli("show", "--all", "--json").stdout))
    assert "tuned" in cli("tune", *shape, "--budget", "30").stderr
    assert len(json.loads(cli("show", "--all", "--json").stdout)) > before
    assert len(json.loads(cli("show", "--json").stdout)) == 2


def test_force_measures_anew(cli: Cli, tuned_cache: Path) -> None:
    before = json.loads(cli("show", "--all", "--json").stdout)
    told = cli("tune", *SMALL, "--force", "--budget", "30", "--device", "cpu")
    assert "known" not in told.stderr
    after = json.loads(cli("show", "--all", "--json").stdout)
    screened = [sum(one["stage"] == "screen" for one in all_) for all_ in (before, after)]
    assert screened[1] == 2 * screened[0]
