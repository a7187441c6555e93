"""A quick run measures what is compiled, gives compilers a bounded time, and says what it left to a later run."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Timer

import pytest
import torch

from autotopk import registry
from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.device import H100
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.strategies.split_radix import SplitRadixConfig
from autotopk.tuning import run, session
from autotopk.tuning.candidates import NEAR, candidates, program_of, rungs
from autotopk.tuning.compile_pool import Build, Compiled, CompilePool
from autotopk.tuning.context import Context
from autotopk.tuning.efforts import EFFORTS
from autotopk.tuning.environment import environment_of
from autotopk.tuning.events import WorkloadFinished, WorkloadResult
from autotopk.tuning.run import TuningRun
from autotopk.tuning.sharing import Sharing
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload
from tests.tuning import built
from tests.tuning.replay import InstantPool, ReplayWorker

FIRST, SECOND = Workload(1, 1048576, 100), Workload(4096, 256, 8)
FAMILIES = ("split_radix", "lane_merge")
"""Of one workload each."""


class Clock:
    """Time that passes only while a run waits, so that no other load counts."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alarms: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def wait(self, futures: Iterable[Future[Compiled]], timeout: float, return_when: str) -> None:
        """In place of that of concurrent.futures: until the next alarm, or as long as is asked."""
        rings = min((at for at, _ in self.alarms), default=math.inf)
        self.now = max(self.now + 1e-3, min(self.now + timeout, rings))  # a wait for nothing takes time as well
        for alarm in [one for one in self.alarms if one[0] <= self.now]:
            self.alarms.remove(alarm)
            alarm[1]()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (run, session):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(run, "wait", made.wait)
    return made


class SlowPool(InstantPool):
    """Some candidates are never compiled; with `after_s`, all are so many seconds after they are asked for."""

    def __init__(self, never: Collection[Candidate], after_s: float | None = None, clock: Clock | None = None) -> None:
        super().__init__(H100)
        self.never, self.after_s, self.clock = set(never), after_s, clock
        self.timers: list[Timer] = []

    def submit(self, problem: Problem, candidates: Iterable[Candidate]) -> list[Future[Compiled]]:
        waited: list[Future[Compiled]] = [Future() for one in candidates if one in self.never]
        if waited and self.after_s is not None:
            if self.clock is not None:
                self.clock.alarms.append((self.clock.now + self.after_s, partial(self.finish, waited)))
            else:
                self.timers.append(Timer(self.after_s, self.finish, [waited]))
                self.timers[-1].start()
        return waited

    def close(self) -> None:
        for timer in self.timers:
            timer.cancel()
        super().close()

    def finish(self, waited: list[Future[Compiled]]) -> None:
        self.never.clear()
        for one in waited:
            one.set_result(Compiled())

    def ready(
        self, problem: Problem, candidates: Iterable[Candidate], until: float
    ) -> Iterator[tuple[Candidate, Build]]:
        return super().ready(problem, [one for one in candidates if one not in self.never], until)


def run_of(
    store: Store,
    pool: CompilePool,
    wait_s: float,
    lasts_s: float = 240.0,
    force: bool = False,
    clock: Clock | None = None,
    campaign: str = "",
    kind: type[Sharing] = Sharing,
) -> tuple[TuningRun, list[WorkloadResult]]:
    """A quick run over both workloads, and results in the order in which they will be finished."""
    environment, finished = environment_of(H100), list[WorkloadResult]()
    context = Context(
        device=H100,
        environment=environment,
        effort=replace(EFFORTS["quick"], wait_s=wait_s),
        store=store,
        run=store.begin_run(H100, environment, {}),
        worker=ReplayWorker(others=50.0),
        pool=pool,
        until=(clock or time).monotonic() + lasts_s,
        tell=lambda event: finished.append(event.result) if isinstance(event, WorkloadFinished) else None,
    )
    sharing = kind(store, campaign, H100, torch.device("cuda", 0)) if campaign else None
    context = replace(context, held=sharing.held) if sharing else context
    return TuningRun(context, [FIRST, SECOND], FAMILIES, force, sharing), finished


