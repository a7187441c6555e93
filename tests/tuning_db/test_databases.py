"""What every kind of tuning database does alike: files and servers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread, Timer
from uuid import uuid4

import pytest
from alembic.operations import Operations
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, String, text, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from autotopk.candidate import TORCH_TOPK
from autotopk.database import Database, Server
from autotopk.device import H100
from autotopk.errors import DatabaseError
from autotopk.tuning_db import leases, migrations, specimens
from autotopk.tuning_db.leases import Claim, Leases
from autotopk.tuning_db.models import TaskRow
from autotopk.tuning_db.records import Measurement, Progress, Specimens
from autotopk.tuning_db.store import Store
from autotopk.tuning_db.winners import Evidence, derive
from tests.tuning_db.examples import ATEN, CPU, KEY, NATIVE, measurement, measurements
from tests.tuning_db.servers import PostgresServer

KEYS = [replace(KEY, rows=rows) for rows in (1, 2, 4)]
EXAMPLES = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def place_of(kind: str, request: pytest.FixtureRequest) -> Database:
    """A database that is not there yet, or is empty."""
    if kind == "file":
        return Path(request.getfixturevalue("tmp_path")) / f"{uuid4().hex}.sqlite"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.make()


@pytest.fixture(params=["file", "server"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest) -> Database:
    return place_of(kind, request)


@pytest.fixture
def store(place: Database) -> Iterator[Store]:
    with Store.open(place) as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> int:
    return store.begin_run(H100, ATEN, {"tag": "ci", "budget_s": None})


def fill(place: Database, *measured: Measurement) -> Database:
    with Store.open(place) as opened:
        opened.record(opened.begin_run(H100, ATEN, {}), measured)
    return place


def execute(store: Store, statement: str, **values: object) -> None:
    store.write(lambda session: session.execute(text(statement), values))


def escaped(one: Measurement) -> Measurement:
    """As servers hold it, which hold no NUL."""
    return replace(one, error=one.error and one.error.replace("\0", "\\x00"))


# Measurements and winners ------------------------------------------------------------------------------------------


@EXAMPLES
@given(st.lists(measurements(), max_size=6))
def test_round_trip(kind: str, request: pytest.FixtureRequest, measured: list[Measurement]) -> None:
    with Store.open(fill(place_of(kind, request), *measured), read_only=True) as opened:
        expected = sorted(measured, key=lambda one: (one.measured_at, one.uuid))
        assert opened.measurements() == (expected if kind == "file" else list(map(escaped, expected)))


@EXAMPLES
@given(st.lists(measurements(), max_size=10))
def test_stored_winners_are_the_derived_ones(
    kind: str, request: pytest.FixtureRequest, measured: list[Measurement]
) -> None:
    with Store.open(fill(place_of(kind, request), *measured)) as opened:
        expected = derive(Evidence(one, "aten") for one in measured).values()
        assert sorted(opened.derive_winners(), key=repr) == sorted(expected, key=repr)
        assert opened.derive_winners() == opened.winners()


def test_a_winner_without_a_runner_up_and_sizes_beyond_32_bits(store: Store, run: int) -> None:
    store.record(run, [measurement(key=replace(KEY, rows=2**40, cols=2**41))])
    (found,) = store.derive_winners()
    assert (found.key.rows, found.runner_up) == (2**40, None)


@pytest.mark.parametrize(
    "bad",
    [
        {"ratio": None, "status": "ok"},
        {"ratio": -1.0},
        {"ratio": float("nan")},
        {"samples_us": ()},
        {"samples_us": (float("inf"),)},
        {"stage": "rave"},
        {"key": replace(KEY, k=4096)},
    ],
    ids=str,
)
def test_batch_with_a_bad_measurement_is_refused_whole(store: Store, run: int, bad: dict[str, object]) -> None:
    with pytest.raises(DatabaseError):
        store.record(run, [measurement(), replace(measurement(), **bad)])  # type: ignore[arg-type]
    assert store.measurements() == []


def test_known_uuid_is_refused(store: Store, run: int) -> None:
    one = measurement()
    store.record(run, [one])
    with pytest.raises(DatabaseError, match=r"(?i)unique"):
        store.record(run, [replace(one, ratio=0.1)])
    assert store.measurements() == [one]


@pytest.mark.parametrize("change", ["UPDATE measurement SET ratio = 0.1", "DELETE FROM measurement"])
def test_measurements_are_never_changed(store: Store, run: int, change: str) -> None:
    store.record(run, [measurement()])
    with pytest.raises(DatabaseError, match="append-only"):
        store.write(lambda session: session.execute(text(change)))


def test_discarded_measurements_count_no_more(store: Store, run: int) -> None:
    store.record(run, [measurement(day=1)])
    assert store.discard(H100.fingerprint, KEY)
    assert store.derive_winners() == []
    store.record(run, [measurement("later", day=2)])
    assert [one.candidate.strategy for one in store.derive_winners()] == ["later"]
    assert len(store.measurements()) == 2


def test_read_only_store_does_not_write(place: Database) -> None:
    fill(place, measurement())
    with (
        Store.open(place, read_only=True) as opened,
        pytest.raises(DatabaseError, match=r"read-?only"),
    ):
        opened.derive_winners()


def test_tuners_at_the_same_time_share_rows(store: Store, place: Database) -> None:
    """The same candidates and workloads are new to all of them at once."""
    start, failed = Barrier(4), []

    def tune() -> None:
        try:
            start.wait()
            with Store.open(place) as own:
                run = own.begin_run(H100, ATEN, {})
                for key in KEYS:
                    own.record(run, [measurement(name, key=key) for name in ("a", "b")])
                own.derive_winners()
        except Exception as error:
            failed.append(error)

    tuners = [Thread(target=tune) for _ in range(4)]
    for tuner in tuners:
        tuner.start()
    for tuner in tuners:
        tuner.join()
    assert failed == []
    assert len(store.measurements()) == 4 * len(KEYS) * 2
    assert len(store.winners()) == len(KEYS)


def test_merged_files_and_one_server_have_the_same_winners(tmp_path: Path, postgres: PostgresServer) -> None:
    """Of the same evidence, taken on two machines, and of two software environments."""
    runs = [
        (H100, ATEN, [measurement("a", 0.5, key=key) for key in KEYS]),
        (H100, NATIVE, [measurement("b", 0.4, day=2, key=key) for key in KEYS[:2]]),
        (CPU, ATEN, [measurement("c", 0.6, day=3, device=CPU), measurement("d", None, day=4, device=CPU)]),
    ]
    with Store.open(postgres.make()) as server, Store.open(tmp_path / "merged.sqlite") as merged:
        for number, (device, environment, measured) in enumerate(runs):
            with Store.open(tmp_path / f"{number}.sqlite") as file:
                for store in (server, file):
                    store.record(store.begin_run(device, environment, {}), measured)
            assert merged.merge(tmp_path / f"{number}.sqlite") == len(measured)
        server.derive_winners()
        assert server.winners() == merged.winners()
        assert len(server.winners()) == len(KEYS) + 1
        assert merged.merge(server.place) == 0
        with Store.open(postgres.make()) as other:
            assert other.merge(merged.place) == len(merged.measurements())
            assert other.winners() == merged.winners()


@EXAMPLES
@example([("", [measurement("z", 0.5)]), ("", [measurement("a", 0.49, day=2)])])
@given(st.lists(st.tuples(st.sampled_from(["", "GPU-1", "GPU-2"]), st.lists(measurements(), max_size=5)), max_size=4))
def test_any_evidence_makes_the_same_winners_merged_in_any_order_and_on_one_server(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, runs: list[tuple[str, list[Measurement]]]
) -> None:
    """Whatever was derived in between: near ties go to who was there first."""
    folder = tmp_path_factory.mktemp("machines")
    with Store.open(postgres.make()) as server:
        for number, (specimen, measured) in enumerate(runs):
            for store in (server, Store.open(folder / f"{number}.sqlite")):
                store.record(store.begin_run(H100, ATEN, {}, specimen), measured)
                store.derive_winners()
        winners = server.derive_winners()
        for order in (1, -1):
            with Store.open(folder / f"merged {order}.sqlite") as merged:
                for number in list(range(len(runs)))[::order]:
                    merged.merge(folder / f"{number}.sqlite")
                assert merged.winners() == winners


# Schemas -----------------------------------------------------------------------------------------------------------


def add_a_note(op: Operations) -> None:
    op.add_column("run", Column("note", String))


def fail(op: Operations) -> None:
    op.add_column("nowhere", Column("note", String))


def test_older_schema_is_brought_forward_or_left(place: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place, measurement())
    known = migrations.MIGRATIONS
    monkeypatch.setattr(migrations, "MIGRATIONS", (*known, add_a_note, fail))
    with pytest.raises(DatabaseError, match="nowhere"):
        Store.open(place)
    monkeypatch.setattr(migrations, "MIGRATIONS", (*known, add_a_note))
    with pytest.raises(DatabaseError, match="brings it up to date"):
        Store.open(place, read_only=True)
    with Store.open(place) as opened:
        assert len(opened.measurements()) == 1
        assert opened.read(lambda session: session.execute(text("SELECT note FROM run")).scalar()) is None
    monkeypatch.setattr(migrations, "MIGRATIONS", known)
    with pytest.raises(DatabaseError, match="upgrade autotopk"):
        Store.open(place)


def test_runs_of_schema_5_were_on_specimens_that_nobody_noted(kind: str, place: Database) -> None:
    earlier = "PRAGMA user_version = 5" if kind == "file" else f"UPDATE {migrations.VERSION_TABLE} SET version = 5"
    with Store.open(fill(place, measurement())) as opened:
        for statement in ("ALTER TABLE run DROP COLUMN specimen", earlier):
            execute(opened, statement)
    with Store.open(place) as opened:
        assert [one.specimen for one in opened.evidence(H100.fingerprint, KEY)] == [""]
        opened.begin_run(H100, ATEN, {}, "GPU-1")


def test_reading_needs_a_tuning_database(place: Database) -> None:
    with pytest.raises(DatabaseError):
        Store.open(place, read_only=True)


def test_tuners_that_start_together_make_the_tables_once(place: Database) -> None:
    start, failed = Barrier(4), []

    def begin() -> None:
        try:
            start.wait()
            with Store.open(place) as own:
                own.begin_run(H100, ATEN, {})
        except Exception as error:
            failed.append(error)

    tuners = [Thread(target=begin) for _ in range(4)]
    for tuner in tuners:
        tuner.start()
    for tuner in tuners:
        tuner.join()
    assert failed == []
    with Store.open(place, read_only=True) as opened:
        assert sum(one.runs for one in opened.software()) == 4


def test_tables_of_others_are_left_alone(postgres: PostgresServer) -> None:
    import psycopg

    server = postgres.make()
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE device (a integer)")
    with pytest.raises(DatabaseError, match="tables that autotopk did not make: device"):
        Store.open(server)


# Leases ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def make(store: Store) -> "Make":
    return Make(store)


class Make:
    """Tuners of one campaign on the H100."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __call__(self, name: str, lease_s: float = 60.0, campaign: str = "all") -> Leases:
        made = Leases(self.store, campaign, H100, f"host:{name}:cuda0", lease_s)
        made.enrol(KEYS)
        return made


