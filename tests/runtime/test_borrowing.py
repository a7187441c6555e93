"""GPUs that are alike lend each other winners: which, in which order, and what is said of it."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import autotopk
from autotopk.candidate import Candidate
from autotopk.cli import doctor
from autotopk.device import H100, Device
from autotopk.identity import Identity
from autotopk.problem import Problem
from autotopk.runtime.borrowing import holders
from autotopk.runtime.explain import Explanation, explain_problem
from autotopk.runtime.state import default
from autotopk.tuning_db import artifact
from autotopk.tuning_db.records import Winner
from tests.runtime.conftest import Planted
from tests.runtime.winners import winner

HERE = replace(H100, name="NVIDIA Here", memory_gib=140)
TWIN = replace(H100, name="NVIDIA Twin")
KIN = replace(H100, name="NVIDIA Kin", processors=114)
FAR_KIN = replace(H100, name="NVIDIA Far Kin", processors=78)
STRANGER = replace(H100, name="NVIDIA Stranger", capability=(8, 0))
KNOBS = ['{"knob":0}', '{"knob":1}']


def measured(
    device: Device, rows: int = 64, cols: int = 4096, k: int = 128, knob: int = 1, **changes: object
) -> Winner:
    """The planted strategy, as its code is today."""
    problem = Problem.contiguous(rows, cols, k)
    identity = Planted().program(None, problem, device).identity(problem, device.arch)  # type: ignore[arg-type]
    candidate = Candidate("planted", KNOBS[knob])
    return replace(winner(rows, cols, k), device=device, candidate=candidate, identity=identity, **changes)  # type: ignore[arg-type]


def explained(rows: int = 64, cols: int = 4096, k: int = 128) -> Explanation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", autotopk.AutotopkWarning)
        return explain_problem(Problem.contiguous(rows, cols, k), HERE)


def lent(explanation: Explanation) -> tuple[str, str]:
    """The step, and who measured."""
    found = explanation.choice.winner
    return explanation.choice.step, "nobody" if found is None else found.device.name


@pytest.fixture
def user_winners(cache_dir: Path, planted: Planted) -> Path:
    return cache_dir / "winners.sqlite"


def test_who_lends(user_winners: Path) -> None:
    artifact.publish([measured(one) for one in (FAR_KIN, STRANGER, KIN, TWIN, HERE)], user_winners)
    _, (twins, kin) = holders(HERE, default.known())
    assert [one.device for one in twins] == [TWIN]
    assert [one.device for one in kin] == [KIN, FAR_KIN]
    assert holders(replace(HERE, type="cpu"), default.known())[1] == ([], [])


def test_the_order_of_lenders(user_winners: Path) -> None:
    own, near = measured(HERE), measured(HERE, k=64)
    steps = [
        ([own, measured(TWIN)], ("exact", HERE.name)),
        ([near, measured(TWIN), measured(KIN)], ("exact", TWIN.name)),
        ([near, measured(TWIN, k=120), measured(KIN)], ("bucket", TWIN.name)),
        ([near, measured(TWIN, k=32), measured(KIN)], ("neighbour", HERE.name)),
        ([measured(TWIN, k=64), measured(KIN)], ("neighbour", TWIN.name)),
        ([measured(FAR_KIN), measured(KIN, k=64)], ("neighbour", KIN.name)),
        ([measured(FAR_KIN), measured(STRANGER)], ("exact", FAR_KIN.name)),
        ([measured(STRANGER)], ("heuristic", "nobody")),
    ]
    for winners, expected in steps:
        artifact.publish(winners, user_winners)
        autotopk.reload()
        assert lent(explained()) == expected


def test_current_winners_of_a_twin_precede_stale_own_ones(user_winners: Path) -> None:
    stale = replace(measured(HERE, knob=0), identity=Identity("other", "other"))
    for winners, name in (
        ([stale, measured(TWIN)], TWIN.name),
        ([stale, measured(KIN)], KIN.name),
        ([stale, replace(measured(TWIN), identity=stale.identity)], HERE.name),
        ([stale], HERE.name),
    ):
        artifact.publish(winners, user_winners)
        autotopk.reload()
        assert lent(explained()) == ("exact", name)


def test_what_does_not_fit_is_not_borrowed(
    user_winners: Path, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact.publish([measured(TWIN)], user_winners)
    monkeypatch.setattr(planted, "valid", lambda config, problem, device: device != HERE)
    found = explained()
    assert lent(found) == ("heuristic", "nobody")
    assert f"measured at 64x4096 k=128 float32 sorted on {TWIN.name}: the configuration does not fit" in str(found)


def test_it_is_said_once(user_winners: Path) -> None:
    artifact.publish([measured(TWIN), measured(TWIN, k=8)], user_winners)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [explain_problem(Problem.contiguous(64, 4096, k), HERE) for k in (128, 8, 128)]
    said = [str(one.message) for one in caught]
    assert len(said) == 1
    assert said[0].startswith(f"nothing was tuned on {HERE.name}: winners of {TWIN.name} are borrowed; `autotopk tune`")
    assert f"by exact, borrowed from {TWIN.name}: measured 5.0 us" in str(found[0])
    assert found[0].to_dict()["measured_on"] == TWIN.name


def test_nothing_is_said_where_the_device_has_winners(user_winners: Path) -> None:
    artifact.publish([measured(HERE, k=8), measured(TWIN)], user_winners)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = explain_problem(Problem.contiguous(64, 4096, 128), HERE)
    assert lent(found) == ("exact", TWIN.name)


def test_doctor_names_lenders(user_winners: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact.publish([measured(TWIN), measured(TWIN, k=8), measured(KIN), measured(STRANGER)], user_winners)
    monkeypatch.setattr(doctor, "devices_here", lambda: [HERE])
    said = [one.text for one in doctor.examine() if "borrows" in one.text]
    assert said == [
        f"{HERE.name} borrows from {TWIN.name}, which has as many multiprocessors: 2 winners",
        f"{HERE.name} borrows from {KIN.name}, which has the same compute capability: 1 winner",
    ]
