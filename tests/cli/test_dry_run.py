"""What `autotopk tune --dry-run` expects, beside what the tuner then does."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autotopk.tuning.forecast import PAUSE_S, forecast, pace
from autotopk.tuning_db.records import Measurement
from autotopk.workloads import Workload
from tests.cli.conftest import SMALL, Cli, process
from tests.tuning_db.examples import measurement

CPU = torch.device("cpu")
WORKLOAD = Workload(4, 256, 8)


def measured(offsets: list[float]) -> list[Measurement]:
    start = datetime(2025, 1, 1, tzinfo=UTC)
    one = replace(measurement(), stage="screen")
    return [replace(one, measured_at=(start + timedelta(seconds=at)).isoformat()) for at in offsets]


def test_pace_leaves_pauses_out_and_counts_races() -> None:
    turns = measured([0.0, 2.0, 4.0, 4.0 + 10 * PAUSE_S])
    assert pace(turns) == pytest.approx(4.0 / 4)
    turns[2] = replace(turns[2], stage="race")
    assert pace(turns) == pytest.approx(4.0 / 3)


@pytest.mark.parametrize("offsets", [[], [0.0], [0.0, 2 * PAUSE_S]])
def test_pace_of_too_little_is_unknown(offsets: list[float]) -> None:
    assert pace(measured(offsets)) is None


@given(st.lists(st.integers(0, 40), min_size=2, max_size=20), st.randoms())
def test_pace_is_that_of_any_order(steps: list[int], random: Random) -> None:
    turns = measured([float(sum(steps[:at])) for at in range(len(steps))])
    expected = sum(steps[: len(steps) - 1]) / len(steps)
    random.shuffle(turns)
    assert pace(turns) == pytest.approx(expected)


def test_without_a_database_everything_is_to_be_measured(tmp_path: Path) -> None:
    found = forecast([WORKLOAD, WORKLOAD], tmp_path / "none.sqlite", CPU)
    (one,) = found.workloads
    assert (one.known, one.seconds, found.pace_s, found.seconds) == (0, None, None, None)
    assert one.to_measure == one.candidates > 1
    assert not (tmp_path / "none.sqlite").exists()


def test_what_was_tuned_is_known_unless_forced(cli: Cli, tuned_cache: Path) -> None:
    before = (tuned_cache / "tuning.sqlite").read_bytes()
    found = json.loads(cli("tune", *SMALL, "--device", "cpu", "--dry-run", "--json").stdout)
    assert [one["to_measure"] for one in found["workloads"]] == [0, 0]
    assert found["seconds"] == 0
    forced = json.loads(cli("tune", *SMALL, "--device", "cpu", "--dry-run", "--force", "--json").stdout)
    for one in forced["workloads"]:
        assert one["to_measure"] == one["candidates"]
        assert one["seconds"] == pytest.approx(one["candidates"] * forced["pace_s"])
    assert (tuned_cache / "tuning.sqlite").read_bytes() == before


def test_as_many_are_measured_as_expected(tmp_path: Path) -> None:
    told = process("tune", *SMALL, "--device", "cpu", "--dry-run", "--json", cache=tmp_path)
    expected = [one["to_measure"] for one in json.loads(told.stdout)["workloads"]]
    assert not (tmp_path / "tuning.sqlite").exists()
    told = process("tune", *SMALL, "--device", "cpu", "--budget", "60", "--json", cache=tmp_path)
    assert json.loads(told.stdout)["outcome"] == "finished"
    stored = process("show", "--all", "--json", cache=tmp_path)
    screened = [one for one in json.loads(stored.stdout) if one["stage"] == "screen"]
    for order, count in zip((True, False), expected, strict=True):
        taken = {one["candidate"]["config"] for one in screened if one["key"]["sorted"] == order}
        assert len(taken) == count


def test_printed_as_a_table(cli: Cli, tuned_cache: Path) -> None:
    told = cli("tune", *SMALL, "--device", "cpu", "--dry-run").stdout
    assert "4x256 k=8 float32 unsorted" in told
    assert "at most 0 candidates to measure, about 0.0 s" in told
