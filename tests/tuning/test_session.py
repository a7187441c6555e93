"""A workload's turn, replayed: who is screened, raced, kept, blocked, and measured again."""

from dataclasses import replace

import pytest

from autotopk.candidate import Candidate
from autotopk.device import cpu_device
from autotopk.errors import MeasurementError
from autotopk.identity import NOTHING, Identity
from autotopk.key import TuningKey
from autotopk.tuning.events import CandidateMeasured, Event, WorkloadStarted
from autotopk.tuning_db.records import Measurement, Winner
from autotopk.tuning_db.store import Store
from autotopk.tuning_db.winners import Evidence
from tests.tuning.replay import WORKLOAD, ReplayWorker, config, run_session

FAST, FASTER = config("chunked", 2048), config("chunked", 8192)
CANDIDATES, LATTICE = 8, 13


class Recorded(Store):
    """A database that says of every measurement that it was made from other files, and of that code if any."""

    def __init__(self, store: Store, code: str | None = None) -> None:
        super().__init__(store.place, store._engine)
        self._code = code

    def evidence(self, device: str | None = None, key: TuningKey | None = None) -> list[Evidence]:
        found = super().evidence(device, key)
        return [one._replace(measurement=self._changed(one.measurement)) for one in found]

    def _changed(self, one: Measurement) -> Measurement:
        return replace(one, identity=Identity("before", one.identity.code if self._code is None else self._code))


def measured(store: Store, stage: str | None = None) -> dict[str, Measurement]:
    """The last measurement of every configuration."""
    return {one.candidate.config: one for one in store.measurements() if stage in (None, one.stage)}


def winner_of(store: Store) -> Winner:
    (winner,) = store.derive_winners()
    return winner


def test_every_candidate_is_screened_and_the_best_are_raced(store: Store) -> None:
    worker = ReplayWorker(times={FASTER: 40, FAST: 60, config("sort"): 900})
    result = run_session(store, worker)
    assert result.outcome == "tuned"
    assert result.candidates == CANDIDATES
    assert result.measured == {"ok": CANDIDATES}
    assert len(measured(store, "screen")) == CANDIDATES
    assert set(measured(store, "race")) == {FAST, FASTER, config()}, "torch.topk races in any case"
    assert result.winner is not None
    assert (result.winner.candidate, result.winner.runner_up) == (
        Candidate("torch_fallback", FASTER),
        Candidate("torch_fallback", FAST),
    )
    assert result.winner.ratio == pytest.approx(0.4, rel=0.01)
    assert result.winner.gap == pytest.approx(0.5, rel=0.02)
    assert result.winner.adversarial_slowdown == 1.5
    assert result.winner == winner_of(store), "the database derives what the tuner told"


def test_a_race_has_rounds_beside_torch_topk(store: Store) -> None:
    run_session(store, ReplayWorker(times={FASTER: 40, FAST: 60}))
    for one in measured(store, "race").values():
        assert len(one.samples_us) == len(one.baseline_us) >= 7
        assert one.ratio is not None
        assert one.margin is not None
        assert one.margin < 0.01
    assert [one.adversarial_slowdown for one in measured(store, "race").values() if one.candidate.config == FAST] == [
        None
    ]


def test_nothing_is_measured_twice(store: Store) -> None:
    run_session(store, ReplayWorker(times={FASTER: 40}, screen_status={config("sort"): "crashed"}))
    again = ReplayWorker(times={FASTER: 40})
    assert run_session(store, again).outcome == "confirmed"
    assert {method for method, _ in again.turns} == {"sample"}, "a winner is raced once more, in another run"
    for _ in range(2):
        again = ReplayWorker(times={FASTER: 40})
        result = run_session(store, again)
        assert (result.outcome, dict(result.measured or {}), again.turns) == ("known", {}, {})
        assert result.winner is not None
        assert result.winner.candidate.config == FASTER


