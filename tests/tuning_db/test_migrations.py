"""Older tuning databases are brought forward, whole or not at all."""

from dataclasses import replace
from pathlib import Path

import pytest
from alembic.operations import Operations
from sqlalchemy import Column, String, create_engine, inspect

from autotopk.device import H100
from autotopk.errors import DatabaseError
from autotopk.tuning_db import migrations
from autotopk.tuning_db.store import Store
from tests.tuning_db.examples import CPU, ask, filled, measurement, written_by_0_1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.sqlite"


SAME = "uuid, run_id, workload_id, stage, status, measured_at, samples_us, ratio, margin, cold, error"


def test_every_measurement_of_schema_1_survives(path: Path) -> None:
    """Beside the columns that kept their names: devices as columns, candidates, codes, and what has other names."""
    written_by_0_1(path)
    before = ask(path, f"SELECT {SAME}, control_us, worst_ratio, facts FROM measurement ORDER BY uuid")
    codes = ask(
        path,
        "SELECT uuid, strategy.name, config.text, 'version ' || version FROM measurement"
        " JOIN strategy ON strategy.id = strategy_id JOIN config ON config.id = config_id ORDER BY uuid",
    )
    assert len(before) == 30
    with pytest.raises(DatabaseError, match="has schema 1, not 6 yet"):
        Store.open(path, read_only=True)
    with Store.open(path) as opened:
        found = {one.uuid: one for one in opened.measurements()}
        assert opened.devices() == [CPU, H100]
    after = ask(path, f"SELECT {SAME}, baseline_us, adversarial_slowdown, build_stats FROM measurement ORDER BY uuid")
    assert after == before
    assert codes == [
        (one.uuid, one.candidate.strategy, one.candidate.config, one.identity.code) for _, one in sorted(found.items())
    ]
    assert {one.identity.source for one in found.values()} == {""}


def test_winners_of_schema_1_survive_and_are_derived_again(path: Path) -> None:
    rows = ask(
        written_by_0_1(path),
        "SELECT uuid, runner_up, winner.gap FROM winner JOIN measurement ON measurement.id = measurement_id",
    )
    assert len(rows) == 5
    with Store.open(path) as opened:
        measured = {one.uuid: one for one in opened.measurements()}
        before = opened.winners()
        assert sorted((one.candidate, str(one.runner_up), one.gap) for one in before) == sorted(
            (measured[uuid].candidate, str(second), gap) for uuid, second, gap in rows
        )
        again = opened.derive_winners()
        assert [replace(one, gap=None) for one in again] == [replace(one, gap=None) for one in before]
        assert [one.gap for one in again] == [one.gap and pytest.approx(one.gap, rel=0.04) for one in before]


def test_measurements_of_another_schema_merge(path: Path, tmp_path: Path) -> None:
    other = written_by_0_1(tmp_path / "other.sqlite")
    Store.open(other).close()
    with Store.open(filled(path, measurement())) as opened:
        assert opened.merge(other) == 30


def test_migrated_file_is_as_a_new_one(path: Path, tmp_path: Path) -> None:
    Store.open(written_by_0_1(path)).close()
    Store.open(tmp_path / "new.sqlite").close()
    migrated, new = (inspect(create_engine(f"sqlite:///{file}")) for file in (path, tmp_path / "new.sqlite"))
    assert migrated.get_table_names() == new.get_table_names()
    for table in new.get_table_names():
        columns = [
            {(c["name"], str(c["type"]), c["nullable"]) for c in one.get_columns(table)} for one in (migrated, new)
        ]
        assert columns[0] == columns[1]
        for question in ("get_foreign_keys", "get_indexes", "get_unique_constraints", "get_check_constraints"):
            told = [sorted(map(str, getattr(one, question)(table))) for one in (migrated, new)]
            assert told[0] == told[1], (table, question)
    triggers = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
    assert ask(path, triggers) == ask(tmp_path / "new.sqlite", triggers)


def add_a_note(op: Operations) -> None:
    op.add_column("run", Column("note", String))


def fail(op: Operations) -> None:
    op.add_column("nowhere", Column("note", String))


def test_older_schema_is_brought_forward(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, measurement())
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, add_a_note))
    with pytest.raises(DatabaseError, match="has schema 6, not 7 yet"):
        Store.open(path, read_only=True)
    with Store.open(path) as opened:
        assert len(opened.measurements()) == 1
    assert ask(path, "PRAGMA user_version") == [(7,)]
    assert ask(path, "SELECT note FROM run") == [(None,)]
    Store.open(path).close()


def test_migrations_happen_together_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = written_by_0_1(path).read_bytes()
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, add_a_note, fail))
    with pytest.raises(DatabaseError, match="no such table: nowhere"):
        Store.open(path)
    assert path.read_bytes() == before