def claimed(claim: Claim | None) -> Claim:
    assert claim is not None
    return claim


def pass_time(store: Store, claim: Claim, seconds: float) -> None:
    """As if so much of a lease had passed."""
    later = update(TaskRow).where(TaskRow.id == claim.task).values(expires=TaskRow.expires - seconds)
    store.write(lambda session: session.execute(later))


def test_each_workload_is_held_by_one(make: Make) -> None:
    one, other = make("1"), make("2")
    assert claimed(one.claim(KEYS)).key == KEYS[0]
    assert claimed(other.claim(KEYS)).key == KEYS[1]
    assert claimed(other.claim(KEYS[2:])).key == KEYS[2]
    assert make("3").claim(KEYS) is None
    assert claimed(make("4", campaign="another").claim(KEYS)).key == KEYS[0]
    another_model = Leases(make.store, "all", CPU, "host:5:cpu", 60.0)
    another_model.enrol(KEYS)
    assert claimed(another_model.claim(KEYS)).key == KEYS[0]


def test_a_lease_that_ran_out_is_taken_over_and_its_holder_refused(make: Make) -> None:
    stale, heir = make("stale", lease_s=3600), make("heir", lease_s=3600)
    first = claimed(stale.claim(KEYS[:1]))
    pass_time(make.store, first, 3000)
    assert heir.claim(KEYS[:1]) is None
    pass_time(make.store, first, 600)
    second = claimed(heir.claim(KEYS[:1]))
    assert second.token > first.token
    assert not stale.renew(first)
    assert not stale.complete(first, "tuned")
    stale.release(first)
    assert heir.renew(second)
    assert heir.complete_keys() == {}
    assert heir.complete(second, "tuned")
    assert stale.complete_keys() == {KEYS[0]: "tuned"}
    assert not stale.complete(first, "failed")
    assert stale.claim(KEYS[:1]) is None


