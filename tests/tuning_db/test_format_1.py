"""Winners files of version 0.1 are read, and held to the same checks."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autotopk.candidate import Candidate
from autotopk.device import H100, Device
from autotopk.errors import ArtifactError
from autotopk.tuning_db import artifact, formats
from tests.tuning_db.examples import SCHEMA_1


@pytest.fixture
def format_1(path: Path) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript((SCHEMA_1 / "winners.sql").read_text())
    return path


def test_format_1_is_read(format_1: Path) -> None:
    with closing(sqlite3.connect(format_1)) as connection:
        rows = connection.execute(f"SELECT * FROM winner ORDER BY {formats.KEY_3}").fetchall()
    found = artifact.read(format_1)
    assert len(found) == len(rows) == 5
    for one, row in zip(found, rows, strict=True):
        device, dtype, rows_, cols, k, order, strategy, config, version, *rest = row
        time_us, baseline_us, ratio, baseline, measured_at, runner_up, gap, slowdown = rest
        assert (one.device.fingerprint, one.key.dtype, one.key.sorted) == (device, dtype, order)
        assert (one.key.rows, one.key.cols, one.key.k) == (rows_, cols, k)
        assert (one.candidate, one.identity.code) == (Candidate(strategy, config), f"version {version}")
        assert (one.time_us, one.baseline_us, one.ratio, one.baseline) == (time_us, baseline_us, ratio, baseline)
        assert (one.measured_at, one.gap, one.adversarial_slowdown) == (measured_at, gap, slowdown)
        assert (one.runner_up and str(one.runner_up)) == runner_up
    assert {one.device for one in found} == {H100, Device("cpu", "a CPU", processors=4)}


@pytest.mark.parametrize(
    ("column", "value"),
    [("device", "'some GPU'"), ("config", "'['"), ("version", "NULL"), ("runner_up", "'a b'"), ("worst_ratio", "0")],
)
def test_bad_value_in_format_1_is_named(format_1: Path, column: str, value: str) -> None:
    with closing(sqlite3.connect(format_1, isolation_level=None)) as connection:
        connection.execute(f"UPDATE winner SET {column} = {value} WHERE device LIKE 'cuda%'")
        connection.execute(
            "UPDATE digest SET sha256 = ?", [artifact._digest(artifact._rows(connection, formats.KEY_3))]
        )
    with pytest.raises(ArtifactError, match=rf"{column} is .*, not "):
        artifact.read(format_1)


def test_format_1_becomes_format_2_when_published_again(format_1: Path) -> None:
    before = artifact.read(format_1)
    artifact.publish(before, format_1)
    assert artifact.read(format_1) == before
    with closing(sqlite3.connect(format_1)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (formats.FORMAT,)
