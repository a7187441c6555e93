"""What earlier turns count for: those of the last code alone, under one baseline."""

from autotopk.candidate import Candidate
from autotopk.tuning.log import Log
from autotopk.tuning_db.winners import Evidence
from tests.tuning_db.examples import WARPS_4, measurement

QUICK = Candidate("quick", WARPS_4)


def test_turns_of_earlier_code_are_forgotten() -> None:
    log = Log()
    log.add(measurement("quick", 0.4, stage="screen"))
    log.add(measurement("quick", 0.4))
    assert log.decided([QUICK], rounds=3)
    log.add(measurement("quick", 0.6, code="v2", stage="screen"))
    assert not log.decided([QUICK], rounds=1)
    assert log.ratios() == log.good([QUICK]) == {QUICK: 0.6}


def test_a_failure_of_the_same_code_blocks_and_keeps_its_race() -> None:
    log = Log()
    log.add(measurement("quick", 0.4, stage="screen"))
    log.add(measurement("quick", None))
    assert log.ratios() == {QUICK: None}
    assert log.good([QUICK]) == {}


def test_other_baselines_do_not_count() -> None:
    evidence = [Evidence(measurement("quick", 0.4, stage="screen"), "aten"), Evidence(measurement("quick"), "native")]
    assert Log.of(evidence, "aten").ratios() == {QUICK: 0.4}
    assert Log.of(evidence, "native").raced.keys() == {QUICK}
    assert Log.of(evidence, "other").latest == {}


def test_what_is_forgotten_is_measured_again() -> None:
    log = Log()
    log.add(measurement("quick", 0.4, stage="screen"))
    log.add(measurement("quick", 0.4))
    log.forget(QUICK)
    assert (log.latest, log.screened, log.raced) == ({}, {}, {})