def test_renewal_keeps_a_lease(make: Make) -> None:
    holder, other = make("holder", lease_s=3600), make("other")
    claim = claimed(holder.claim(KEYS[:1]))
    for _ in range(4):
        pass_time(make.store, claim, 2400)
        assert holder.renew(claim)
        assert other.claim(KEYS[:1]) is None


def test_a_lease_lasts_as_long_as_was_asked(make: Make) -> None:
    """By the clock of the database."""
    short, other = make("short", lease_s=0.2), make("other")
    first = claimed(short.claim(KEYS[:1]))
    time.sleep(0.3)
    assert claimed(other.claim(KEYS[:1])).token > first.token


def test_what_is_released_can_be_claimed_and_not_renewed(make: Make) -> None:
    holder, other = make("holder"), make("other")
    claim = claimed(holder.claim(KEYS[:1]))
    holder.release(claim)
    assert not holder.renew(claim)
    assert claimed(other.claim(KEYS[:1])).token == claim.token + 1


def test_all_that_a_tuner_holds_is_released(make: Make) -> None:
    holder, other = make("holder"), make("other")
    claims = [claimed(holder.claim(KEYS[:1])), claimed(holder.claim(KEYS[1:2]))]
    assert claimed(other.claim(KEYS)).key == KEYS[2]
    assert holder.complete(claims[0], "tuned")
    holder.release_all()
    assert not holder.renew(claims[1])
    assert holder.complete_keys() == {KEYS[0]: "tuned"}
    assert claimed(make("third").claim(KEYS)).key == KEYS[1], "what others hold stays theirs"


