"""The tuner: measure every able strategy on every workload, remember it, publish the winners.

For each workload: candidates -> compiled in parallel -> checked, then screened, each stored as soon as it is finished
-> the best raced with torch.topk and the incumbent -> winner -> the winner's worst input. See `session`.
"""

import importlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from autotopk import settings
from autotopk.candidate import Candidate
from autotopk.database import Database
from autotopk.device import device_of
from autotopk.errors import MeasurementError, SelectionError
from autotopk.key import NEIGHBOUR_RADIUS, TuningKey
from autotopk.prediction import Model
from autotopk.problem import Problem
from autotopk.runtime import self_check
from autotopk.runtime.state import default
from autotopk.tuning import bounds
from autotopk.tuning.candidates import candidates, heuristics, lattice, rungs, serves, source_of, unbuildable
from autotopk.tuning.compile_pool import Compiled, CompilePool
from autotopk.tuning.context import Context
from autotopk.tuning.efforts import EFFORTS
from autotopk.tuning.environment import environment_of, specimen_of
from autotopk.tuning.events import (
    CheckingKernels,
    Event,
    KernelsChecked,
    Outcome,
    TuneReport,
    TuneStarted,
    WorkloadFinished,
    WorkloadResult,
)
from autotopk.tuning.grid import BATCH, Bound, Grid
from autotopk.tuning.log import Log
from autotopk.tuning.search import is_exhaustive
from autotopk.tuning.session import Session
from autotopk.tuning.sharing import Sharing, campaign_name
from autotopk.tuning.worker import Worker
from autotopk.tuning_db import artifact, ownership
from autotopk.tuning_db.store import Store
from autotopk.tuning_db.winners import Evidence
from autotopk.workloads import Workload

REFIT = 1.25
"""How many times as many winners there are when bounds are fitted anew."""

NEIGHBOURS = 4
"""Winners of neighbours that are measured though no strategy proposes them."""


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
        force: measure the workloads anew; what was measured before ceases to count as each of them is finished.
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


