"""A fleet whose tuners are killed and stopped and whose server restarts ends as one that nobody troubles."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest

from autotopk.database import Server
from autotopk.tuning.sharing import COMPLETE
from autotopk.tuning_db import leases
from autotopk.tuning_db.store import Store
from autotopk.workloads import grid
from tests.fleet.chaos import Fleet
from tests.fleet.tuners import COMPLETED, ENDED, MEASURED, Order
from tests.tuning_db.servers import PostgresServer

TUNERS = 4
KILLS, STOPS, RESTARTS = 50, 10, 5
LEASE_S = "3"
WORKLOADS = grid([1, 2], [64, 96, 128, 160, 192], [3, 5])

WATCH = """
CREATE TABLE seen (task bigint, what text, outcome text);
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.token <> OLD.token THEN
        INSERT INTO seen VALUES (NEW.id, 'claimed', NEW.outcome);
    END IF;
    IF NEW.outcome IS DISTINCT FROM OLD.outcome THEN
        INSERT INTO seen VALUES (NEW.id, 'completed', NEW.outcome);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER watch AFTER UPDATE ON task FOR EACH ROW EXECUTE FUNCTION watch();
"""
"""Has the server note every claim and every completion."""


@pytest.fixture
def place(postgres: PostgresServer) -> Server:
    """A database that notes what happens to tasks."""
    made = postgres.make()
    Store.open(made).close()
    with psycopg.connect(made.url) as connection:
        connection.execute(WATCH)
    return made


@pytest.fixture
def fleet(place: Server, tmp_path: Path) -> Iterator[Fleet]:
    variables = {"AUTOTOPK_LEASE": LEASE_S, "AUTOTOPK_CACHE_DIR": str(tmp_path), "AUTOTOPK_SHIPPED": "0"}
    with Store.open(place, read_only=True) as store:
        made = Fleet(Order(place, tmp_path, WORKLOADS, variables=variables), store, Random(17), TUNERS)
        yield made
        made.close()


def restart(server: PostgresServer, draw: Random) -> None:
    server.stop(draw.choice(["fast", "immediate"]))
    time.sleep(draw.uniform(0, 1.5))
    server.start()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_troubled_fleet_loses_nothing_and_does_nothing_twice(
    fleet: Fleet, postgres: PostgresServer, place: Server
) -> None:
    begun = time.monotonic()
    troubles = ["kill"] * KILLS + ["stop"] * STOPS + ["restart"] * RESTARTS
    fleet.draw.shuffle(troubles)
    for trouble in troubles:
        match trouble:
            case "kill":
                fleet.kill()
            case "stop":
                fleet.stop()
            case "restart":
                restart(postgres, fleet.draw)
    troubled_s = time.monotonic() - begun
    assert fleet.finish(300) == [0] * TUNERS
    assert [one.words(ENDED) for one in fleet.working] == [["finished"]] * TUNERS
    assert fleet.taken_over == [True] * STOPS
    assert fleet.close() == []  # nor does a process of those that were killed live on

    everyone = [*fleet.working, *fleet.gone]
    stored = {one.uuid: one for one in fleet.store.measurements()}
    told = Counter(uuid for one in everyone for uuid in one.words(MEASURED))
    assert {*told} <= {*stored}
    assert {*told.values()} == {1}
    assert {one.status for one in stored.values()} <= {"ok", "noisy"}  # no trouble is held against a candidate

    (progress,), held = leases.status(fleet.store)
    assert held == []
    assert (progress.done, progress.claimed, progress.open, progress.failed) == (len(WORKLOADS), 0, 0, 0)
    assert {winner.key for winner in fleet.store.winners()} == {one.key for one in WORKLOADS}
    completed = Counter(workload for one in everyone for workload in one.words(COMPLETED))
    assert {*completed.values()} == {1}  # at most once as the tuners tell it, and exactly once as the server does
    with psycopg.connect(place.url) as connection:
        seen = connection.execute("SELECT what, task, outcome FROM seen").fetchall()
    ends = Counter(task for what, task, _ in seen if what == "completed")
    assert (len(ends), {*ends.values()}) == (len(WORKLOADS), {1})
    assert {outcome for what, _, outcome in seen if what == "completed"} <= COMPLETE
    print(
        f"\n{len(troubles)} troubles in {troubled_s:.0f} s, the end after {time.monotonic() - begun:.0f} s: "
        f"{len(stored)} measurements, {len(seen) - len(WORKLOADS)} claims of {len(WORKLOADS)} workloads"
    )