def test_steps_whose_answer_was_lost_may_be_repeated(make: Make) -> None:
    holder = make("holder")
    claim = claimed(holder.claim(KEYS[:1]))
    again = claimed(holder.claim(KEYS[:1]))
    assert again.token > claim.token
    assert holder.complete(again, "tuned")
    assert holder.complete(again, "tuned")


def test_many_claim_at_once(place: Database, make: Make) -> None:
    make("first")
    start, held, failed = Barrier(6), [], []

    def tune(name: str) -> None:
        try:
            with Store.open(place) as own:
                leases = Leases(own, "all", H100, name, 60.0)
                start.wait()
                while claim := leases.claim(KEYS):
                    assert leases.complete(claim, "tuned")
                    held.append(claim.key)
        except Exception as error:
            failed.append(error)

    tuners = [Thread(target=tune, args=(str(name),)) for name in range(6)]
    for tuner in tuners:
        tuner.start()
    for tuner in tuners:
        tuner.join()
    assert failed == []
    assert sorted(held, key=repr) == sorted(KEYS, key=repr)


def test_status(store: Store, make: Make) -> None:
    done, failed, gone = make("done"), make("failed"), make("gone")
    done.complete(claimed(done.claim(KEYS[:1])), "tuned")
    failed.complete(claimed(failed.claim(KEYS[1:2])), "failed")
    pass_time(store, claimed(gone.claim(KEYS[2:])), 60)
    other = make("7", lease_s=3600, campaign="night")
    token = claimed(other.claim(KEYS)).token
    store.record(store.begin_run(H100, ATEN, {}), [measurement(key=KEYS[0]), measurement(key=KEYS[1])])
    progress, held = leases.status(store)
    assert progress == [
        Progress("all", H100.fingerprint, done=1, claimed=0, open=1, failed=1),
        Progress("night", H100.fingerprint, done=0, claimed=1, open=2, failed=0),
    ]
    assert [(one.holder, one.key, one.token) for one in held] == [("host:7:cuda0", KEYS[0], token)]
    assert 3000 < held[0].left_s <= 3600
    assert held[0].measured == 1
    assert leases.status(store, "all") == (progress[:1], [])