def tune(
    store: Store, pool: CompilePool, clock: Clock, wait_s: float, lasts_s: float = 60.0, force: bool = False
) -> list[WorkloadResult]:
    """A quick run over both workloads; results in the order in which they were finished."""
    made, finished = run_of(store, pool, wait_s, lasts_s, force, clock)
    assert made.go() == "finished"
    assert [one.workload for one in made.results] == [FIRST, SECOND]
    store.derive_winners()
    return finished


def of(workload: Workload) -> list[Candidate]:
    return candidates(workload.problem("cuda"), H100, FAMILIES)


def test_the_first_rungs_are_candidates_before_the_shortlist() -> None:
    problem, strategy = FIRST.problem("cuda"), registry.get("split_radix")
    near = rungs(problem, H100, FAMILIES)
    assert near == [strategy.candidate(config) for config in strategy.ladder(problem, H100)[:NEAR]]
    shortlist = [strategy.candidate(config) for config in strategy.shortlist(problem, H100)]
    assert of(FIRST) == list(dict.fromkeys([*near, *shortlist]))
    assert strategy.candidate(SplitRadixConfig(128, 1024, 4, 4096)) in near


def test_what_is_compiled_goes_first_and_the_rest_waits(store: Store, clock: Clock) -> None:
    compiling = of(FIRST)[NEAR:] or of(FIRST)[1:]
    with closing(SlowPool(compiling, 0.3, clock)) as pool:
        finished = tune(store, pool, clock, wait_s=20.0)
    assert [one.workload for one in finished] == [SECOND, FIRST]
    assert [(one.outcome, one.uncompiled) for one in finished] == [("tuned", 0)] * 2


def test_what_is_not_compiled_in_time_is_told_and_measured_by_a_later_run(store: Store, clock: Clock) -> None:
    compiling = of(FIRST)[1:]
    with closing(SlowPool(compiling)) as pool:
        finished = tune(store, pool, clock, wait_s=0.2, lasts_s=2.0)
        assert clock.now == pytest.approx(2.0, abs=0.01), "as long as there is time"
    assert [(one.workload, one.outcome, one.uncompiled) for one in finished] == [
        (SECOND, "tuned", 0),
        (FIRST, "tuned", len(compiling)),
    ]
    assert {one.candidate for one in store.measurements() if one.key == FIRST.key} == {TORCH_TOPK, of(FIRST)[0]}
    with closing(InstantPool(H100)) as pool:
        second, first = sorted(tune(store, pool, clock, wait_s=20.0), key=lambda one: one.workload == FIRST)
    assert (second.outcome, first.outcome, first.uncompiled) == ("confirmed", "tuned", 0)
    screened = [one.candidate for one in store.measurements(stage="screen") if one.key == FIRST.key]
    assert sorted(screened) == sorted([TORCH_TOPK, *of(FIRST)]), "each once"


@pytest.mark.parametrize("force", [False, True])
def test_what_is_compiled_late_is_measured_in_a_second_turn(store: Store, clock: Clock, force: bool) -> None:
    if force:
        with closing(InstantPool(H100)) as pool:
            tune(store, pool, clock, wait_s=20.0)
    before = {one.uuid for one in store.measurements()}
    compiling = of(FIRST)[1:]
    with closing(SlowPool(compiling, 1.0, clock)) as pool:
        finished = tune(store, pool, clock, wait_s=0.0, force=force)
    told = [(one.outcome, one.uncompiled) for one in finished if one.workload == FIRST]
    assert told == [("tuned", len(compiling)), ("tuned", 0)]
    assert [one.workload for one in finished] == [SECOND, FIRST, FIRST]
    measured = [one for one in store.measurements(stage="screen") if one.uuid not in before and one.key == FIRST.key]
    assert sorted(one.candidate for one in measured) == sorted([TORCH_TOPK, *of(FIRST)]), "each once"


