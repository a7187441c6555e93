"""Which winners are shipped, and whether two databases contradict each other."""

from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import pytest

from autotopk import settings
from autotopk.candidate import Candidate, knobs_json
from autotopk.device import H100
from autotopk.identity import Identity
from autotopk.key import TuningKey
from autotopk.packs import Check, read_check
from autotopk.problem import Problem
from autotopk.runtime import borrowing
from autotopk.tuning import bounds
from autotopk.tuning.candidates import program_of
from autotopk.tuning_db import artifact
from autotopk.tuning_db.records import Measurement
from autotopk.tuning_db.store import Store
from scripts import flips, ship
from tests.packaging.test_packs import FOLDER
from tests.tuning_db.examples import ATEN, measurement, winner

FAST, SLOW = Candidate("a", '{"warps":4}'), Candidate("b", '{"warps":4}')


@pytest.fixture
def stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borrowing, "is_stale", lambda one: one.identity.code == "old")
    monkeypatch.setattr(ship, "is_known", lambda one: one.identity.code != "old")


@pytest.mark.usefixtures("stale")
def test_an_incumbent_stays_unless_it_is_beaten_or_of_other_code() -> None:
    held = winner(candidate=FAST, ratio=0.5)
    for ratio, raced, why in (
        (0.49, None, "kept"),
        (0.48, None, "faster"),
        (0.48, 0.49, "kept"),
        (0.55, 0.57, "faster"),
    ):  # in one run both may be faster, or slower
        again = {} if raced is None else {(held.device.fingerprint, held.key, FAST): raced}
        found = ship.chosen([held], [winner(candidate=SLOW, ratio=ratio)], again)
        assert [name for name, several in found.items() if several] == [why]
    old = replace(held, identity=replace(held.identity, code="old"))
    for ratio, raced, why in (
        (0.6, False, "kept, stale"),
        (0.6, True, "measured again"),
        (0.51, False, "measured again"),
    ):
        again = {(old.device.fingerprint, old.key, FAST): 0.7} if raced else {}
        found = ship.chosen([old], [winner(candidate=SLOW, ratio=ratio)], again)
        assert [name for name, several in found.items() if several] == [why]
    assert [len(one) for one in ship.chosen([held], [], {}).values()] == [1, 0, 0, 0, 0, 0]
    assert [len(one) for one in ship.chosen([], [held], {}).values()] == [0, 0, 0, 0, 1, 0]


def test_what_may_be_another_program_gives_way_to_what_was_measured_again() -> None:
    """Nobody compiled what a winner's source is today, so that nothing tells whether its machine code is as it was."""
    problem = Problem.contiguous(1, 1 << 20, 3, "float32", "cuda")
    candidate = Candidate("grid_maxima", knobs_json({"blocks": 77, "threads": 256, "loads": 2, "capacity": 512}))
    now = Identity(program_of(candidate, problem, H100).source_digest(problem, 90), "b" * 32)
    again = replace(winner(candidate=candidate), device=H100, key=TuningKey.of(problem), identity=now)
    held = replace(again, identity=replace(now, source="a" * 32))
    raced = {(H100.fingerprint, again.key, candidate): 0.5}
    assert ship.chosen([held], [again], raced)["measured again"] == [again]
    assert ship.chosen([again], [held], raced)["kept"] == [again]


@pytest.mark.usefixtures("stale")
def test_what_another_gpu_raced_tells_nothing() -> None:
    held, other = winner(candidate=FAST, ratio=0.5), winner(candidate=SLOW, ratio=0.48)
    assert ship.chosen([held], [other], {("another", held.key, FAST): 0.4})["faster"] == [other]


@pytest.mark.usefixtures("stale")
def test_stale_ones_of_other_gpus_are_left_out() -> None:
    held = winner(candidate=FAST)
    old = replace(held, identity=replace(held.identity, code="old"))
    elsewhere = [replace(one, device=replace(H100, name="another GPU")) for one in (held, old)]
    found = ship.chosen([elsewhere[1]], [held], {})
    assert {why: several for why, several in found.items() if several} == {"new": [held], ship.GONE: [elsewhere[1]]}
    assert ship.chosen([elsewhere[0]], [held], {})["kept"] == [elsewhere[0]]