def test_what_is_left_is_told_by_the_pace_of_the_last(store: Store, make: Make) -> None:
    one, other = make("1"), make("2")
    for key in KEYS[:2]:
        one.complete(claimed(one.claim([key])), "tuned")
    assert leases.status(store)[0][0].left_s is None, "nobody is at work"
    ends = [f"2025-01-01T00:00:{second:02}+00:00" for second in (10, 50)]
    for key, end in zip(KEYS[:2], ends, strict=True):
        of_key = "workload_id = (SELECT id FROM workload WHERE rows = :rows)"
        execute(store, f"UPDATE task SET completed = :end WHERE {of_key}", end=end, rows=key.rows)
    other.claim(KEYS)
    (progress,), _ = leases.status(store)
    assert (progress.done, progress.claimed, progress.left_s) == (2, 1, 40.0)


def test_processors_of_one_model_are_compared(store: Store) -> None:
    """By the last good race of the same code on each; torch.topk is as fast as itself."""
    gpus = {name: store.begin_run(H100, ATEN, {}, name) for name in ("GPU-1", "GPU-2")}
    assert specimens.differences(store) == []
    one, other, third = KEYS
    topk = replace(measurement(key=one), candidate=TORCH_TOPK)
    store.record(
        gpus["GPU-1"],
        [
            *(measurement(key=key, ratio=0.4) for key in (one, other, third)),
            topk,
        ],
    )
    assert specimens.differences(store) == []
    store.record(
        gpus["GPU-2"],
        [
            measurement(key=one, ratio=0.9, stage="screen"),
            measurement(key=one, ratio=0.7),
            measurement(key=one, ratio=0.44, day=2),
            replace(topk, uuid="another", ratio=1.5),
            measurement(key=other, ratio=0.5),
            measurement(key=third, ratio=0.8, code="v2"),
        ],
    )
    (found,) = specimens.differences(store)
    assert found == Specimens(H100.fingerprint, 2, 2, found.median, found.widest, other)
    assert found.median == pytest.approx((0.1 + 0.25) / 2)
    assert found.widest == pytest.approx(0.25)


# Servers in trouble ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_loses_nothing(postgres: PostgresServer, mode: str) -> None:
    with Store.open(postgres.make()) as store:
        run = store.begin_run(H100, ATEN, {})
        measured = [measurement(day=day) for day in range(1, 4)]
        store.record(run, measured[:1])
        postgres.stop(mode)
        timer = Timer(0.5, postgres.start)
        timer.start()
        store.record(run, measured[1:2])
        timer.join()
        store.record(run, measured[2:])
        assert store.measurements() == measured


def test_a_batch_whose_answer_was_lost_is_stored_once(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends after the commit, before the store hears of it."""
    with Store.open(postgres.make()) as store:
        run, one, lost = store.begin_run(H100, ATEN, {}), measurement(), list[str]()
        transaction = store._transaction

        @contextmanager
        def losing(begin: str) -> Iterator[Session]:
            with transaction(begin) as session:
                yield session
            if not lost:
                lost.append(begin)
                raise DatabaseError("lost") from OperationalError("COMMIT", {}, Exception("gone"))

        monkeypatch.setattr(store, "_transaction", losing)
        store.record(run, [one])
        assert lost
        assert store.measurements() == [one]


def test_who_waited_in_vain_says_so_without_the_password(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTOPK_DB_PATIENCE", "0.2")
    for url in (
        "postgresql://me:hunter2@127.0.0.1:1/db",
        "postgresql://tuner:hunter2@127.0.0.1:" + f"{postgres.port}/postgres",
        "postgresql://me@127.0.0.1:1/db?password=hunter2",
    ):
        with pytest.raises(DatabaseError) as raised:
            Store.open(Server(url))
        told: BaseException | None = raised.value
        assert "hunter2" not in str(told)


def test_a_wrong_password_is_not_tried_again(postgres: PostgresServer) -> None:
    began = time.monotonic()
    with pytest.raises(DatabaseError, match="authentication failed"):
        Store.open(Server(f"postgresql://tuner:wrong@127.0.0.1:{postgres.port}/postgres"))
    assert time.monotonic() - began < 30
