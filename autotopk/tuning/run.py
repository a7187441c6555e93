"""The workloads of a run, one after another: whose turn it is, and the kernels that are compiled meanwhile."""

import time
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from autotopk.candidate import Candidate
from autotopk.errors import MeasurementError
from autotopk.key import NEIGHBOUR_RADIUS, TuningKey
from autotopk.prediction import Model
from autotopk.problem import Problem
from autotopk.tuning import bounds
from autotopk.tuning.candidates import candidates, heuristics, lattice, rungs, serves, source_of
from autotopk.tuning.compile_pool import Compiled
from autotopk.tuning.context import Context
from autotopk.tuning.events import Outcome, WorkloadFinished, WorkloadResult
from autotopk.tuning.grid import BATCH, Bound, Grid
from autotopk.tuning.likely import likely
from autotopk.tuning.log import Log
from autotopk.tuning.search import is_exhaustive
from autotopk.tuning.session import Session
from autotopk.tuning.sharing import POLL_S, Sharing
from autotopk.tuning_db.winners import Evidence
from autotopk.workloads import Workload

LIKELIEST = 3
"""Candidates that are screened however long it takes: those that are predicted to be the quickest."""

REFIT = 1.25
"""How many times as many winners there are when bounds are fitted anew."""

NEIGHBOURS = 4
"""Winners of neighbours that are measured though no strategy proposes them."""


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
    """In the order of the workloads, once they are done."""

    def __post_init__(self) -> None:
        device, now = self.context.device, time.monotonic()
        self._held = {winner.key: winner for winner in self.context.store.winners(device.fingerprint)}
        """The winners of earlier runs."""
        self._winners = dict(self._held)
        self._todo = list(self.workloads)
        self._done: dict[Workload, WorkloadResult] = {}
        self._second: set[Workload] = set()
        """The workloads that had a turn before all their kernels were compiled, and have another."""
        self._renewed: set[Workload] = set()
        """Those of which nothing measured by earlier runs is left."""
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
                    outcome = "finished" if self._done.keys() >= {*self._todo} else "budget"
                    break
                workload = self._claimed() if self.sharing else self._next()
                if workload is None:
                    continue
                session = self._session(workload)
                result = session.run()
                again = result.uncompiled > 0 and workload not in self._second
                if self.sharing and not self.sharing.finish("partial" if again else result.outcome):
                    self._todo.append(workload)  # another tuner took it over; what was measured counts all the same
                else:
                    self._finish(result)
                    if session.anew and session.before and result.outcome == "tuned":
                        if session.forgotten:
                            self.context.store.discard(self.context.device.fingerprint, workload.key, session.before)
                        self._renewed.add(workload)
                    if again:
                        self._second.add(workload)
                        self._todo.insert(0, workload)  # as soon as it is ready
                session = None
        except KeyboardInterrupt:
            outcome = "interrupted"
            if session is not None:
                self._done.setdefault(session.workload, session.result("partial"))
        finally:
            if self.sharing:
                self.sharing.give_up()
        self.results = [self._done.get(one, WorkloadResult(one, "skipped")) for one in self.workloads]
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
            self._models = bounds.fits(self.context.store, device.fingerprint, trees=False).get(device, {})
            self._fitted_to = max(1, len(self._winners))
        return partial(bounds.bound, self._models, self.context.device.type)

    def _known(self) -> set[TuningKey]:
        """What has a winner on this device, had its turn in this run, or will have it."""
        return {*self._winners, *(one.key for one in self.workloads)}

    def _left(self) -> int:
        """Turns to come, with those that the grid may add."""
        return len(self._todo) + (0 if self.grid is None else self.grid.left(self._known()))

    def _claimed(self) -> Workload | None:
        """A workload that this tuner holds now; None where the others hold all, after a pause, or all are complete."""
        assert self.sharing
        complete = self.sharing.complete()
        for workload in [one for one in self._todo if one.key in complete]:
            self._todo.remove(workload)
            self._ahead.pop(workload, None)
            if workload in self._done:  # what was not compiled here is measured
                self._done[workload] = replace(self._done[workload], uncompiled=0)
            else:
                self._finish(WorkloadResult(workload, "elsewhere"))
        if not self._todo:
            return None
        first = self._next()
        if first is None:
            return None
        others = [one for one in self._todo if one not in self._second or self._is_ready(one)]
        self._todo.insert(0, first)
        key = self.sharing.claim([workload.key for workload in [first, *others]])
        if key is None:
            self.sharing.wait(self.context.until)
            return None
        workload = next(one for one in self._todo if one.key == key)
        self._todo.remove(workload)
        prepared = self._ahead.pop(workload, None) or self._prepare(workload)
        prepared.evidence = self.context.store.evidence(self.context.device.fingerprint, key)  # others may have added
        self._ahead[workload] = prepared
        return workload

    def _next(self) -> Workload | None:
        """The next workload; where time for compiling is short, the first one that has its kernels.

        Where none has, the first of those that had no turn yet. Second turns wait for their kernels as long as there is
        time; None where it ended, or others are to be asked first.
        """
        if len(self._todo) < BATCH // 2:
            self._extended()  # so that kernels compile meanwhile
        self._compile_ahead()
        new = next((one for one in self._todo if one not in self._second), None)
        until = self.context.until if new is None else self._waits_until
        chosen = self._first_ready()
        while chosen is None and not self.context.effort.patient and time.monotonic() <= until:
            with suppress(MeasurementError):  # the session meets it again
                self.context.worker.start()
            pending = [kernel for one in self._ahead.values() for kernel in one.waits_for()]
            wait(pending, min(POLL_S, max(0.0, until - time.monotonic())), FIRST_COMPLETED)
            chosen = self._first_ready()
            if self.sharing and new is None:
                break  # another tuner may have completed what is waited for
        chosen = chosen or new
        if chosen is not None:
            self._todo.remove(chosen)
        return chosen

    def _first_ready(self) -> Workload | None:
        return None if self.context.effort.patient else next(filter(self._is_ready, self._todo), None)

    def _is_ready(self, workload: Workload) -> bool:
        """Whether all its kernels that were started are compiled."""
        return workload in self._ahead and not self._ahead[workload].waits_for()

    def _session(self, workload: Workload) -> Session:
        prepared, problem = self._ahead.pop(workload), self._problem(workload)
        device, incumbent = self.context.device, self._held.get(workload.key)
        rules = heuristics(problem, device, self.strategies)
        near = [one for one in self._near(workload) if serves(one, problem, device, self.strategies)]
        space = dict.fromkeys(prepared.space)
        if incumbent and incumbent.candidate in near:
            space.setdefault(incumbent.candidate)  # another run may have found it beyond the shortlist
        return Session(
            context=self.context,
            index=self._index(workload),
            workload=workload,
            problem=problem,
            evidence=prepared.evidence,
            candidates=list(space),
            first=near[:1] + prepared.first[:LIKELIEST] + rules + near + prepared.first,
            sure=near[:1] + rules + prepared.first[:LIKELIEST],
            incumbent=incumbent,
            anew=self.force and workload not in self._renewed,
            neighbours=[one for one in near if one not in space][:NEIGHBOURS],
            strategies=self.strategies,
            share_s=(self.context.until - time.monotonic()) / (1 + self._left()),
            patient=self.context.effort.patient,
        )

    def _index(self, workload: Workload) -> int:
        """Of a workload among those that were begun, in their order."""
        return [*self._done, workload].index(workload)

    def _problem(self, workload: Workload) -> Problem:
        return workload.problem(self.context.device.type)

    def _finish(self, result: WorkloadResult) -> None:
        workload, index = result.workload, self._index(result.workload)
        self._done[workload] = result.after(self._done[workload]) if workload in self._done else result
        if result.winner is not None:
            self._winners[result.winner.key] = result.winner
        self.context.tell(WorkloadFinished(result, index, self._eta_s()))

    def _compile_ahead(self) -> None:
        """Start the kernels of the next workload, then of those after it, as far as they are sure to be measured.

        What a sampler asks for is known late, and would wait behind kernels of many workloads.
        """
        effort, device = self.context.effort, self.context.device
        again = [one for one in self._todo if one in self._second]
        new = [one for one in self._todo if one not in self._second]
        for workload in [*again, *new[: 1 + effort.ahead]]:
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
        shortlist = (candidates if lattices else likely)(problem, device, self.strategies)
        return _Prepared(
            first=shortlist if lattices else [*shortlist[:LIKELIEST], *rungs(problem, device, self.strategies)],
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
        paces = [one.seconds for one in self._done.values() if one.outcome not in ("known", "elsewhere")]
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
