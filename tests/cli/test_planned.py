"""What `tune` measures where options name it, and where they name nothing."""

from typing import Any

import torch

from autotopk.cli.planned import BUDGET_S, Wanted, wanted
from autotopk.tuning.grid import Grid
from autotopk.workloads import GRID_POINTS, tagged

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def asked(*tags: str, place: torch.device = GPU, shared: bool = False, **changes: Any) -> Wanted:
    options: dict[str, Any] = {"sizes": ((), (), ()), "dtypes": (), "rule": None, "from_misses": None, "budget_s": None}
    return wanted(tags, place=place, shared=shared, **options | changes)


def test_a_gpu_tunes_named_tags_and_then_the_grid_within_six_minutes() -> None:
    usual = asked()
    assert isinstance(usual.what, Grid)
    assert {*tagged("seeds"), *tagged("serving"), *tagged("routing"), *tagged("selector")} == {*usual.what.named}
    assert usual.budget_s == BUDGET_S == 335
    assert len(usual.listed()) == len(usual.what.named) + GRID_POINTS
    assert asked(budget_s=60.0).budget_s == 60
    assert asked(place=CPU) == Wanted(tagged("ci"), None)


def test_tags_go_before_the_grid_and_a_grid_that_is_shared_is_a_list() -> None:
    assert asked("seeds,grid").what == Grid(tagged("seeds"))
    assert asked("seeds").what == tagged("seeds")
    assert asked("grid", shared=True).what == tagged("grid")
    named = asked("grid", dtypes=["float16"]).what
    assert {one.dtype for one in named} == {"float16"} if isinstance(named, list) else False
    assert asked(shared=True).what == asked().listed()


def test_sizes_count_as_named() -> None:
    first, second = asked(sizes=(["4"], ["64"], ["3"])).listed()
    assert (first.rows, first.cols, first.k, first.sorted, second.sorted) == (4, 64, 3, True, False)
