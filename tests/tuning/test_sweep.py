"""The recorded sweep, replayed: how near to the best of a lattice each effort comes, and how files are read."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache

import pytest

from autotopk.candidate import TORCH_TOPK
from autotopk.device import H100, Device
from autotopk.tuning.candidates import candidates, lattice
from autotopk.tuning.efforts import EFFORTS
from autotopk.tuning.environment import environment_of
from autotopk.tuning.log import Log
from autotopk.tuning.search import ENUMERATE, Search
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload, tagged
from scripts.sweep import Ratios, best, device_in, from_json, geometric_mean, ratios, regret_of_quick, table, text
from tests.packaging.processes import ROOT
from tests.tuning import made_up_sweep
from tests.tuning.test_efforts import LANES, SHORT, tune, worker

FILE = ROOT / "docs" / "figures" / "sweep" / "h200.json"
PROCESSES = 15
"""That compile, on a machine of 16 cores: so many points are asked for at a time."""

Sweep = Mapping[Workload, Ratios]


@cache
def published() -> tuple[Sweep, Device]:
    document = json.loads(FILE.read_text())
    return dict(map(from_json, document["workloads"])), device_in(document)


def regret_of_full(workload: Workload, points: Ratios, device: Device, seed: int) -> float:
    """How much slower than the best is the best that the search asks for, as a fraction."""
    shortlist = candidates(workload.problem(device.type), device)
    search = Search(list(points), known={}, first=shortlist, limit=EFFORTS["full"].trials, seed=seed)
    asked = []
    while batch := search.ask(PROCESSES):
        asked += batch
        for one in batch:
            search.tell(one, points[one])
    return best(points, asked) / best(points) - 1


def mean_regret_of_full(swept: Sweep, device: Device, seeds: int) -> float:
    """In geometric mean over workloads and seeds."""
    regrets = (regret_of_full(*one, device, seed) for one in swept.items() for seed in range(seeds))
    return geometric_mean(regrets)


def test_the_published_sweep_is_of_the_whole_tag() -> None:
    swept, _ = published()
    assert set(swept) == set(tagged("sweep"))


def test_quick_is_within_2_percent_of_the_best() -> None:
    swept, device = published()
    assert geometric_mean(regret_of_quick(*one, device) for one in swept.items()) <= 0.02


def test_full_is_within_1_percent_of_the_best() -> None:
    swept, device = published()
    assert mean_regret_of_full(swept, device, seeds=3) <= 0.01


def test_full_finds_the_valleys_of_made_up_sweeps() -> None:
    """Where the shortlists are far from them."""
    quick, full = [], []
    for seed in range(8):
        large = {one: points for one, points in made_up_sweep.sweep(seed).items() if len(points) >= ENUMERATE}
        assert len(large) >= 5
        quick += [regret_of_quick(*one, H100) for one in large.items()]
        full += [regret_of_full(*one, H100, seed) for one in large.items()]
    assert geometric_mean(quick) > 0.05
    assert geometric_mean(full) <= 0.002
    assert max(full) <= 0.05


def test_points_stand_as_raced_else_as_screened(store: Store) -> None:
    problem = SHORT.problem("cuda")
    failed, *points = [*lattice(problem, H100, LANES), TORCH_TOPK]
    one = replace(worker(SHORT), screen_status={failed.config: "wrong"})
    tune(store, "oracle", SHORT, LANES, one)
    found = Log.of(store.evidence(H100.fingerprint, SHORT.key), environment_of(H100).baseline)
    told = ratios(found)
    assert {*told} == {failed, *points}
    assert told[failed] is None
    raced = {point for point in points if told[point] == found.raced.get(point, found.latest[failed]).ratio}
    assert raced == {*found.raced}
    assert all(told[point] == found.screened[point].ratio for point in {*points} - raced)


def test_a_sweep_survives_its_file() -> None:
    swept = {one: points for one, points in made_up_sweep.sweep(0).items() if one.rows == 1}
    document = {"device": {**asdict(H100), "fingerprint": H100.fingerprint}}
    read = json.loads(text(document, swept))
    assert device_in(read) == H100
    for workload, points in map(from_json, read["workloads"]):
        told = swept[workload]
        assert points == {one: ratio and pytest.approx(ratio, rel=1e-4) for one, ratio in told.items()}
    *lines, summary = table(swept, H100)
    assert len(lines) == len(swept) + 1
    assert "in geometric mean" in summary