def test_more_effort_races_again_and_screens_the_rest(store: Store) -> None:
    run_session(store, ReplayWorker(times={FASTER: 40}))
    again = ReplayWorker(times={FASTER: 40})
    assert run_session(store, again, effort="full").outcome == "tuned"
    assert sum(count for (method, _), count in again.turns.items() if method == "screen") == LATTICE - CANDIDATES
    assert again.turns["sample", FASTER] >= 12
    assert run_session(store, ReplayWorker(), effort="full").outcome == "known"


def test_oracle_races_everything_to_the_end(store: Store) -> None:
    run_session(store, ReplayWorker(times={FASTER: 40, config("sort"): 900}), effort="oracle")
    assert [len(one.samples_us) for one in measured(store, "race").values()] == [41] * LATTICE


def test_an_interrupted_screening_goes_on_where_it_was(store: Store) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, CandidateMeasured) and event.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_session(store, ReplayWorker(times={FASTER: 40}), tell=interrupt)
    assert len(store.measurements()) == 3
    again = ReplayWorker(times={FASTER: 40})
    run_session(store, again)
    assert sum(count for (method, _), count in again.turns.items() if method == "screen") == CANDIDATES - 3


def test_other_code_is_measured_anew(store: Store) -> None:
    """Torch.topk as it is has no code of its own, and keeps its measurements."""
    run_session(store, ReplayWorker(times={FASTER: 40}, screen_status={FAST: "wrong"}))
    again = ReplayWorker(times={FAST: 30})
    result = run_session(store, again, code="other")
    assert result.measured == {"ok": CANDIDATES}
    screened = [config for method, config in again.turns if method == "screen"]
    assert len(screened) == CANDIDATES - 1
    assert config() not in screened
    assert result.winner is not None
    assert result.winner.candidate.config == FAST


def test_other_files_of_the_same_code_keep_their_measurements(store: Store) -> None:
    """A program made from other files is compiled, and compared with what was measured."""
    run_session(store, ReplayWorker(times={FASTER: 40}))
    first = run_session(store, ReplayWorker(times={FASTER: 40}))
    with Recorded(store) as recorded:
        again = ReplayWorker(times={FASTER: 40})
        result = run_session(recorded, again)
    assert (result.outcome, dict(result.measured or {}), again.turns) == ("known", {}, {})
    assert result.winner is not None
    assert first.winner is not None
    assert result.winner.candidate == first.winner.candidate


def test_measurements_of_unknown_code_are_taken_again(store: Store) -> None:
    """As those of version 0.1 are, whose code is told by a version."""
    run_session(store, ReplayWorker(times={FASTER: 40}))
    with Recorded(store, code="version 891342e304dd") as recorded:
        again = ReplayWorker(times={FASTER: 40})
        assert run_session(recorded, again).measured == {"ok": CANDIDATES}


def test_another_control_is_measured_anew(store: Store) -> None:
    run_session(store, ReplayWorker(times={FASTER: 40}))
    result = run_session(store, ReplayWorker(times={FASTER: 80}), baseline="native")
    assert result.measured == {"ok": CANDIDATES}
    assert result.winner is not None
    assert result.winner.baseline == "native"
    assert result.winner.ratio == pytest.approx(0.8, rel=0.01)


@pytest.mark.parametrize("status", ["crashed", "timeout", "wrong", "out_of_memory", "untimed", "build_failed"])
def test_a_failure_is_recorded_and_blocks(store: Store, status: str) -> None:
    result = run_session(store, ReplayWorker(times={FASTER: 40, FAST: 50}, screen_status={FASTER: status}))  # type: ignore[dict-item]
    assert result.measured == {"ok": CANDIDATES - 1, status: 1}
    assert result.winner is not None
    assert result.winner.candidate.config == FAST
    one = measured(store)[FASTER]
    assert (one.status, one.error, one.ratio, one.samples_us) == (status, "planted", None, ())