@dataclass
class TuningRun:
    """The workloads of a run, one session after another, with the compile pool ahead of them."""

    context: Context
    workloads: Sequence[Workload]
    strategies: Collection[str] | None
    force: bool = False
    sharing: Sharing | None = None
    """With whom the workloads are shared, if with anybody."""
    grid: Grid | None = None
    results: list[WorkloadResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        device, now = self.context.device, time.monotonic()
        self._winners = {winner.key: winner for winner in self.context.store.winners(device.fingerprint)}
        self._todo = list(self.workloads)
        self._models: dict[str, Model] = {}
        self._fitted_to = 0
        """Winners that there were when these were fitted."""
        self._ahead: dict[Workload, _Prepared] = {}
        """The workloads whose kernels were started."""
        self._waits_until = now + min(self.context.effort.wait_s, (self.context.until - now) / 2)

    def go(self) -> Outcome:
        """Run every session; those not begun when the budget ends, or on Ctrl-C, are "skipped"."""
        session = None
        outcome: Outcome = "finished"
        try:
            if self.sharing:
                self.sharing.enrol([workload.key for workload in self._todo])
            while self._todo or self._extended():
                if time.monotonic() > self.context.until:
                    outcome = "budget"
                    break
                workload = self._claimed() if self.sharing else self._next()
                if workload is None:
                    continue
                session = self._session(len(self.results), workload)
                result = session.run()
                if self.sharing and not self.sharing.finish(result.outcome):
                    self._todo.append(workload)  # another tuner took it over; what was measured counts all the same
                else:
                    self._finish(session.index, result)
                    if self.force and session.before and result.outcome == "tuned":
                        self.context.store.discard(self.context.device.fingerprint, workload.key, session.before)
                session = None
        except KeyboardInterrupt:
            outcome = "interrupted"
            if session is not None and len(self.results) == session.index:
                self.results.append(session.result("partial"))
        finally:
            if self.sharing:
                self.sharing.give_up()
        done = {result.workload: result for result in self.results}
        self.results = [done.get(workload, WorkloadResult(workload, "skipped")) for workload in self.workloads]
        return outcome

    def _extended(self) -> bool:
        """Whether there is something to do, once the grid was asked."""
        known = self._known()
        if self.grid is not None and self.grid.left(known):
            more = self.grid.next(known, self._bound())
            self._todo += more
            self.workloads = [*self.workloads, *more]
        return bool(self._todo)

    def _bound(self) -> Bound:
        """The bound of every key, fitted anew when there is a fourth more to fit it to: fitting takes a second."""
        if len(self._winners) >= REFIT * self._fitted_to:
            device = self.context.device
            self._models = bounds.fits(self.context.store, device.fingerprint).get(device, {})
            self._fitted_to = max(1, len(self._winners))
        return partial(bounds.bound, self._models)

    def _known(self) -> set[TuningKey]:
        """What has a winner on this device, had its turn in this run, or will have it."""
        return {*self._winners, *(one.key for one in self.workloads)}

    def _left(self) -> int:
        """Workloads without a result, and those that the grid may add."""
        of_grid = 0 if self.grid is None else self.grid.left(self._known())
        return len(self.workloads) - len(self.results) + of_grid

    def _claimed(self) -> Workload | None:
        """A workload that this tuner holds now; None where the others hold all, after a pause, or all are complete."""
        assert self.sharing
        complete = self.sharing.complete()
        for workload in [one for one in self._todo if one.key in complete]:
            self._todo.remove(workload)
            self._ahead.pop(workload, None)
            self._finish(len(self.results), WorkloadResult(workload, "elsewhere"))
        if not self._todo:
            return None
        first = self._next()
        self._todo.insert(0, first)
        key = self.sharing.claim([workload.key for workload in self._todo])
        if key is None:
            self.sharing.wait(self.context.until)
            return None
        workload = next(one for one in self._todo if one.key == key)
        self._todo.remove(workload)
        prepared = self._ahead.pop(workload, None) or self._prepare(workload)
        prepared.evidence = self.context.store.evidence(self.context.device.fingerprint, key)  # others may have added
        self._ahead[workload] = prepared
        return workload

    def _next(self) -> Workload:
        """The next workload; where time for compiling is short, the first one that has its kernels."""
        if len(self._todo) < BATCH // 2:
            self._extended()  # so that kernels compile meanwhile
        self._compile_ahead()
        while not self.context.effort.patient:
            waiting = [self._ahead[one].waits_for() for one in self._todo if one in self._ahead]
            ready = next((at for at, kernels in enumerate(waiting) if not kernels), None)
            if ready is not None or time.monotonic() > self._waits_until:
                return self._todo.pop(ready or 0)
            with suppress(MeasurementError):  # the session meets it again
                self.context.worker.start()
            pending = [kernel for kernels in waiting for kernel in kernels]
            wait(pending, max(0.0, self._waits_until - time.monotonic()), FIRST_COMPLETED)
        return self._todo.pop(0)

    def _session(self, index: int, workload: Workload) -> Session:
        prepared, problem = self._ahead.pop(workload), self._problem(workload)
        device, incumbent = self.context.device, self._winners.get(workload.key)
        rules = heuristics(problem, device, self.strategies)
        near = [one for one in self._near(workload) if serves(one, problem, device, self.strategies)]
        space = dict.fromkeys(prepared.space)
        if incumbent and incumbent.candidate in near:
            space.setdefault(incumbent.candidate)  # another run may have found it beyond the shortlist
        return Session(
            context=self.context,
            index=index,
            workload=workload,
            problem=problem,
            evidence=prepared.evidence,
            candidates=list(space),
            first=near[:1] + rules + near + prepared.first,
            sure=near[:1] + rules,
            incumbent=incumbent,
            anew=self.force,
            neighbours=[one for one in near if one not in space][:NEIGHBOURS],
            strategies=self.strategies,
            share_s=(self.context.until - time.monotonic()) / self._left(),
            patient=self.context.effort.patient,
        )

    def _problem(self, workload: Workload) -> Problem:
        return workload.problem(self.context.device.type)

    def _finish(self, index: int, result: WorkloadResult) -> None:
        self.results.append(result)
        if result.winner is not None:
            self._winners[result.winner.key] = result.winner
        self.context.tell(WorkloadFinished(result, index, self._eta_s()))

    def _compile_ahead(self) -> None:
        """Start the kernels of the next workload, then of those after it, as far as they are sure to be measured.

        What a sampler asks for is known late, and would wait behind kernels of many workloads.
        """
        effort, device = self.context.effort, self.context.device
        for workload in self._todo[: 1 + effort.ahead]:
            if workload not in self._ahead:
                prepared, problem = self._prepare(workload), self._problem(workload)
                known = Log.of(prepared.evidence, self.context.baseline).latest
                exhaustive = is_exhaustive(len(prepared.space), effort.trials)
                sure = prepared.space if exhaustive else prepared.first[: effort.trials]
                asked = [
                    one
                    for one in sure
                    if self.force or one not in known or source_of(one, problem, device) != known[one].identity.source
                ]
                prepared.kernels = self.context.pool.submit(problem, asked)
                self._ahead[workload] = prepared

    def _prepare(self, workload: Workload) -> "_Prepared":
        problem, device, lattices = self._problem(workload), self.context.device, self.context.effort.lattice
        shortlist = candidates(problem, device, self.strategies)
        return _Prepared(
            first=shortlist if lattices else rungs(problem, device, self.strategies),
            space=lattice(problem, device, self.strategies) if lattices else shortlist,
            evidence=self.context.store.evidence(device.fingerprint, workload.key),
        )

    def _near(self, workload: Workload) -> list[Candidate]:
        """The incumbent, and the winners of neighbours from the nearest on."""
        distances = {key: key.distance(workload.key) for key in self._winners}
        near = sorted((key for key in distances if distances[key] <= NEIGHBOUR_RADIUS), key=distances.__getitem__)
        return list(dict.fromkeys(self._winners[key].candidate for key in near))

    def _eta_s(self) -> float | None:
        """Seconds left at the pace of the workloads that were measured, within the budget."""
        paces = [result.seconds for result in self.results if result.outcome not in ("known", "elsewhere")]
        if not paces:
            return None
        return max(0.0, min(self._left() * sum(paces) / len(paces), self.context.until - time.monotonic()))


@dataclass
class _Prepared:
    """A workload before its turn."""

    first: list[Candidate]
    """What is measured before the rest: of a lattice the shortlist, of a shortlist the rungs."""
    space: list[Candidate]
    """What the effort searches: the shortlist, or the lattice, which begins with it."""
    evidence: list[Evidence]
    """What was measured before."""
    kernels: list[Future[Compiled]] = field(default_factory=list)
    """What was started, or was there."""

    def waits_for(self) -> list[Future[Compiled]]:
        """The kernels that are being compiled yet."""
        return [kernel for kernel in self.kernels if not kernel.done()]
