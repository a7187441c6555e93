"""One workload: screen its candidates, race the best, name the winner and its worst input."""

import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from statistics import mean
from uuid import uuid4

from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.errors import AutotopkError, MeasurementError
from autotopk.identity import Identity
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.tuning.candidates import program_of, serves, source_of
from autotopk.tuning.compile_pool import Build
from autotopk.tuning.context import Context
from autotopk.tuning.events import CandidateMeasured, WorkloadOutcome, WorkloadResult, WorkloadStarted
from autotopk.tuning.log import Log
from autotopk.tuning.noise import scatter
from autotopk.tuning.race import DROP, Race, estimate, survivors, together
from autotopk.tuning.search import Search, left
from autotopk.tuning.worker import Worker
from autotopk.tuning_db.records import Measurement, Stage, Status, Winner
from autotopk.tuning_db.winners import Evidence, derive, ratio_of
from autotopk.workloads import Workload

SCREENING = 0.6
"""Share of a workload's device time after which screening makes way for the race."""

LEAST_ROUNDS = 3
"""Rounds of a race that no budget cuts off."""

TRIES = 3
"""Races before noise is put up with."""

PLACES = 5
"""In memory, where a race is run before the winner of earlier runs gives way: where code and data lie moves times of
few microseconds by as much as a tenth."""

AHEAD = 4
"""Most candidates that are raced there because they were quicker: what one race alone says of them is no reason."""

BATCH = 64
"""Candidates that are asked for at a time where all will be."""


