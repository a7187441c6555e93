"""Where nothing was tuned, what is predicted to take the least time answers, of what is there; `explain` says why."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import pytest
import torch

import autotopk
from autotopk import doubt, kernel, packs, settings
from autotopk.candidate import Candidate
from autotopk.device import H100, Device, cpu_device
from autotopk.fitted import rows_of
from autotopk.forest import INNER, LEAVES, NO_QUESTION, Forest
from autotopk.kernel import Kernel, KernelSource
from autotopk.key import TuningKey
from autotopk.packs.file import Stored
from autotopk.prediction import Example, Model, Point, Region, cell_of, kind_of, place_of, sizes_of
from autotopk.problem import Problem
from autotopk.runtime import dispatch, launch, planning, predicting
from autotopk.runtime.state import default
from autotopk.strategy import numbers
from autotopk.tuning_db import artifact
from autotopk.tuning_db.records import Winner
from autotopk.workloads import spread
from scripts.predictions import tuned
from tests.packaging.processes import ROOT
from tests.runtime.laddered import Driver, Laddered, Rung, settled
from tests.runtime.same import check, told, unwarned
from tests.runtime.winners import CHUNKED, coefficients, winner

X = torch.randn(4, 2048)
K = 9
KIND = "topk of floats of 32 bits"
"""Of the CPU."""


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As users have it."""
    monkeypatch.delenv("AUTOTOPK_BUILD")
    yield
    default.builds.stop()


def model(first: str = "", **residuals: float) -> Model:
    """Of 10 us for every kernel of `Laddered`, as many times e as said there, and 100 us for torch.topk.

    At the only point the kernel `first` is.
    """
    key = TuningKey("float32", X.shape[0], X.shape[1], K, True)
    anything = (1e30,) * 6
    names = {f'laddered {{"name":"{name}"}}': residual for name, residual in residuals.items()}
    return Model(
        strategies={
            "laddered": (10.0, 0, 0, 0, 0, 0, *anything),
            "torch_fallback": coefficients("torch_fallback", 100.0),
        },
        candidates=dict.fromkeys(names, 3),
        points=[Point(place_of(key), names, first=first and f'laddered {{"name":"{first}"}}')],
        regions={cell_of(key): Region(1.04, 5)},
    )


def publish(its: Model, *winners: Winner, device: Device | None = None) -> None:
    device = device or cpu_device()
    rows = rows_of(its, device.fingerprint, kind_of(winner(64, 300, 3).key, device.type))
    artifact.publish(winners or [replace(winner(64, 300, 3), device=device)], settings.user_winners_path(), rows)
    autotopk.reload()


def ran() -> str:
    choice = autotopk.explain(X, K).choice
    return f"{choice.step} {choice.candidate.knobs.get('name', 'torch')}"


def test_the_least_predicted_time_is_chosen(strategy: Laddered, driver: Driver) -> None:
    publish(model(low=0.1, high=0.3, fast=-0.5, usual=0.0))
    assert ran() == "predicted fast"
    publish(model(low=-0.6, high=0.3, fast=-0.5, usual=0.0))
    assert ran() == "predicted low"


def test_explain_says_what_it_rests_on(strategy: Laddered, driver: Driver) -> None:
    publish(model(fast=-0.5, low=0.0))
    explained = autotopk.explain(X, K)
    said = str(explained)
    assert "by predicted: predicted 6.6 us from 5 points around, 3 of its own" in said
    assert "at most 4.0% slower than the best" in said
    found = explained.to_dict()["predicted"]
    assert found == {"time_us": pytest.approx(6.59, abs=0.01), "points": 3, "bound": 1.04, "points_around": 5}
    assert json.loads(json.dumps(explained.to_dict()["predicted"])) == found


