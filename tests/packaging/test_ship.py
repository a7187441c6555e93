"""Winners that are shipped are what is fastest by all that is on record."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotopk import settings
from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.device import H100, cpu_device
from autotopk.fitted import Fitted, model_of
from autotopk.runtime import misses
from autotopk.tuning_db import artifact
from autotopk.workloads import Workload
from scripts.predictions import tuned
from scripts.ship import beaten
from tests.runtime.winners import winner

FAST, OTHER = Candidate("block_radix", "{}"), Candidate("whole_rows", "{}")


def test_winners_give_way_to_what_the_record_has_a_shorter_time_of() -> None:
    """By 3 %, at the same problem of the same device."""
    held = [winner(rows, 300, 3, candidate=FAST) for rows in (1, 2, 3, 4, 5)]
    lost, near, first, unknown, elsewhere = (one.key for one in held)
    times = {
        lost: {FAST: 10.0, OTHER: 9.6, TORCH_TOPK: 50.0},
        near: {FAST: 10.0, OTHER: 9.8},
        first: {FAST: 10.0, OTHER: 11.0},
        unknown: {OTHER: 1.0},
    }
    device = held[0].device
    assert beaten(held, times, device.fingerprint) == [lost]
    assert beaten([replace(held[0], device=H100)], times, device.fingerprint) == []
    assert elsewhere not in times


def test_they_are_written_as_what_tune_reads(tmp_path: Path) -> None:
    file, device = tmp_path / "misses", cpu_device()
    asked = [Workload(64, 300, 3), Workload(7, 5000, 100, "bfloat16", sorted=False)]
    file.write_text("".join(misses.line_of(one.key, device.fingerprint) for one in asked))
    assert {one.key for one in misses.read(file, device)} == {one.key for one in asked}


def test_few_that_are_shipped_were_beaten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    times, device = tuned()
    path = settings.shipped_winners_path()
    assert path is not None
    shipped = artifact.read(path)
    assert len(beaten(shipped, times, device.fingerprint)) <= 0.02 * len(shipped)
    assert {one.device.name for one in shipped} >= {"NVIDIA H200", "NVIDIA H100 80GB HBM3"}


def test_predictions_that_are_shipped_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    path = settings.shipped_winners_path()
    assert path is not None
    fitted = artifact.contents(path).fitted
    kinds = {kind for _, kind, *_ in fitted}
    assert kinds >= {"topk", "windows"}
    for rows in (fitted, [Fitted.of(row).row() for row in fitted]):  # as they are, and as they are exported
        assert all(model_of(row for row in rows if row[1] == kind).points for kind in kinds)
