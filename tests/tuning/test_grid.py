"""Shapes that nobody named: how they are spread, which are measured next, and a tuner that goes on with them."""

from functools import cached_property
from math import inf, log2
from pathlib import Path
from statistics import mean

import pytest
import torch

from autotopk.device import Device, cpu_device
from autotopk.key import TuningKey
from autotopk.prediction import Model, Region, cell_of, kind_of
from autotopk.problem import DTYPE_BYTES
from autotopk.tuning.grid import MET, Grid
from autotopk.tuning.tuner import tune
from autotopk.tuning_db.store import Store
from autotopk.workloads import GRID_POINTS, MOST_BYTES, MOST_COLS, MOST_K, Workload, grid, spread, tagged


def test_shapes_are_within_limits_and_always_the_same() -> None:
    shapes = spread(500)
    assert shapes == spread(500) == list(dict.fromkeys(shapes))
    assert not {*shapes} & {*spread(500, seed=1)}
    assert tagged("grid") == spread(GRID_POINTS)
    for one in shapes:
        assert 1 <= one.rows <= 65_536
        assert 16 <= one.cols <= MOST_COLS
        assert 1 <= one.k <= one.cols
        assert one.k <= MOST_K or one.k == one.cols
        assert max(one.bytes, one.rows * one.k * (8 + DTYPE_BYTES[one.dtype])) <= MOST_BYTES


def test_shapes_are_of_every_kind() -> None:
    shapes = spread(256)
    assert {one.dtype for one in shapes} == {"float32", "bfloat16", "float16", "int64", "int32"}
    assert 0.4 < mean(one.sorted for one in shapes) < 0.6
    assert mean(one.k == one.cols and one.cols > 64 for one in shapes) > 0.02
    assert 0.2 < mean(one.cols & (one.cols - 1) == 0 for one in shapes) < 0.5
    assert 0.2 < mean(one.cols % 16 != 0 for one in shapes) < 0.5
    corners = {(one.rows < 256, one.cols < 16_384, one.k < 32) for one in shapes}
    assert len(corners) == 8


def distance(one: TuningKey, other: TuningKey) -> float:
    sizes = abs(log2(one.rows / other.rows)) + abs(log2(one.cols / other.cols)) + abs(log2(one.k / other.k))
    width = 2 * abs(log2(DTYPE_BYTES[one.dtype] / DTYPE_BYTES[other.dtype]))
    return sizes + width + (one.sorted != other.sorted) + (("int" in one.dtype) != ("int" in other.dtype))


def gap(among: list[Workload], pool: list[Workload]) -> float:
    """Mean doublings and steps from a shape of the pool to the nearest one."""
    return mean(min(distance(one.key, other.key) for other in among) for one in pool)


def test_the_next_are_where_many_are_far_from_what_is_known() -> None:
    everywhere = Grid()
    known = {one.key for one in tagged("seeds")}
    found = everywhere.next(known, count=24)
    assert len({*found}) == 24
    assert not {one.key for one in found} & known
    assert everywhere.next(known, count=24) == found
    assert everywhere.next(known, count=8) == found[:8]
    pool, seeds = list(everywhere.pool.values()), tagged("seeds")
    assert gap(seeds + found, pool[::8]) < 0.95 * gap(seeds + pool[:24], pool[::8])


def test_shapes_of_a_bad_bound_go_first_and_what_is_met_is_left_out() -> None:
    def bound(key: TuningKey) -> float:
        return 1.2 if key.dtype == "float32" and key.sorted else inf if key.sorted else MET

    found = Grid().next(set(), bound, 100)
    assert all(one.sorted for one in found)
    assert mean(one.dtype == "float32" for one in found) < 0.4, "of what can be drawn, half"
    assert Grid().next(set(), lambda key: MET) == []


def test_bounds_are_fitted_anew_when_a_fourth_more_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []

    def fitted(store: Store, fingerprint: str | None = None, *, trees: bool = True) -> dict[Device, dict[str, Model]]:
        fits.append(len(store.measurements(device=fingerprint)))
        met = Model(regions={cell_of(one.key): Region(1.0, 9) for one in WIDE})
        return {cpu_device(): {kind_of(WIDE[0].key, "cpu"): met}}

    monkeypatch.setattr("autotopk.tuning.bounds.fits", fitted)
    report = tune(
        Small([Workload(8, 256, 4)]),
        store_path=tmp_path / "tuning.sqlite",
        winners_path=tmp_path / "winners.sqlite",
        device=torch.device("cpu"),
        strategies=["torch_fallback"],
    )
    assert {one.workload.cols for one in report.results[1:]} == {32, 64}, "the bound is met at the widest"
    assert fits[0] == 0
    assert sorted(fits) == fits, "and once more for what is published"


def test_so_many_are_measured_whoever_measured_them() -> None:
    few = Grid(points=20)
    done = {one.key for one in few.next(set(), count=12)}
    others = {one.key for one in tagged("seeds")}
    assert few.left(done | others) == 8
    assert len(few.next(done | others, count=100)) == 8
    assert few.next(done | {one.key for one in few.next(done, count=8)}) == []


WIDE = grid([1, 2, 4], [256], [2], orders=[True])


class Small(Grid):
    """Shapes for a CPU."""

    @cached_property
    def pool(self) -> dict[TuningKey, Workload]:
        return {one.key: one for one in grid([1, 2, 4], [32, 64, 256], [2], orders=[True])}


def test_the_tuner_goes_on_with_the_grid_and_another_run_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotopk.tuning.bounds.fits", lambda *_, **__: {})  # no bound is known
    named = [Workload(8, 256, 4)]

    def run(count: int) -> list[Workload]:
        report = tune(
            Small(named, points=count),
            store_path=tmp_path / "tuning.sqlite",
            winners_path=tmp_path / "winners.sqlite",
            device=torch.device("cpu"),
            strategies=["torch_fallback"],
        )
        assert report.outcome == "finished"
        return [one.workload for one in report.results if one.outcome == "tuned"]

    first = run(4)
    assert first[:1] == named
    assert len(first) == 5
    second = run(6)
    assert len({*second} - {*named}) == 2
    assert not {*second} & {*first}
    assert not {*run(6)} - {*named}, "what was measured is not begun again"
