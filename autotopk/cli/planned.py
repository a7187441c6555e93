"""What `tune` is to measure, and what its --dry-run prints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

BUDGET_S = 335.0
"""For them and the grid, where no other budget is asked for: six minutes, with what is before and after."""


@dataclass(frozen=True)
class Wanted:
    """What to measure."""

    what: list[Workload] | Grid
    budget_s: float | None

    def listed(self) -> list[Workload]:
        """The workloads, of a grid as many as will be measured at most."""
        return [*self.what.named, *tagged(GRID)] if isinstance(self.what, Grid) else self.what


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
    refined = GRID in names and not dtypes and not shared
    found = arguments.workloads([one for one in names if not (refined and one == GRID)], *sizes, dtypes, rule)
    if from_misses:
        found = list(dict.fromkeys([*found, *misses.read(from_misses, device_of(place))]))
    if found or refined:
        return Wanted(Grid(found) if refined else found, budget_s)
    if place.type == "cpu":
        return Wanted(arguments.usual(place), budget_s)
    named = list(dict.fromkeys(workload for tag in NAMED for workload in tagged(tag)))
    budget_s = BUDGET_S if budget_s is None else budget_s
    return Wanted([*named, *tagged(GRID)] if shared else Grid(named), budget_s)


def show(workloads: Sequence[Workload], device: Device, db: Database, as_json: bool, asked: Mapping[str, Any]) -> None:
    """What would be measured with these arguments of `dry_run.plan`."""
    planned = plan(workloads, device, db, **asked)
    if as_json:
        print_json(planned)
        return
    for part in dry_run_parts(planned):
        console().print(part)