def test_a_failure_in_the_race_leaves_the_others_in_it(store: Store) -> None:
    worker = ReplayWorker(times={FASTER: 40, FAST: 60}, race_status={FASTER: "crashed"})
    result = run_session(store, worker)
    assert worker.turns["sample", FASTER] == 1
    assert measured(store)[FASTER].status == "crashed"
    assert result.winner is not None
    assert result.winner.candidate.config == FAST
    assert len(measured(store, "race")) == CANDIDATES, "what was twice as slow as the failed one has its chance"
    assert run_session(store, ReplayWorker()).outcome == "known"


@pytest.mark.parametrize("status", ["crashed", "wrong"])
def test_a_winner_that_fails_on_an_adversary_makes_place(store: Store, status: str) -> None:
    worker = ReplayWorker(times={FASTER: 40, FAST: 50}, worst_status={FASTER: status})  # type: ignore[dict-item]
    result = run_session(store, worker)
    assert measured(store)[FASTER].status == status
    assert result.winner is not None
    assert (result.winner.candidate.config, result.winner.adversarial_slowdown) == (FAST, 1.5)


def test_a_slowdown_that_cannot_be_taken_is_left_open(store: Store) -> None:
    result = run_session(store, ReplayWorker(times={FASTER: 40}, worst_status={FASTER: "timeout"}))
    assert result.winner is not None
    assert (result.winner.candidate.config, result.winner.adversarial_slowdown) == (FASTER, None)


def test_without_torch_topk_there_is_no_race(store: Store) -> None:
    result = run_session(store, ReplayWorker(times={FASTER: 40}, race_status={"torch.topk": "crashed"}))
    assert result.outcome == "failed"
    assert "torch.topk" in (result.error or "")


def test_out_of_time_the_race_is_short_but_held(store: Store) -> None:
    worker = ReplayWorker(times={FASTER: 40}, busy_each_s=1.0)
    result = run_session(store, worker, share_s=5.0)
    assert result.outcome == "tuned"
    assert sum(count for (method, _), count in worker.turns.items() if method == "screen") == 4
    assert {len(one.samples_us) for one in measured(store, "race").values()} == {3}
    later = ReplayWorker(times={FASTER: 40})
    assert run_session(store, later).outcome == "tuned"
    assert sum(count for (method, _), count in later.turns.items() if method == "screen") == CANDIDATES - 4
    assert len(measured(store, "race")[FASTER].samples_us) >= 7


def test_out_of_time_for_anybody_else_torch_topk_wins_nothing(store: Store) -> None:
    worker = ReplayWorker(times={FASTER: 40}, busy_each_s=9.0)
    result = run_session(store, worker, share_s=0.5)
    assert (result.outcome, result.measured, result.winner) == ("partial", {"ok": 1}, None)
    assert store.derive_winners() == []
    assert run_session(store, ReplayWorker(times={FASTER: 40})).outcome == "tuned", "the next run goes on"


def test_those_that_are_sure_are_screened_however_long_it_takes(store: Store) -> None:
    sure = [Candidate("torch_fallback", one) for one in (FAST, FASTER)]
    worker = ReplayWorker(times={FASTER: 40}, busy_each_s=1.0)
    result = run_session(store, worker, share_s=0.5, sure=sure)
    assert set(measured(store, "screen")) == {config(), FAST, FASTER}
    assert result.winner is not None
    assert result.winner.candidate.config == FASTER


@pytest.mark.parametrize(("challenger", "expected"), [(98.0, FAST), (97.6, FAST), (96.0, FASTER)])
def test_the_incumbent_stays_unless_beaten_by_3_percent(store: Store, challenger: float, expected: str) -> None:
    run_session(store, ReplayWorker(times={FAST: 10.0}))
    worker = ReplayWorker(times={FAST: 10.0, FASTER: challenger / 10})
    result = run_session(store, worker, incumbent=winner_of(store), code="now")
    assert result.winner is not None
    assert result.winner.candidate.config == expected


