"""Tables of ordinary results fit a terminal of 80 columns; every command prints JSON where it is asked."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import RenderableType

from autotopk.candidate import Candidate
from autotopk.cli import tables
from autotopk.cli.app import app
from autotopk.cli.bench import Row
from autotopk.cli.diff import Changed, Differences
from autotopk.cli.verify import Entry, Verified
from autotopk.device import H100
from autotopk.key import TuningKey
from autotopk.tuning.dry_run import DryRun, Planned, pace_s
from autotopk.tuning_db.records import Held, Progress, Specimens
from tests.cli.conftest import SMALL, Cli
from tests.cli.test_tables import printed
from tests.tuning_db.examples import measurement, winner

WIDE = Candidate("cluster_radix", '{"blocks":16,"capacity":4096,"items":32,"radix_bits":11,"threads":1024,"vector":8}')
KEY = TuningKey("bfloat16", 1048576, 151936, 2048, False)
ROUTED = replace(KEY, cols=256, k=8, routing="sigmoid+bias:4of8:raw")
BEST = [winner(), winner(key=KEY, candidate=WIDE, runner_up=WIDE), winner(key=ROUTED, time_us=123456.7)]
ENTRIES = [Entry(str(one.key), H100.fingerprint, one.candidate, True, True, None, False, "stale") for one in BEST]
CHANGES = [Changed("changed", str(one.key), H100.fingerprint, one, replace(one, ratio=0.3)) for one in BEST]
TRIED = [replace(measurement(), key=one.key, candidate=WIDE, error="of the launch: " * 9) for one in BEST]
BENCHED = Row(
    *(1, 100_000_000, 2048, "bfloat16", False, "", "split_radix", {"blocks": 132, "threads": 1024, "finish": "launch"}),
    *("exact", 1234.5, 12.3, 23456.7, 1234.5, True, (), False),
)
ENDS = [replace(one, device="cuda|NVIDIA H200|sm_90|132 SMs|140 GiB") for one in ENTRIES]
TABLES = {
    "winners": tables.winners_table(BEST, "title"),
    "measurements": tables.measurements_table(TRIED, "title"),
    "verified": tables.verified_table(Verified("path", "winners", False, {}, 0, None, None, ENTRIES)),
    "of devices": tables.verified_table(Verified("path", "winners", True, {}, 0, None, None, [*ENTRIES, *ENDS])),
    "differences": tables.differences_table(Differences(CHANGES, {})),
    "bench": tables.bench_table([BENCHED, replace(BENCHED, cols=1024, cold=True)]),
    "bench of a CPU": tables.bench_table([replace(BENCHED, gpu_us=None, torch_gpu_us=None)]),
    "dry run": next(tables.dry_run_parts(DryRun(H100.fingerprint, [Planned(str(KEY), 60, 3, 57)], 10, None))),
    "fleet": next(
        tables.fleet_tables([Progress("a campaign", H100.fingerprint, 1000, 4, 200, 0)], [], [], "tuning.sqlite")
    ),
    "claims": next(
        tables.fleet_tables([], [Held("a", H100.fingerprint, KEY, "host-17:123456:0", 3, 60.0, 17)], [], "")
    ),
    "specimens": next(tables.fleet_tables([], [], [Specimens(H100.fingerprint, 4, 90, 0.004, 0.021, KEY)], "")),
}


def plain_lines(table: RenderableType, monkeypatch: pytest.MonkeyPatch, width: int | None) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", printed(table, monkeypatch, width=width)).splitlines()


@pytest.mark.parametrize("name", TABLES)
def test_tables_fit_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = plain_lines(TABLES[name], monkeypatch, 80)
    assert max(map(len, lines)) <= 80, "\n".join(lines)
    rows = plain_lines(TABLES[name], monkeypatch, None)[3:]  # below title, headings and a rule; one line each
    told = Counter(" ".join(lines).split())
    assert rows
    assert not Counter(" ".join(rows).split()) - told, "\n".join(lines)


def test_columns_fold_pipes_too(cli: Cli, tuned_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(map(len, cli("show").stdout.splitlines()[1:])) > 80  # but for the title, which holds a path
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, cli("show").stdout.splitlines()[2:])) <= 80


def test_pace() -> None:
    assert pace_s([]) is None
    assert pace_s(["2025-01-01T00:00:00+00:00"]) is None
    moments = ("00:00:02", "00:00:00", "00:00:03", "05:00:00", "05:00:03")  # and a break of hours
    assert pace_s(f"2025-01-01T{moment}+00:00" for moment in moments) == 2.0


def test_dry_run_measures_nothing(cli: Cli, cache_dir: Path) -> None:
    found = json.loads(cli("tune", *SMALL, "--device", "cpu", "--dry-run", "--json").stdout)
    planned, _ = found["workloads"]
    assert planned["known"] == 0
    assert planned["left"] == planned["candidates"] > 1
    assert found["seconds"] is None
    assert not (cache_dir / "tuning.sqlite").exists()
    assert "nothing was measured on this device" in cli("tune", *SMALL, "--device", "cpu", "--dry-run").stdout


def test_dry_run_counts_what_is_known(cli: Cli, tuned_cache: Path) -> None:
    before = (tuned_cache / "tuning.sqlite").read_bytes()
    found = json.loads(cli("tune", *SMALL, "--device", "cpu", "--dry-run", "--json").stdout)
    planned, _ = found["workloads"]
    assert planned["known"] > 0
    assert planned["left"] == planned["candidates"] - planned["known"]
    assert found["seconds"] is not None
    assert "at the pace of those stored" in cli("tune", *SMALL, "--device", "cpu", "--dry-run").stdout
    forced = json.loads(cli("tune", *SMALL, "--device", "cpu", "--dry-run", "--force", "--json").stdout)
    assert forced["workloads"][0]["known"] == 0
    assert (tuned_cache / "tuning.sqlite").read_bytes() == before


def test_every_command_has_json() -> None:
    def without(group: Any) -> list[str]:
        commands = group.commands.values()
        missing = [one.name for one in commands if not hasattr(one, "commands") and not _has_json(one)]
        return missing + [name for one in commands if hasattr(one, "commands") for name in without(one)]

    assert without(typer.main.get_command(app)) == []


def _has_json(command: Any) -> bool:
    return any("--json" in parameter.opts for parameter in command.params)


def test_commands_print_json(cli: Cli, tuned_cache: Path, tmp_path: Path) -> None:
    told = json.loads(cli("export", tmp_path / "w.sqlite", "--winners-only", "--json").stdout)
    assert told["winners"] == 2
    assert Path(told["files"][0]) == tmp_path / "w.sqlite"
    told = json.loads(cli("import", tuned_cache / "tuning.sqlite", "--db", tmp_path / "other.sqlite", "--json").stdout)
    assert told["new_measurements"] > 0
    assert len(told["winners"]) == 2
    told = json.loads(cli("drop", *SMALL, "--device", "cpu", "--json").stdout)
    assert [one["cols"] for one in told["dropped"]] == [256] * len(told["dropped"]) != []