def test_of_those_who_share_workloads_one_measures_what_is_compiled_late(store_path: Path) -> None:
    def share(after_s: float) -> list[WorkloadResult]:
        with Store.open(store_path) as store, closing(SlowPool(of(FIRST)[1:], after_s)) as pool:
            made, _ = run_of(store, pool, wait_s=0.0, campaign="shared")
            assert made.go() == "finished"
            return made.results

    with Store.open(store_path) as store:
        store.derive_winners()
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(share, (1.0, 1.5)))
    assert not any(one.uncompiled for of_one in results for one in of_one)
    assert all(one.outcome not in ("skipped", "partial") for of_one in results for one in of_one)
    with Store.open(store_path) as store:
        screened = [one.candidate for one in store.measurements(stage="screen") if one.key == FIRST.key]
    assert sorted(screened) == sorted([TORCH_TOPK, *of(FIRST)]), "each once"


def test_whoever_waits_for_kernels_hears_that_another_measured_theirs(store_path: Path) -> None:
    begun, claimed = time.monotonic(), Event()

    class FirstClaimed(Sharing):
        def claim(self, keys: Sequence[TuningKey]) -> TuningKey | None:
            found = super().claim([key for key in keys if key == FIRST.key] or keys)
            claimed.set()
            return found

    def share(after_s: float, kind: type[Sharing]) -> tuple[list[WorkloadResult], WorkloadResult]:
        with Store.open(store_path) as store, closing(SlowPool(of(FIRST)[1:], after_s)) as pool:
            made, finished = run_of(store, pool, wait_s=0.0, campaign="shared", kind=kind)
            assert made.go() == "finished"
            return finished, made.results[0]

    with Store.open(store_path) as store:
        store.derive_winners()
    with ThreadPoolExecutor(2) as threads:
        late = threads.submit(share, 40.0, FirstClaimed)
        assert claimed.wait(20.0)
        threads.submit(share, 3.5, Sharing).result()
        finished, result = late.result()
    assert finished[0].workload == FIRST
    assert (finished[0].uncompiled, result.uncompiled) == (len(of(FIRST)) - 1, 0)
    assert time.monotonic() - begun < 30.0


def test_a_later_run_that_compiles_nothing_either_confirms(store: Store, clock: Clock) -> None:
    def again(pool: CompilePool) -> WorkloadResult:
        return {one.workload: one for one in tune(store, pool, clock, wait_s=0.0, lasts_s=0.5)}[FIRST]

    with closing(SlowPool(of(FIRST)[1:])) as pool:
        told = [again(pool) for _ in range(3)]
    assert [one.outcome for one in told] == ["tuned", "confirmed", "known"]
    assert all(one.uncompiled for one in told)


def test_torch_topk_wins_no_race_against_nobody(store: Store, clock: Clock) -> None:
    with closing(SlowPool(of(FIRST))) as pool:
        _, first = tune(store, pool, clock, wait_s=0.0, lasts_s=0.5)
    assert (first.workload, first.outcome, first.uncompiled) == (FIRST, "partial", len(of(FIRST)))
    assert FIRST.key not in {winner.key for winner in store.winners()}


def test_only_quick_is_impatient() -> None:
    assert {name for name, effort in EFFORTS.items() if effort.wait_s < math.inf} == {"quick"}


def test_a_cached_kernel_waits_behind_no_other(cache_dir: Path) -> None:
    """No process is started for it."""
    cache_dir.mkdir()
    problem = Problem.contiguous(4, 64, 3)
    registry.register(built.strategy)
    try:
        cached, other = (built.strategy.candidate(built.Parts(name)) for name in ("one", "one two"))
        for source in program_of(cached, problem, H100).sources:
            source.load(H100.arch)
        with closing(CompilePool(H100, preload=["tests.tuning.built"], processes=1)) as pool:
            assert all(kernel.done() for kernel in pool.submit(problem, [cached]))
            assert pool._pool is None
            found = dict(pool.ready(problem, [other, cached], 0.0))
            assert list(found) == [cached]
            assert found[cached].identity == program_of(cached, problem, H100).identity(problem, H100.arch)
    finally:
        registry.unregister("built")