def test_a_winner_gives_way_only_after_a_longer_race(store: Store) -> None:
    run_session(store, ReplayWorker(times={FAST: 10.0}))
    worker = ReplayWorker(times={FAST: 10.0, FASTER: 9.0})
    result = run_session(store, worker, incumbent=winner_of(store), code="now")
    rounds = {name: len(one.samples_us) for name, one in measured(store, "race").items()}
    assert result.winner is not None
    assert result.winner.candidate.config == FASTER
    assert rounds == {FAST: 35, FASTER: 35, config(): 35}
    worker = ReplayWorker(times={FAST: 10.0, FASTER: 9.0})
    again = run_session(store, worker, incumbent=result.winner, code="later")
    rounds = {name: len(one.samples_us) for name, one in measured(store, "race").items()}
    assert again.winner is not None
    assert again.winner.candidate.config == FASTER
    assert max(rounds.values()) < 35, "nothing flipped"


def test_what_one_process_alone_finds_faster_is_no_winner(store: Store) -> None:
    run_session(store, ReplayWorker(times={FAST: 10.0}))
    elsewhere = ReplayWorker(times={FAST: 10.0, FASTER: 10.0})
    worker = ReplayWorker(times={FAST: 10.0, FASTER: 9.0}, elsewhere=elsewhere)
    result = run_session(store, worker, incumbent=winner_of(store), code="now")
    assert result.outcome == "tuned"
    assert result.winner is not None
    assert result.winner.candidate.config == FAST
    assert elsewhere.turns["sample", FASTER] == 21
    assert worker.turns["sample", FASTER] == 21


def test_whoever_was_quicker_is_raced_elsewhere(store: Store) -> None:
    """Two are as quick, so that the first by name would win; what one process says of the other is no reason either."""
    held = config("sort")
    run_session(store, ReplayWorker(times={held: 10.0}))
    elsewhere = ReplayWorker(times={held: 10.0, FAST: 10.0, FASTER: 10.0})
    worker = ReplayWorker(times={held: 10.0, FAST: 9.0, FASTER: 9.0}, elsewhere=elsewhere)
    result = run_session(store, worker, incumbent=winner_of(store), code="now")
    assert result.winner is not None
    assert result.winner.candidate.config == held
    assert {elsewhere.turns["sample", one] for one in (held, FAST, FASTER)} == {21}


def test_where_no_other_process_starts_the_same_decides(store: Store) -> None:
    class Alone(ReplayWorker):
        def start(self) -> None:
            raise MeasurementError("in use by one process exclusively")

    run_session(store, ReplayWorker(times={FAST: 10.0}))
    worker = ReplayWorker(times={FAST: 10.0, FASTER: 9.0}, elsewhere=Alone(times={FAST: 10.0, FASTER: 20.0}))
    result = run_session(store, worker, incumbent=winner_of(store), code="now")
    assert result.outcome == "tuned"
    assert result.winner is not None
    assert result.winner.candidate.config == FASTER


def test_the_incumbent_races_however_slow_it_has_become(store: Store) -> None:
    sort = Candidate("torch_fallback", config("sort"))
    incumbent = Winner(cpu_device(), WORKLOAD.key, sort, NOTHING, 1, 2, 0.5, "aten", "")
    run_session(store, ReplayWorker(times={FASTER: 10.0, config("sort"): 900}), incumbent=incumbent)
    assert set(measured(store, "race")) == {FASTER, config("sort"), config()}


def test_events_tell_how_much_there_is_to_do(store: Store) -> None:
    events: list[Event] = []
    run_session(store, ReplayWorker(), tell=events.append)
    assert events[0] == WorkloadStarted(WORKLOAD, 0, CANDIDATES, CANDIDATES)
    done = [event.done for event in events if isinstance(event, CandidateMeasured)]
    assert done[:CANDIDATES] == list(range(1, CANDIDATES + 1))
    assert max(done) == CANDIDATES
