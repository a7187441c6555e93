"""What `tune` is to measure, and what its --dry-run prints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotopk.cli import arguments
from autotopk.cli.options import print_json
from autotopk.cli.tables import console, dry_run_parts
from autotopk.database import Database
from autotopk.device import Device, device_of
from autotopk.runtime import misses
from autotopk.tuning.dry_run import plan
from autotopk.tuning.grid import Grid
from autotopk.workloads import GRID, TAGS, Workload, tagged

if TYPE_CHECKING:
    import torch

NAMED = ("seeds", "serving", "routing", "selector")
"""Tags that a GPU tunes where nothing else is asked for."""

BUDGET_S = 360.0
"""For them and the grid, where no other budget is asked for."""


@dataclass(frozen=True)
class Wanted:
    """What to measure."""

    workloads: list[Workload]
    grid: Grid | None
    budget_s: float | None

    def listed(self) -> list[Workload]:
        """The workloads, and as many of the grid as will be measured at most."""
        return self.workloads + (tagged(GRID) if self.grid else [])


def wanted(
    tags: Sequence[str],
    sizes: tuple[Sequence[str], Sequence[str], Sequence[str]],
    dtypes: Sequence[str],
    rule: str | None,
    from_misses: Path | None,
    budget_s: float | None,
    place: "torch.device",
    *,
    shared: bool,
) -> Wanted:
    """What options ask for; where they name nothing, what is usual for the device. Raises SelectionError.

    The grid is a list like that of other tags where its dtype is named, or several tuners share it.
    """
    names = arguments.words("--tag", tags, TAGS)
    grid = Grid() if GRID in names and not dtypes and not shared else None
    found = arguments.workloads([one for one in names if one != GRID or grid is None], *sizes, dtypes, rule)
    if from_misses:
        found = list(dict.fromkeys([*found, *misses.read(from_misses, device_of(place))]))
    if found or grid:
        return Wanted(found, grid, budget_s)
    if place.type == "cpu":
        return Wanted(arguments.usual(place), None, budget_s)
    named = list(dict.fromkeys(workload for tag in NAMED for workload in tagged(tag)))
    usual = Wanted(named, None if shared else Grid(), BUDGET_S if budget_s is None else budget_s)
    return replace(usual, workloads=named + tagged(GRID)) if shared else usual


def show(workloads: Sequence[Workload], device: Device, db: Database, as_json: bool, asked: Mapping[str, Any]) -> None:
    """What would be measured with these arguments of `dry_run.plan`."""
    planned = plan(workloads, device, db, **asked)
    if as_json:
        print_json(planned)
        return
    for part in dry_run_parts(planned):
        console().print(part)