def test_what_is_known_of_kernels_stays_where_others_are_checked() -> None:
    shipped, found = (
        Check("H200", frozenset({"a", "gone", "worse"}), {"b": "hangs"}),
        Check("H200", frozenset({"b", "c"}), {"worse": "wrong"}),
    )
    assert ship.checked(shipped, found, {"a", "b", "c", "worse"}) == Check(
        "H200", frozenset({"a", "b", "c"}), {"worse": "wrong"}
    )
    assert ship.checked(None, found, {"b"}) == Check("H200", frozenset({"b"}))


def test_a_check_is_added_to_the_one_beside_the_packs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("sm_90.pack", "sm_90.check", "sources.json"):
        copyfile(FOLDER / name, tmp_path / name)
    monkeypatch.setenv("AUTOTOPK_PACKS", str(tmp_path))
    known = read_check(FOLDER / "sm_90.check")
    assert known is not None
    some = sorted(known.passed)[:3]
    (tmp_path / "sm_90.check").write_text(replace(known, passed=known.passed - {*some}).to_json())
    (cache := tmp_path / "checks").mkdir()
    (cache / "sm_90.check").write_text(Check(known.device, frozenset(some)).to_json())
    ship.ship_check(cache / "sm_90.check")
    assert read_check(tmp_path / "sm_90.check") == known
    with pytest.raises(ValueError, match="does not say"):
        ship.ship_check(tmp_path / "sm_91.check")


def database(path: Path, **ratios: float) -> Path:
    """Of races of strategies."""
    with Store.open(path) as store:
        first: Measurement = measurement("a", 0.5)
        run = store.begin_run(first.device, ATEN, {})
        store.record(run, [measurement(name, ratio) for name, ratio in ratios.items()])
        store.derive_winners()
    return path


@pytest.mark.usefixtures("stale")
def test_what_is_shipped_is_the_incumbent_of_a_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of two that are as fast the one that was shipped stays, though its kernel is other code since."""
    path, measured = tmp_path / "winners.sqlite", measurement("z", 0.5)
    monkeypatch.setattr(settings, "shipped_winners_path", lambda: path)
    monkeypatch.setattr(ship, "tuned", lambda: ({}, measured.device))
    monkeypatch.setattr(bounds, "fit", lambda *_: {})
    for held in ("z", "a"):
        one = winner(device=measured.device, key=measured.key, candidate=measurement(held, 0.5).candidate)
        artifact.publish([replace(one, identity=replace(one.identity, code="old"))], path, [])
        ship.main([str(database(tmp_path / f"{held}.sqlite", a=0.495, z=0.5))])
        (found,) = artifact.read(path)
        assert (found.candidate.strategy, found.identity) == (held, measured.identity)


def test_flips_are_told_and_those_that_contradict_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = database(tmp_path / "one.sqlite", a=0.5, b=0.6)
    near = database(tmp_path / "near.sqlite", a=0.507, b=0.5)
    other = database(tmp_path / "other.sqlite", a=0.6, b=0.5)
    alone = database(tmp_path / "alone.sqlite", c=0.5)
    flips.main([str(one), str(one), str(other), "--json", str(tmp_path / "flips.json")])
    first, second, *lines = capsys.readouterr().out.splitlines()
    assert first == "one.sqlite, one.sqlite: 1 workloads, 0 flips, 0 outside of the tie band"
    assert second == "one.sqlite, other.sqlite: 1 workloads, 1 flips, 1 outside of the tie band"
    assert "OUTSIDE" in lines[0]
    assert "slower by +20.0% and +20.0%" in lines[0]
    assert (tmp_path / "flips.json").exists()
    for pair, outside in (((one, near), 0), ((one, alone), 1)):
        _, found = flips.flips(*pair)
        assert sum(flip.outside for flip in found) == outside
