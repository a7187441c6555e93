"""The tuner: measure every able strategy on every workload, remember it, publish the winners.

For each workload: candidates -> compiled in parallel -> checked, then screened, each stored as soon as it is finished
-> the best raced with torch.topk and the incumbent -> winner -> the winner's worst input. See `session`.
"""

import importlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from autotopk import settings
from autotopk.database import Database
from autotopk.device import device_of
from autotopk.errors import SelectionError
from autotopk.runtime import self_check
from autotopk.runtime.state import default
from autotopk.tuning import bounds
from autotopk.tuning.candidates import unbuildable
from autotopk.tuning.compile_pool import CompilePool
from autotopk.tuning.context import Context
from autotopk.tuning.efforts import EFFORTS
from autotopk.tuning.environment import environment_of, specimen_of
from autotopk.tuning.events import (
    CheckingKernels,
    Event,
    KernelsChecked,
    TuneReport,
    TuneStarted,
)
from autotopk.tuning.grid import Grid
from autotopk.tuning.run import TuningRun
from autotopk.tuning.sharing import Sharing, campaign_name
from autotopk.tuning.worker import Worker
from autotopk.tuning_db import artifact, ownership
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload


def tune(
    workloads: Iterable[Workload] | Grid,
    *,
    store_path: Database | None = None,
    winners_path: Path | None = None,
    device: torch.device | None = None,
    effort: Literal["quick", "full", "oracle"] = "quick",
    budget_s: float | None = None,
    strategies: Collection[str] | None = None,
    force: bool = False,
    campaign: str | None = None,
    preload: Sequence[str] = (),
    timeout_s: float = 30.0,
    on_event: Callable[[Event], None] = lambda event: None,
) -> TuneReport:
    """Measure workloads, and publish the winners of everything measured so far.

    What is finished is stored at once and not measured again while strategy, device and torch.topk stay the same, but
    that the next run races each winner once more with its runner-up. After the budget's end, Ctrl-C or a kill, the
    same call goes on where it was. Processes are spawned, so a script calls this below `if __name__ == "__main__"`.

    Args:
        workloads: what to measure; the first ones first. A grid goes on with shapes of its own.
        store_path: the tuning database, a file or a server, by default the user's.
        winners_path: the published artifact, by default the user's, or of another database STEM.winners.sqlite beside
            it, of another server in the cache folder.
        device: where to measure, by default the first GPU, else the CPU.
        effort: "quick" measures what is compiled soon, and races a few; "full" searches further and has more rounds;
            "oracle" races everything.
        budget_s: seconds of wall clock to end after; by default some for every workload, unlimited for "oracle".
        strategies: names of those to measure beside torch.topk, by default all.
        force: measure the workloads anew; what was measured before ceases to count as each of them is finished, unless
            the winner was raced anew and stays by all of it.
        campaign: shares the workloads with all tuners of this name on the same model of device and the same database:
            each is measured by one of them. By default a server's tuners of the same effort, strategies and versions
            share, and those of a file do not.
        preload: modules imported in every process, for strategies that register themselves.
        timeout_s: longest turn of one candidate.
        on_event: is called with every event.

    Raises:
        DatabaseError: the tuning database cannot be opened or written.
        SelectionError: a campaign has an odd name, is none and measures anew on a server, or has a grid.
        ArtifactError: the winners cannot be published, or would replace a file of somebody else's.
    """
    begun, contention = time.monotonic(), settings.max_contention()
    for module in preload:
        importlib.import_module(module)
    grid = workloads if isinstance(workloads, Grid) else None
    workloads = list(dict.fromkeys(workloads.named if isinstance(workloads, Grid) else workloads))
    place = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, environment, specimen = device_of(place), environment_of(device_of(place)), specimen_of(place)
    store_path = store_path or settings.database()
    winners_path = winners_path or settings.published_path(store_path)
    ownership.refuse_to_overwrite(winners_path)
    _check_kernels(place, on_event)
    allowance = EFFORTS[effort].budget_s(len(workloads) + (grid.points if grid else 0))
    if budget_s is None and math.isfinite(allowance):
        budget_s = allowance
    without_compiler = unbuildable((one.problem(model.type) for one in workloads), model, strategies)
    arguments: dict[str, object] = {
        "workloads": [str(one) for one in workloads],
        "effort": effort,
        "budget_s": budget_s,
    }
    with (
        Store.open(store_path) as store,
        Worker(place, preload=preload, timeout_s=timeout_s) as worker,
        closing(CompilePool(model, preload=preload)) as pool,
    ):
        name = campaign_name(campaign, store, environment, effort, strategies)
        if force and name is not None and campaign is None:
            raise SelectionError("measuring anew on a server needs the name of a new campaign")
        if grid and name is not None:
            raise SelectionError("a campaign has the workloads that it began with; tune the grid without one")
        count = len(workloads) + (grid.left({one.key for one in store.winners(model.fingerprint)}) if grid else 0)
        on_event(TuneStarted(model, environment.baseline, count, budget_s, without_compiler))
        arguments |= {} if name is None else {"campaign": name}
        run = store.begin_run(model, environment, arguments, specimen)
        sharing = None if name is None else Sharing(store, name, model, place)
        until = begun + (math.inf if budget_s is None else budget_s)
        context = Context(model, environment, EFFORTS[effort], store, run, worker, pool, until, on_event, contention)
        context = replace(context, specimen=specimen, held=sharing.held if sharing else context.held)
        tuning = TuningRun(context, workloads, strategies, force, sharing, grid)
        outcome = tuning.go()
        winners = {winner.key: winner for winner in store.derive_winners(model.fingerprint)}
        artifact.publish(store.winners(), winners_path, bounds.fitted_again(store, model, winners_path))
        store.end_run(run, outcome)
    default.reload()
    results = tuple(
        replace(one, winner=winners.get(one.workload.key)) if one.outcome == "elsewhere" else one
        for one in tuning.results
    )
    return TuneReport(outcome, results, store_path, winners_path, time.monotonic() - begun)


def _check_kernels(place: torch.device, on_event: Callable[[Event], None]) -> None:
    """Find out whether the shipped kernels are right here, where nobody knows."""
    found = self_check.tried(place, lambda *told: on_event(CheckingKernels(*told)))
    if found is not None:
        on_event(KernelsChecked(len(found.passed), tuple(dict.fromkeys(found.failed.values()))))