def test_what_is_surer_has_a_narrower_bound(strategy: Laddered, driver: Driver) -> None:
    """`low` is near `fast`, and both are off by as much as they say at the only point; what is behind is worse."""
    its = model(fast=-0.5, low=-0.45, high=0.3, usual=0.3)
    its.points[0].off = 0.02
    near = [("laddered", f'laddered {{"name":"{name}"}}', us) for name, us in (("fast", 6.59), ("low", 6.87))]
    key = TuningKey("float32", X.shape[0], X.shape[1], K, True)
    doubtful = doubt.doubt_of(its.contests(key, near), its.differing(key))
    assert doubtful > 0.1
    for cut, bound in ((1.01 * doubtful, 1.05), (0.99 * doubtful, 1.15)):
        its.levels = [doubt.Level(cut, 1.05), doubt.Level(inf, 1.15)]
        publish(its)
        explained = autotopk.explain(X, K)
        assert explained.to_dict()["predicted"]["bound"] == bound
        assert f"at most {bound - 1:.1%} slower than the best" in str(explained)
    its.points[0].residuals['laddered {"name":"low"}'] = 0.3
    publish(its)
    assert "at most 5.0% slower" in str(autotopk.explain(X, K)), "nothing is near it"
    with pytest.warns(UserWarning, match="left out"):
        default.block(Candidate("laddered", '{"name":"fast"}'), cpu_device(), RuntimeError())
    found = autotopk.explain(X, K).choice.prediction
    assert found is not None
    assert found.bound == pytest.approx(1.05 * found.time_us / 6.59, rel=1e-3)


@unwarned
def test_what_is_there_answers_and_the_best_is_built(background: None, strategy: Laddered, driver: Driver) -> None:
    publish(model(fast=-1.0, low=-0.5, high=0.0, usual=0.5))
    strategy.load("high")
    assert ran() == "predicted high"
    assert "predicted to take 4.3 us: not compiled yet" in str(autotopk.explain(X, K))
    check(X, K)
    settled()
    check(X, K)
    assert driver.launched == ["high", "fast"]
    assert ran() == "predicted fast"


@unwarned
def test_a_first_call_takes_what_is_first_nearby(background: None, strategy: Laddered, driver: Driver) -> None:
    """What is better, and is there, too, takes over after it; of what was weighed once a call asks for everything."""
    publish(model("high", fast=-1.0, low=-0.5, high=0.0, usual=0.5))
    for name in ("high", "fast"):
        strategy.load(name)
    check(X, K)
    settled()
    check(X, K)
    assert driver.launched == ["high", "fast"]
    assert not strategy.log.exists()
    default.forget_plans()
    check(X, K)
    settled()
    check(X, K)
    assert driver.launched == ["high", "fast", "fast", "fast"]


