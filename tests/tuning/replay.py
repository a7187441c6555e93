"""A session without processes: a worker that answers from made-up times."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.device import Device, cpu_device
from autotopk.identity import Identity
from autotopk.problem import Problem
from autotopk.tuning.candidates import candidates, lattice, program_of
from autotopk.tuning.compile_pool import Build, Compiled, CompilePool
from autotopk.tuning.context import Context
from autotopk.tuning.efforts import EFFORTS
from autotopk.tuning.environment import environment_of
from autotopk.tuning.evaluate import Screening
from autotopk.tuning.events import Event, WorkloadResult
from autotopk.tuning.session import Session
from autotopk.tuning.worker import Reply, Worker
from autotopk.tuning_db.records import Status, Winner
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload

DEVICE = cpu_device()
WORKLOAD = Workload(1, 32768, 64)
"""For which torch_fallback has 8 candidates."""


def config(method: str = "topk", chunk: int = 0) -> str:
    return f'{{"chunk":{chunk},"method":"{method}"}}'


@dataclass
class ReplayWorker(Worker):
    """Times in microseconds by configuration, 100 where nothing is said, with 0.1 % of noise."""

    times: Mapping[str, float] = field(default_factory=dict)
    screen_status: Mapping[str, Status] = field(default_factory=dict)
    race_status: Mapping[str, Status] = field(default_factory=dict)
    worst_status: Mapping[str, Status] = field(default_factory=dict)
    others: float = 100.0
    """Microseconds of every candidate but torch.topk of which nothing is said."""
    contention: float = 0.0
    """Of every turn."""
    busy_each_s: float = 0.0
    """Device time that a turn seems to take."""
    turns: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By method and configuration."""
    elsewhere: Worker | None = None
    """What another process measures; the same unless it is given."""

    def __post_init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self._random = random.Random(1)

    def start(self) -> None:
        """There is no process."""

    @property
    def another(self) -> Worker:
        return self.elsewhere or self

    def screen(self, problem: Problem, candidate: Candidate, samples: int) -> Reply[Screening]:
        mine = tuple(self._time(candidate) for _ in range(samples))
        baseline = tuple(self._time(None) for _ in range(samples))
        return self._reply("screen", candidate, self.screen_status, Screening(mine, baseline, cold=True))

    def sample(self, problem: Problem, candidate: Candidate | None) -> Reply[float]:
        return self._reply("sample", candidate, self.race_status, self._time(candidate))

    def adversarial_slowdown(self, problem: Problem, candidate: Candidate) -> Reply[float]:
        return self._reply("worst", candidate, self.worst_status, 1.5)

    def _time(self, candidate: Candidate | None) -> float:
        known = 100.0 if candidate in (None, TORCH_TOPK) else self.others
        level = known if candidate is None else self.times.get(candidate.config, known)
        return level * self._random.lognormvariate(0, 0.001)

    def _reply(
        self, method: str, candidate: Candidate | None, statuses: Mapping[str, Status], value: Any
    ) -> Reply[Any]:
        name = "torch.topk" if candidate is None else candidate.config
        self.turns[method, name] += 1
        self.busy_s += self.busy_each_s
        status = statuses.get(name, "ok")
        value = value if status == "ok" else None
        return Reply(status, value, None if status == "ok" else "planted", self.contention)


class InstantPool(CompilePool):
    """Compiles nothing: every candidate is ready at once, and its code is told by its name and a word."""

    def __init__(self, device: Device, word: str = "") -> None:
        super().__init__(device, processes=15)
        self.word = word
        self.submitted: list[Candidate] = []

    def submit(self, problem: Problem, candidates: Iterable[Candidate]) -> list[Future[Compiled]]:
        self.submitted += candidates
        return []

    def ready(
        self, problem: Problem, candidates: Iterable[Candidate], until: float
    ) -> Iterator[tuple[Candidate, Build]]:
        for one in candidates:
            source = program_of(one, problem, self._device).source_digest(problem, self._device.arch)
            yield one, Build(identity=Identity(source, f"{self.word} {one}"))


def run_session(
    store: Store,
    worker: Worker,
    *,
    effort: str = "quick",
    incumbent: Winner | None = None,
    share_s: float = 1e9,
    code: str | None = None,
    baseline: str = "aten",
    tell: Callable[[Event], None] = lambda event: None,
    device: Device = DEVICE,
    workload: Workload = WORKLOAD,
    strategies: Sequence[str] = ("torch_fallback",),
    pool: CompilePool | None = None,
    neighbours: Sequence[Candidate] = (),
    sure: Sequence[Candidate] = (),
) -> WorkloadResult:
    """One session over a workload between the candidates of some strategies; torch's operators have that code."""
    environment = replace(environment_of(device), baseline=baseline)
    problem = workload.problem(device.type)
    shortlist = candidates(problem, device, strategies)
    space = lattice(problem, device, strategies) if EFFORTS[effort].lattice else shortlist
    if incumbent is not None and incumbent.candidate not in space:
        space = [*space, incumbent.candidate]
    with closing(pool or CompilePool(device)) as pool, pytest.MonkeyPatch.context() as patch:
        if code is not None:
            patch.setattr("autotopk.program.python_digest", lambda file: code)
        context = Context(
            device=device,
            environment=environment,
            effort=EFFORTS[effort],
            store=store,
            run=store.begin_run(device, environment, {}),
            worker=worker,
            pool=pool,
            until=time.monotonic() + 600,  # beside other load
            tell=tell,
        )
        session = Session(
            context=context,
            index=0,
            workload=workload,
            problem=problem,
            evidence=store.evidence(device.fingerprint, workload.key),
            candidates=space,
            first=shortlist if EFFORTS[effort].lattice else sure,
            sure=sure,
            neighbours=neighbours,
            strategies=strategies,
            incumbent=incumbent,
            share_s=share_s,
        )
        return session.run()
