"""Tables of ordinary results fit a terminal of 80 columns; every command prints JSON where it is asked."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import RenderableType

from autotopk.cli import tables
from autotopk.cli.diff import Changed, Differences
from autotopk.cli.verify import Entry, Verified
from autotopk.device import H100
from autotopk.tuning.dry_run import DryRun, Planned, pace_s
from tests.cli.conftest import SMALL, Cli
from tests.cli.test_tables import printed
from tests.tuning_db.examples import measurement, winner

BEST = winner()
ENTRY = Entry(str(BEST.key), H100.fingerprint, BEST.candidate, True, True, None, False, "stale")
TABLES = {
    "winners": tables.winners_table([BEST], "title"),
    "measurements": tables.measurements_table([measurement()], "title"),
    "verified": tables.verified_table(Verified("path", "winners", False, {}, 0, None, None, [ENTRY])),
    "differences": tables.differences_table(
        Differences([Changed("changed", str(BEST.key), H100.fingerprint, BEST, replace(BEST, ratio=0.3))], {})
    ),
    "dry run": next(tables.dry_run_parts(DryRun(H100.fingerprint, [Planned(str(BEST.key), 60, 3, 57)], 10, None))),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_fit_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table: RenderableType = TABLES[name]
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed(table, monkeypatch, width=80)).splitlines()
    assert max(map(len, lines)) <= 80, "\n".join(lines)


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


def test_commands_print_json(cli: Cli, tuned_cache: Path, tmp_path: Path) -> None:
    told = json.loads(cli("export", tmp_path / "w.sqlite", "--winners-only", "--json").stdout)
    assert told["winners"] == 2
    assert Path(told["files"][0]) == tmp_path / "w.sqlite"
    told = json.loads(cli("import", tuned_cache / "tuning.sqlite", "--db", tmp_path / "other.sqlite", "--json").stdout)
    assert told["new_measurements"] > 0
    assert len(told["winners"]) == 2
    told = json.loads(cli("drop", *SMALL, "--device", "cpu", "--json").stdout)
    assert [one["cols"] for one in told["dropped"]] == [256] * len(told["dropped"]) != []