@dataclass
class Session:
    """One workload in a run."""

    context: Context
    index: int
    workload: Workload
    problem: Problem
    evidence: list[Evidence]
    """Of the key on the device, the oldest first; what is measured now is appended."""
    candidates: Sequence[Candidate]
    """What the effort searches."""
    first: Sequence[Candidate]
    """To be measured before the others."""
    incumbent: Winner | None
    share_s: float
    """Device time that the workload may take."""
    sure: Collection[Candidate] = ()
    """Those that are screened however long it takes, within the budget, as far as they are compiled."""
    neighbours: Sequence[Candidate] = ()
    """Winners of neighbours that are none of the candidates; measured too where any of those are."""
    strategies: Collection[str] | None = None
    """Those that may be raced; by default all. torch.topk is in any case."""
    anew: bool = False
    """As if nothing had been measured before."""
    patient: bool = True
    """Whether it waits for kernels, rather than measure what is compiled by now."""
    statuses: dict[Candidate, Status] = field(default_factory=dict)
    """The turns taken in this run."""

    def __post_init__(self) -> None:
        self._begun = time.monotonic()
        self._busy_before = self.context.worker.busy_s
        self.before = max((one.measurement.measured_at for one in self.evidence), default="")
        """When the last measurement of earlier runs was taken, by the clock of whoever took it; empty without one."""
        self._last = self.before
        self.forgotten, self.evidence = (self.evidence, list[Evidence]()) if self.anew else ([], self.evidence)
        """What is to count no more, and what does."""
        self._log = Log.of(self.evidence, self.context.baseline)
        self._identities: dict[Candidate, Identity] = {}
        self._space = list(dict.fromkeys([*self.candidates, TORCH_TOPK]))
        self._noise: str | None = None
        """What made the last race useless."""
        self._uncompiled = 0
        self._others = self._raced_before()
        """The best of what an earlier run found elsewhere; raced, but not measured anew where their code changed."""

    @property
    def key(self) -> TuningKey:
        """What the winner is stored under."""
        return TuningKey.of(self.problem)

    def run(self) -> WorkloadResult:
        """Screen and race the candidates, as far as earlier runs have not."""
        effort, limit = self.context.effort, self.context.effort.trials
        self._attach()
        if left(self._space, self._log.latest, limit):
            self._space += self.neighbours
            limit += len(self.neighbours)
        first = [TORCH_TOPK, *self.first, *self.neighbours]
        search = Search(self._space, known=self._log.ratios(), first=first, limit=limit)
        self.context.tell(WorkloadStarted(self.workload, self.index, len(self._space), search.left))
        fewest, _ = effort.rounds
        try:
            self._screen(search)
            untried = any(one not in self._log.latest for one in self._space)
            if untried and not {*self._log.good(self._space)} - {TORCH_TOPK}:
                return self.result("partial")  # nothing is known of who torch.topk is beside
            decided = not self.statuses and self._log.decided(self._contenders(), fewest)
            unconfirmed = self._unconfirmed() if decided else []
            if decided and (not unconfirmed or self._late(1.0)):
                return self.result("known")
            if unconfirmed:
                self._race(unconfirmed)
                if not self._noise and not self._unconfirmed():
                    return self.result("confirmed")
                if not self._noise:
                    self._race(self._contenders())
            else:
                failed = True
                while failed and not self._log.decided(contenders := self._contenders(), fewest):
                    failed = self._race(contenders)  # a failure lets slower ones in
            if not self._noise and (flipped := self._flipped()):
                self._race(flipped, self.context.worker.places(PLACES))
            self._recall()
        except MeasurementError as error:
            return self.result("failed", str(error))
        if self._noise:
            return self.result("unclear", f"too noisy to say: {self._noise}")
        return self.result("tuned" if self._log.raced else "partial")

    def result(self, outcome: WorkloadOutcome, error: str | None = None) -> WorkloadResult:
        """What has come of the workload by now."""
        return WorkloadResult(
            self.workload,
            outcome,
            candidates=len(self._space),
            measured=Counter(self.statuses.values()),
            uncompiled=self._uncompiled,
            winner=self._winner(),
            error=error,
            seconds=time.monotonic() - self._begun,
        )

    def _attach(self) -> None:
        """Keep earlier measurements of the code that runs today, and of no other.

        A program made from the same files and constants as before is the same; of any other its code is compared,
        which is compiled first where it is not in the cache.
        """
        device = self.context.device
        changed = []
        for candidate in [one for one in [*self._space, *self.neighbours, *self._others] if one in self._log.latest]:
            measured = self._log.latest[candidate].identity
            if source_of(candidate, self.problem, device) == measured.source:
                self._identities[candidate] = measured
            else:
                changed.append(candidate)
        builds = dict(self._ready(changed))
        for candidate in changed:
            build = builds.get(candidate, Build("timeout"))
            if build.status == "ok" and build.identity.code == self._log.latest[candidate].identity.code:
                self._identities[candidate] = build.identity
            else:
                self._log.forget(candidate)

    def _raced_before(self) -> list[Candidate]:
        elsewhere = {*self._log.latest} - {*self._space, *self.neighbours}
        best = survivors(self._log.good(elsewhere), limit=self.context.effort.contenders)
        return [one for one in best if serves(one, self.problem, self.context.device, self.strategies)]

    def _ready(self, candidates: Iterable[Candidate]) -> Iterator[tuple[Candidate, Build]]:
        """Those that are compiled, or will be in time."""
        return self.context.pool.ready(self.problem, candidates, self.context.until if self.patient else 0.0)

    def _screen(self, search: Search) -> None:
        """Check and time candidates a few times each, until all are or time is up."""
        batch = BATCH if search.exhaustive else max(8, self.context.pool.processes)
        while asked := search.ask(batch):
            turns, sure = 0, 1 + max((at for at, one in enumerate(asked) if one in self.sure), default=-1)
            for candidate, build in self._ready(asked):
                measurement = self._screened(candidate, build)
                self._record([measurement])
                search.tell(candidate, measurement.ratio)
                turns += 1
                if self._late(SCREENING if turns >= sure else math.inf):
                    return
            if turns < len(asked) and self.patient:
                return
            self._uncompiled += len(asked) - turns

    def _unconfirmed(self) -> list[Candidate]:
        """The winner and its runner-up, where two races of the winner do not agree yet; of torch.topk, the runner-up's.

        What disturbed a race from its beginning to its end shows in another run alone.
        """
        winner = self._winner()
        if winner is None:
            return []
        second = winner.runner_up if winner.runner_up in self._log.raced else None
        decisive = second if winner.candidate == TORCH_TOPK else winner.candidate
        if decisive not in self._identities or decisive in self._log.confirmed:
            return []
        return [one for one in dict.fromkeys((winner.candidate, second, TORCH_TOPK)) if one in self._identities]

    def _flipped(self) -> list[Candidate]:
        """The winner and that of earlier runs, who was quicker than that, and torch.topk; none where these are one."""
        winner, held = self._winner(), self.incumbent and self.incumbent.candidate
        if winner is None or held in (None, winner.candidate) or held not in self.statuses or self._late(1.0):
            return []
        raced = {one: ratio_of(its) for one, its in self._log.raced.items() if one in self.statuses}
        quicker = {one: ratio for one, ratio in raced.items() if ratio < raced.get(held, 0.0)}
        ahead = survivors(quicker, within=math.inf, limit=AHEAD)
        return [one for one in dict.fromkeys((winner.candidate, held, *ahead, TORCH_TOPK)) if one in raced]

    def _recall(self) -> None:
        """Forget nothing where the winner of earlier runs was raced anew, and stays by what these and this one say."""
        held, both = self.incumbent and self.incumbent.candidate, [*self.forgotten, *self.evidence]
        if self.forgotten and held in self._log.raced and held in [one.candidate for one in derive(both).values()]:
            self.forgotten, self.evidence = [], both

    def _screened(self, candidate: Candidate, build: Build) -> Measurement:
        self._identities[candidate] = build.identity
        if build.status != "ok":
            return self._failed(candidate, "screen", build.status, build.error, build.stats)
        reply = self.context.worker.screen(self.problem, candidate, self.context.effort.samples)
        if reply.value is None:
            return self._failed(candidate, "screen", reply.status, reply.error, build.stats)
        if not build.identity.code:  # compiled by the worker
            self._identities[candidate] = self._identity(candidate)
        seen = reply.value
        timed = self._timed(candidate, "screen", seen.samples_us, seen.baseline_us)
        timed = replace(timed, cold=seen.cold, build_stats=build.stats)
        contended = self._contended(reply.contention)
        return _noisy(timed, contended) if contended else timed

    def _identity(self, candidate: Candidate) -> Identity:
        """Of a program that ran just now."""
        try:
            program = program_of(candidate, self.problem, self.context.device)
            return program.identity(self.problem, self.context.device.arch)
        except AutotopkError:
            return self._identities[candidate]

    def _contenders(self) -> list[Candidate]:
        """Who is raced: the best as screened, the incumbent and the fallback."""
        effort, entrants = self.context.effort, dict.fromkeys([*self._space, *self.neighbours, *self._others])
        held = self.incumbent and not self.anew and self.incumbent.candidate
        return survivors(
            self._log.good(entrants),
            keep=[one for one in entrants if one in (held, TORCH_TOPK)],
            within=DROP if effort.retire else math.inf,
            limit=effort.contenders,
        )

    def _race(self, contenders: Sequence[Candidate], places: Sequence[Worker] = ()) -> bool:
        """Race them, again as long as it is too noisy to say who is faster than torch.topk; whether anyone failed."""
        for _ in range(TRIES):
            racing = [one for one in contenders if self.statuses.get(one, "ok") in ("ok", "noisy")]
            raced, contention = self._run_race(racing, places or [self.context.worker])
            self._noise = self._contended(contention) or scatter(raced)
            if self._noise is None:
                self._record(self._with_slowdown(raced))
                break
            self._record([_noisy(one, self._noise) for one in raced])
            if self._late(1.0):
                break
        return any(self.statuses.get(one, "ok") not in ("ok", "noisy") for one in contenders)

    def _contended(self, share: float) -> str | None:
        told = f"other processes had the cores {share:.0%} of the time"
        return told if share > self.context.max_contention else None

    def _run_race(self, contenders: Sequence[Candidate], places: Sequence[Worker]) -> tuple[list[Measurement], float]:
        """What races in some places say of those who finished all, and the contention of their mean turn."""
        contention: list[float] = []
        results = []
        for worker in places:
            race = Race(contenders, *self.context.effort.rounds, retire=self.context.effort.retire)
            while order := race.next_round():
                times: dict[Candidate | None, float] = {}
                for one in order:
                    reply = worker.sample(self.problem, one)
                    contention.append(reply.contention)
                    if reply.value is not None:
                        times[one] = reply.value
                    elif one is None:
                        raise MeasurementError(f"torch.topk: {reply.status}: {reply.error}")
                    else:
                        race.drop(one)
                        self._record([self._failed(one, "race", reply.status, reply.error)])
                race.record(times)
                if race.rounds >= LEAST_ROUNDS and self._late(1.0):
                    break
            results.append(race.results())
            contenders = [*results[-1]]
            if len(places) > 1:
                worker.release()  # so that nobody has less memory, and inputs are made elsewhere in it
        return [self._raced(one, *times) for one, times in together(results).items()], mean(contention or [0.0])

    def _raced(self, candidate: Candidate, samples: tuple[float, ...], baseline: tuple[float, ...]) -> Measurement:
        screening = self._log.screening(candidate)
        timed = self._timed(candidate, "race", samples, baseline)
        return replace(timed, cold=screening.cold, build_stats=screening.build_stats) if screening else timed

    def _with_slowdown(self, raced: Sequence[Measurement]) -> list[Measurement]:
        """The winner's slow-down beside it, measured once; one that fails on an adversarial input makes place."""
        measurements = {one.uuid: one for one in raced}
        while (uuid := next(iter(self._winners(measurements.values())), None)) in measurements:
            winner = measurements.pop(uuid)
            earlier = self._log.raced.get(winner.candidate)  # of the same code
            if earlier is not None and earlier.adversarial_slowdown is not None:
                return [*measurements.values(), replace(winner, adversarial_slowdown=earlier.adversarial_slowdown)]
            try:
                reply = self.context.worker.adversarial_slowdown(self.problem, winner.candidate)
            except MeasurementError:
                return [*measurements.values(), winner]
            if reply.status not in ("wrong", "crashed"):
                return [*measurements.values(), replace(winner, adversarial_slowdown=reply.value)]
            self._record([self._failed(winner.candidate, "race", reply.status, reply.error)])
        return list(measurements.values())

    def _winner(self) -> Winner | None:
        return next(iter(self._winners().values()), None)

    def _winners(self, fresh: Iterable[Measurement] = ()) -> dict[str, Winner]:
        """The key's winner, if any, by uuid, as the database will derive it with the `fresh` measurements."""
        return derive([*self.evidence, *map(self._evidence, fresh)])

    def _evidence(self, one: Measurement) -> Evidence:
        return Evidence(one, self.context.baseline, self.context.specimen, self.context.run)

    def _timed(
        self, candidate: Candidate, stage: Stage, samples: tuple[float, ...], baseline: tuple[float, ...]
    ) -> Measurement:
        found = estimate(samples, baseline)
        return replace(
            self._measurement(candidate, stage, "ok"),
            samples_us=samples,
            baseline_us=baseline,
            ratio=found.ratio,
            margin=found.margin,
        )

    def _failed(
        self,
        candidate: Candidate,
        stage: Stage,
        status: Status,
        error: str | None,
        build_stats: dict[str, float] | None = None,
    ) -> Measurement:
        return replace(self._measurement(candidate, stage, status), error=error, build_stats=build_stats or {})

    def _measurement(self, candidate: Candidate, stage: Stage, status: Status) -> Measurement:
        return Measurement(
            uuid=uuid4().hex,
            device=self.context.device,
            key=self.key,
            candidate=candidate,
            identity=self._identities[candidate],
            stage=stage,
            status=status,
            measured_at=self._now(),
        )

    def _now(self) -> str:
        """The time, or where a clock was set back, just after the last measurement: later ones count more."""
        now = datetime.now(UTC)
        if now.isoformat() <= self._last:
            now = datetime.fromisoformat(self._last) + timedelta(microseconds=1)
        self._last = now.isoformat()
        return self._last

    def _record(self, measurements: Sequence[Measurement]) -> None:
        """Finished: from here on nothing loses it."""
        self.context.store.record(self.context.run, measurements)
        for one in measurements:
            self.evidence.append(self._evidence(one))
            self._log.add(one)
            self.statuses[one.candidate] = one.status
            self.context.tell(CandidateMeasured(self.workload, one, len(self.statuses)))

    def _late(self, share: float) -> bool:
        """Whether this part of the workload's device time is used up, or the run's budget, or it is another tuner's."""
        busy = self.context.worker.busy_s - self._busy_before
        return busy > share * self.share_s or time.monotonic() > self.context.until or not self.context.held()


def _noisy(one: Measurement, why: str) -> Measurement:
    return replace(one, status="noisy", error=why)
