"""Whatever a tuning database holds, commands end with one line and the library raises DatabaseError alone."""

import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotopk.cli.app import app
from autotopk.device import H100
from autotopk.errors import DatabaseError
from autotopk.settings import database_path
from autotopk.tuning_db.leases import Leases
from autotopk.tuning_db.store import Store
from tests.tuning_db.examples import ATEN, CPU, KEY, NATIVE, measurement
from tests.tuning_db.mutants import OF_DATABASES, mutate

KEYS = [replace(KEY, rows=rows) for rows in (1, 2, 4, 8)]


@pytest.fixture
def good(tmp_path: Path) -> bytes:
    """Measurements of two devices and three processors, their winners, and a campaign amid its work."""
    path = tmp_path / "good.sqlite"
    with Store.open(path) as store:
        run = store.begin_run(H100, ATEN, {"effort": "quick"})
        store.record(run, [measurement(), measurement("slow", 2.0), measurement("bad", None, error="no [luck]")])
        store.end_run(run, "finished")
        store.record(store.begin_run(CPU, NATIVE, {}), [measurement(device=CPU, build_stats={"registers": 32.0})])
        store.record(store.begin_run(H100, ATEN, {}, "GPU-1"), [measurement()])
        store.record(store.begin_run(H100, ATEN, {}, "GPU-2"), [measurement(ratio=0.6)])
        store.derive_winners()
        leases = Leases(store, "nightly", H100, "host:1:cuda0", 3600.0)
        leases.enrol(KEYS)
        for key in KEYS[:2]:
            if claim := leases.claim([key]):
                leases.complete(claim, "tuned")
        leases.claim(KEYS)
    return path.read_bytes()


def use(path: Path, other: Path) -> None:
    """Everything that a library's user can ask of a database, each method whatever the others raise."""
    asked: list[Callable[[Store], object]] = [
        Store.measurements,
        Store.winners,
        Store.devices,
        lambda store: store.evidence(H100.fingerprint, KEY),
        lambda store: store.merge(other),
        lambda store: store.end_run(store.begin_run(H100, ATEN, {}), "finished"),
        lambda store: store.record(store.begin_run(H100, ATEN, {}), [measurement()]),
        lambda store: store.derive_winners(H100.fingerprint),
        Store.derive_winners,
        lambda store: Leases(store, "nightly", H100, "host:2:cuda0", 60.0).claim(KEYS),
        lambda store: Leases(store, "nightly", H100, "host:2:cuda0", 60.0).complete_keys(),
    ]
    with suppress(DatabaseError), Store.open(path) as store:
        for ask in asked:
            with suppress(DatabaseError):
                ask(store)


SOME = range(30)
ALL = [pytest.param(range(at, at + 100), marks=pytest.mark.slow) for at in range(0, 1000, 100)]


@pytest.mark.parametrize("seeds", [SOME, *ALL], ids=str)
def test_mutated_databases(seeds: range, good: bytes, tmp_path: Path) -> None:
    mutated, ours, exported = tmp_path / "mutated.sqlite", tmp_path / "ours.sqlite", tmp_path / "exported.sqlite"
    bundle = tmp_path / "exported.bundle"
    user = database_path()
    user.parent.mkdir()
    codes: dict[str, set[int]] = {}
    for seed in seeds:
        done = mutate(good, mutated, seed, OF_DATABASES)
        shutil.copy(mutated, user)
        ours.write_bytes(good)
        commands: list[list[Path | str]] = [
            ["show", "--db", mutated],
            ["show", "--all", "--db", mutated],
            ["show", "--all", "--json", "--db", mutated],
            ["export", "--winners-only", exported, "--db", mutated],
            ["export", "--partial", bundle, "--db", mutated],
            ["fleet", "status", "--db", mutated],
            ["fleet", "status", "--json", "--db", mutated],
            ["verify", bundle],
            ["diff", bundle, exported],
            ["import", mutated, "--db", ours],
            ["import", ours, "--db", mutated],
        ]
        if seed % 3 == 2:
            commands.append(["doctor"])
        for command in commands[seed % 3 :: 3] if seeds is SOME else commands:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = CliRunner().invoke(app, [str(word) for word in command])
            assert result.exception is None or isinstance(result.exception, SystemExit), (done, command, result)
            assert result.exit_code in (0, 1, 2), (done, command)
            assert all(len(line) < 2000 for line in result.output.splitlines()), (done, command)
            codes.setdefault(str(command[0]), set()).add(result.exit_code)
        mutate(good, mutated, seed, OF_DATABASES)
        use(mutated, ours)
    assert codes["show"] == codes["fleet"] == codes["export"] == codes["import"] == {0, 2}
    assert codes["doctor"] == {0, 1}