@unwarned
def test_what_was_weighed_is_loaded_for_a_capture(
    background: None, strategy: Laddered, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a server that calls once, then captures."""
    publish(model("high", fast=-1.0, low=-0.5, high=0.0, usual=0.5))
    for name in ("high", "fast"):
        strategy.load(name)
    check(X, K)
    settled()
    monkeypatch.setattr(launch, "captured_on", lambda x: 0)
    check(X, K)
    assert driver.launched == ["high", "fast"]


@unwarned
@pytest.mark.parametrize("mode", ["never", "wait", "background", "large"])
def test_a_first_call_weighs_everything_where_nothing_follows_or_after_a_warmup(
    mode: str, background: None, monkeypatch: pytest.MonkeyPatch, strategy: Laddered, driver: Driver
) -> None:
    """Or where the input is so large that its kernel takes longer."""
    if mode == "large":
        monkeypatch.setattr(planning, "HURRIED_BYTES", X.nbytes - 1)
    else:
        monkeypatch.setenv("AUTOTOPK_BUILD", mode)
    publish(model("high", fast=-1.0, low=-0.5, high=0.0, usual=0.5))
    for name in ("high", "fast"):
        strategy.load(name)
    if mode == "background":
        rows, cols = X.shape
        autotopk.warmup((rows, cols, K), load=False, device="cpu")
    check(X, K)
    settled()
    assert driver.launched == ["fast"]


@unwarned
@pytest.mark.parametrize("why", ["no first", "not there", "failed", "no room", "unfitted", "other knobs"])
def test_a_first_call_weighs_everything_where_nothing_nearby_can_serve(
    why: str, background: None, monkeypatch: pytest.MonkeyPatch, strategy: Laddered, driver: Driver
) -> None:
    its = model("" if why == "no first" else "high", fast=-1.0, low=-0.5, high=0.0, usual=0.5)
    if why == "unfitted":
        del its.strategies["laddered"]
    if why == "other knobs":  # as another version may have had
        its.points[0].first = 'laddered {"rung":"high"}'
        its.candidates[its.points[0].first] = 1
    publish(its)
    for name in ("fast", "usual", *["high"] * (why != "not there")):
        strategy.load(name)
    if why == "failed":
        with pytest.warns(UserWarning, match="left out"):
            default.block(Candidate("laddered", '{"name":"high"}'), cpu_device(), RuntimeError())
    if why == "no room":
        monkeypatch.setattr(Laddered, "valid", lambda self, config, *_: config.name != "high")
    check(X, K)
    assert driver.launched == ["usual" if why == "unfitted" else "fast"]


@unwarned
def test_the_nearest_that_serves_is_taken(background: None, strategy: Laddered, driver: Driver) -> None:
    its = model("high", fast=-1.0, low=-0.5, high=0.0, usual=0.5)
    [here] = its.points
    for away, name in ((0.5, "low"), (0.2, "usual")):
        its.points.append(
            replace(here, place=(here.place[0] + away, *here.place[1:]), first=f'laddered {{"name":"{name}"}}')
        )
    publish(its)
    strategy.load("low")
    check(X, K)
    strategy.load("usual")
    default.forget_plans()
    default.weighed.clear()
    check(X, K)
    assert driver.launched == ["low", "usual"]
    default.builds.stop()


@unwarned
def test_what_was_first_nearby_may_be_of_a_strategy_that_is_gone(
    background: None, strategy: Laddered, driver: Driver
) -> None:
    its = model("high", fast=1.0, low=0.5, high=0.0, usual=0.5)
    [here] = its.points
    its.points.append(replace(here, place=(here.place[0] + 0.2, *here.place[1:])))
    its.strategies["gone"], its.candidates['gone {"name":"high"}'] = its.strategies["laddered"], 1
    here.first = 'gone {"name":"high"}'
    publish(its)
    strategy.load("high")
    check(X, K)
    assert driver.launched == ["high"]
    [plan] = default.plans("topk").values()
    assert (plan.choice.step, plan.choice.prediction) == ("predicted", None), "nothing was weighed"


class _Shipped(NamedTuple):
    """A store of one kernel."""

    source: KernelSource
    kernel: Kernel
    label: str = "pack"

    def find(self, source: KernelSource, arch: int) -> Stored | None:
        found = Stored("its", self.kernel.code, lambda: self.kernel.to_bytes("its"))
        return found if source == self.source else None


@unwarned
def test_where_kernels_come_along_a_first_call_takes_one_of_them(
    background: None, monkeypatch: pytest.MonkeyPatch, strategy: Laddered, driver: Driver
) -> None:
    """Though what is first nearby was compiled here: that is weighed after it."""
    its = model("high", fast=1.0, low=0.5, high=0.0, usual=0.5)
    [here] = its.points
    its.points.append(replace(here, place=(here.place[0] + 0.2, *here.place[1:]), first='laddered {"name":"low"}'))
    publish(its)
    for name in ("high", "low"):
        strategy.load(name)
    low = strategy.source("low")
    monkeypatch.setattr(kernel, "STORES", [_Shipped(low, low.load(0))])
    monkeypatch.setattr(packs, "pack", lambda arch: True)
    check(X, K)
    settled()
    check(X, K)
    assert driver.launched == ["low", "high"]


@unwarned
def test_nothing_better_leaves_the_plan(background: None, strategy: Laddered, driver: Driver) -> None:
    publish(model("low", fast=0.5, low=-0.5, high=0.0, usual=0.5))
    strategy.load("low")
    check(X, K)
    plans = list(default.plans("topk").values())
    settled()
    assert list(default.plans("topk").values()) == plans
    assert not strategy.log.exists()


@unwarned
@pytest.mark.parametrize("first", ["", "low"])
def test_what_is_a_little_faster_is_not_built(first: str, background: None, strategy: Laddered, driver: Driver) -> None:
    """A rung is compiled already, most of the time."""
    publish(model(first, fast=-0.504, low=-0.5))
    strategy.load("low")
    check(X, K)
    settled()
    check(X, K)
    assert driver.launched == ["low", "low"]
    assert not strategy.log.exists()


def test_torch_is_chosen_where_it_is_faster(strategy: Laddered, driver: Driver) -> None:
    slow = model()
    slow.strategies["laddered"] = (200.0, *slow.strategies["laddered"][1:])
    publish(slow)
    assert ran() == "predicted torch"
    check(X, K)
    assert driver.launched == []


def test_torch_is_chosen_where_little_is_gained(strategy: Laddered, driver: Driver) -> None:
    """Of it most is known: the tenth by which another is predicted to be faster is less than predictions are off by."""
    for us, step in ((85.0, "predicted fast"), (95.0, "predicted torch")):
        alike = model(fast=0.0, low=0.1, high=0.1, usual=0.1)
        alike.strategies["laddered"] = (us, *alike.strategies["laddered"][1:])
        publish(alike)
        assert ran() == step


def test_torch_is_chosen_where_little_is_sure(strategy: Laddered, driver: Driver) -> None:
    """What may take nine times the best is asked to be nine times as fast."""
    its = model(fast=-0.5, high=0.0)
    cell = next(iter(its.regions))
    for bound, step in ((1.9, "predicted fast"), (9.0, "predicted fast"), (20.0, "predicted torch")):
        its.regions[cell] = Region(bound, 5)
        publish(its)
        assert ran() == step
    its.regions[cell] = Region(11.0, 5)
    publish(its)
    with pytest.warns(UserWarning, match="left out"):
        default.block(Candidate("laddered", '{"name":"fast"}'), cpu_device(), RuntimeError())
    assert ran() == "predicted torch"


def test_a_tuned_point_keeps_its_winner(strategy: Laddered, driver: Driver) -> None:
    publish(model(fast=-0.5), winner(4, 2048, K, candidate=Candidate("laddered", '{"name":"high"}')))
    assert ran() == "exact high"


def test_outside_of_all_regions_is_a_miss(
    strategy: Laddered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: Driver
) -> None:
    monkeypatch.setenv("AUTOTOPK_MISSES", str(tmp_path / "misses"))
    publish(model(fast=-0.5))
    far = torch.randn(2, 60_000)
    with pytest.warns(UserWarning, match="nothing like 2x60000 k=600"):
        explained = autotopk.explain(far, 600)
    assert explained.choice.step == "heuristic"
    assert "  not predicted: nothing was measured around" in str(explained)
    assert "60000" in (tmp_path / "misses").read_text()
    near, beyond = TuningKey("float32", 4, 2048, K, True), TuningKey("float32", 2, 60_000, 600, True)
    found = predicting.model_for(near, cpu_device(), default.known())
    assert found is not None
    assert found.bound(near) == 1.04
    assert found.bound(beyond) == float("inf")


def test_on_a_cpu_widths_say_nothing_of_each_other(strategy: Laddered, driver: Driver) -> None:
    its = model(fast=-0.5)
    its.regions[cell_of(TuningKey("bfloat16", X.shape[0], X.shape[1], K, True))] = Region(1.04, 5)
    publish(its)
    assert ran() == "predicted fast"
    assert autotopk.explain(X.bfloat16(), K).choice.step != "predicted"


def test_a_strategy_whose_terms_are_others_today_is_not_predicted(strategy: Laddered, driver: Driver) -> None:
    other = model(fast=-0.5)
    other.strategies["laddered"] = (10.0, 0.0, 1e30, 1e30)
    publish(other)
    assert ran() == "predicted torch"


def test_examples_tell_whether_terms_are_the_same_today(strategy: Laddered, driver: Driver) -> None:
    its = model(fast=-0.5)
    key = TuningKey("float32", X.shape[0], X.shape[1], K, True)
    problem = Problem.contiguous(4, 2048, K, device_type="cpu")
    terms = tuple(strategy.terms(Rung("fast"), problem, cpu_device()))
    its.examples = [Example(key, Candidate("laddered", '{"name":"fast"}'), terms)]
    publish(its)
    assert ran() == "predicted fast"
    its.examples = [its.examples[0]._replace(terms=(*terms[:-1], terms[-1] * 1.1))]
    publish(its)
    assert ran() == "heuristic usual"
    its.examples = [its.examples[0]._replace(terms=terms, candidate=Candidate("laddered", '{"other":"fast"}'))]
    publish(its)
    assert ran() == "heuristic usual"


@pytest.mark.parametrize(("fewer", "expected"), [(0, "predicted fast"), (2, "heuristic usual")])
def test_trees_that_ask_other_traits_are_as_if_nothing_was_measured(
    fewer: int, expected: str, strategy: Laddered, driver: Driver
) -> None:
    """As in files of earlier versions, where a strategy would have no time at all, and others be chosen."""
    its, key = model(fast=-0.5), TuningKey("float32", X.shape[0], X.shape[1], K, True)
    problem = Problem.contiguous(4, 2048, K, device_type="cpu")
    terms = tuple(strategy.terms(Rung("fast"), problem, cpu_device()))
    traits = len((*sizes_of(key), *numbers(Rung("fast")), *terms)) - fewer
    its.forests = {"laddered": Forest([traits, *[0] * traits, *[NO_QUESTION] * INNER, *[0] * LEAVES])}
    its.examples = [Example(key, Candidate("laddered", '{"name":"fast"}'), terms)]
    publish(its)
    assert ran() == expected


def test_nothing_is_predicted_beside_a_strategy_that_was_never_measured(strategy: Laddered, driver: Driver) -> None:
    its = model(fast=-0.5)
    del its.strategies["laddered"]
    publish(its)
    assert ran() == "heuristic usual"
    assert "not predicted: laddered may be faster, and was measured nowhere" in str(autotopk.explain(X, K))


def test_terms_beyond_what_was_measured_say_nothing(strategy: Laddered, driver: Driver) -> None:
    small = model(fast=-0.5)
    small.strategies["laddered"] = (10.0, 0, 0, 0, 0, 0, 1e30, 1000.0, *(1e30,) * 4)  # bytes
    publish(small)
    assert ran() == "predicted torch"


def test_a_neighbour_is_next_where_nothing_predicted_can_run(
    background: None, strategy: Laddered, driver: Driver
) -> None:
    its = model(fast=-0.5)
    del its.strategies["torch_fallback"]
    publish(its, winner(4, 2048, 2 * K, CHUNKED))
    assert ran() == "neighbour torch"


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ("[1,", "Expecting value"),
        ("[NaN]", "not a JSON array of finite numbers"),
        ("[[1]]", "not a JSON array of finite numbers"),
        ('{"a":1}', "not a JSON array of finite numbers"),
        ("[" * 5000, "not JSON"),
        ("[1,2]", "not enough values"),
        ("[4,2048,9,2,1,-1,0]", "what was fitted is odd"),
        ("[4,2048,9,2,1,-1,0,1,0]", "points end too soon"),
        ("[4,2048,9,2,1,-1,0,-1]", "points end too soon"),
        ("[4,2048,9,2,1,-1,-1,0,0]", "points end too soon"),
        ("[4,2048,9,2,1,-2,0,0]", "places below 0"),
        ("[4,2048,9,2,1,-1,1,-1,0]", "places below 0"),
        ("[4,2048,9,2,1,-1,0,1,-1,5]", "places below 0"),
        ("[4,2048,9,2,1,99,0,0]", "what was fitted is odd"),
        ("[4,2048,9,2,1,-1,0.0,0]", "what was fitted is odd"),
        ("[4,2048,9,2,1,-1,0,1,0.0,5]", "what was fitted is odd"),
        ("[4,2048,9,2,1,-1,0,1,99,5]", "what was fitted is odd"),
        ("[0,2048,9,2,1,-1,0,0]", "math domain error|positive"),
        ("[4,2048,9,2,1,-1,0,1,0,500001]", "a residual that no time has"),
        ("[4,2048,9,2,1,-1,0,1,0,1e308,1e308]", "what was fitted is odd|too soon|not enough|no time has"),
        ("[4,1e999]", "not a JSON array of finite numbers"),
    ],
)
def test_odd_numbers_cost_a_warning(numbers: str, reason: str, strategy: Laddered, driver: Driver) -> None:
    publish(model(fast=-0.5))
    path = settings.user_winners_path()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE fitted SET numbers = ? WHERE part = 'points'", [numbers])
        rows = [*artifact._device_rows(connection), *artifact._rows(connection), *artifact._fitted_rows(connection)]
        connection.execute("UPDATE digest SET sha256 = ?", [artifact._digest(rows)])
    autotopk.reload()
    with pytest.warns(UserWarning, match=rf"times of {KIND} are not predicted: .*({reason})"):
        choice = autotopk.explain(X, K).choice
    assert choice.step == "heuristic"


def test_a_twin_lends_its_predictions() -> None:
    twin = replace(H100, name="NVIDIA H100 PCIe", memory_gib=80)
    its = Model(
        strategies={"block_radix": coefficients("block_radix", 5.0)},
        regions={cell_of(TuningKey("float32", 64, 5000, 100, True)): Region(1.2, 3)},
    )
    publish(its, device=twin)
    choice = dispatch.choose(Problem.contiguous(64, 5000, 100), H100)
    assert (choice.step, choice.strategy.name) == ("predicted", "block_radix")
    kin = replace(H100, name="NVIDIA H100 NVL", processors=114)
    assert dispatch.choose(Problem.contiguous(64, 5000, 100), kin).step != "predicted"


def test_of_several_layers_the_surest_is_asked(
    strategy: Laddered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: Driver
) -> None:
    deployed, sure = tmp_path / "winners.sqlite", model(fast=-0.5)
    monkeypatch.setenv("AUTOTOPK_DB", str(deployed))
    for bound, expected in (
        (1.03, "predicted high"),
        (1.04, "predicted high"),
        (1.5, "predicted fast"),
        (None, "predicted fast"),
    ):
        its = model(high=-0.5)
        cell = next(iter(its.regions))
        its.regions = {} if bound is None else {cell: Region(bound, 5)}
        rows = rows_of(its, cpu_device().fingerprint, KIND)
        artifact.publish([winner(64, 300, 3)], deployed, rows)
        publish(sure)
        assert ran() == expected


def test_nothing_is_said_of_a_prediction() -> None:
    publish(model(fast=-0.5))
    assert told(lambda: autotopk.topk(X, K)) == []


def test_what_is_there_may_come_after_two_dozen_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a shape without winners all that is predicted is asked for, before rules are."""
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    problem, device = Problem.contiguous(53_098, 98, 2, sorted=False), tuned()[1]
    kernels = packs.Packs(ROOT / "autotopk" / "packs").pack(90)
    asked: list[str] = []

    def ready(choice: dispatch.Choice, problem: Problem) -> str:
        asked.append(choice.step)
        sources = choice.program(problem, device).sources
        return "" if kernels and all(packs.name_of(one, 90) in kernels.kernels for one in sources) else "absent"

    assert dispatch.choose(problem, device, ready=ready).step == "predicted"
    assert len(asked) > 12


@pytest.mark.parametrize(("rows", "cols", "k"), [(7, 84_818, 3380), (1, 115_143, 13_552)])
def test_a_family_whose_rungs_are_far_behind_may_have_better(
    rows: int, cols: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rung for unaligned rows of integers has blocks enough: the best of them takes over twice as long."""
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    problem, device = Problem.contiguous(rows, cols, k, "int32", sorted=False), tuned()[1]
    chosen = dispatch.choose(problem, device)
    assert chosen.candidate.strategy == "cluster_radix"
    assert chosen.config not in chosen.strategy.ladder(problem, device)


def test_what_is_first_nearby_is_nearly_as_quick_as_the_best_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is shipped and predicted of shapes that nobody tuned."""
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "1")
    device, over = tuned()[1], list[float]()
    drawn = spread(200, seed=6)
    for workload in drawn:
        problem, key = workload.problem("cuda"), workload.key
        its = predicting.model_for(key, device, default.known())
        assert its is not None
        best = next(one for one in predicting.proposals(problem, device, its) if one.at_once)
        for strategy, config in predicting.at_points(problem, device, its):
            terms, name = strategy.terms(config, problem, device), str(strategy.candidate(config))
            time_us = its.time_us(strategy.name, name, numbers(config), terms, its.near(key))
            assert time_us is not None
            over.append(time_us / best.time_us)
            break
    assert len(over) >= 0.98 * len(drawn)
    assert geometric_mean(over) <= 1.12
    assert sorted(over)[int(0.9 * len(over))] <= 1.4
