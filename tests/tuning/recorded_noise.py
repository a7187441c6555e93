"""Races on a CPU as they went beside busy loops, and how the same candidates compare where nothing disturbs.

`python -m tests.tuning.recorded_noise noisy|quiet` records one or the other into the file that the tests replay.
"""

import json
import multiprocessing
import os
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import torch

from autotopk.candidate import TORCH_TOPK, Candidate
from autotopk.device import cpu_device
from autotopk.problem import Problem
from autotopk.tuning.candidates import candidates
from autotopk.tuning.evaluate import Evaluator, Screening
from autotopk.tuning.noise import CoreTime
from autotopk.tuning.worker import Reply
from autotopk.workloads import Workload
from tests.tuning.replay import ReplayWorker

FILE = Path(__file__).with_suffix(".json")
WORKLOADS = [
    Workload(*shape) for shape in ((1, 32768, 64), (4, 65536, 100), (64, 4096, 8), (256, 1024, 64), (16, 256, 5))
]
ROUNDS = {"noisy": 45, "quiet": 25}
BASELINE = "torch.topk"


@dataclass
class NoisyWorker(ReplayWorker):
    """Answers with what was recorded, turn by turn; the contention beside it unless the system tells none."""

    recorded: Mapping[str, list[list[float]]] = field(default_factory=dict)
    """By configuration, (microseconds, contention) of its turns in order."""
    tells: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._turns = {name: cycle(turns) for name, turns in self.recorded.items()}

    def screen(self, problem: Problem, candidate: Candidate, samples: int) -> Reply[Screening]:
        mine = [next(self._turns[candidate.config]) for _ in range(samples)]
        baseline = [next(self._turns[BASELINE]) for _ in range(samples)]
        seen = Screening(tuple(one[0] for one in mine), tuple(one[0] for one in baseline), cold=False)
        self.turns["screen", candidate.config] += 1
        return Reply("ok", seen, contention=self._told(median(one[1] for one in mine)))

    def sample(self, problem: Problem, candidate: Candidate | None) -> Reply[float]:
        name = BASELINE if candidate is None else candidate.config
        self.turns["sample", name] += 1
        taken, contention = next(self._turns[name])
        return Reply("ok", taken, contention=self._told(contention))

    def _told(self, contention: float) -> float:
        return contention if self.tells else 0.0


def read() -> list[tuple[Workload, Mapping[str, list[list[float]]], Mapping[str, float]]]:
    """Of every workload the turns beside busy loops, and the ratios to torch.topk without."""
    return [(Workload(*one["workload"]), one["noisy"], one["quiet"]) for one in json.loads(FILE.read_text())]


@contextmanager
def busy_loops() -> Iterator[None]:
    """One for each core that this process may use."""
    context = multiprocessing.get_context("spawn")
    loops = [context.Process(target=_loop, daemon=True) for _ in os.sched_getaffinity(0)]
    for one in loops:
        one.start()
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.join()


def _loop() -> None:
    while True:
        pass


def turns(workload: Workload, rounds: int) -> dict[str, list[list[float]]]:
    """Rounds of all candidates of torch_fallback and torch.topk, shuffled."""
    problem, draw = workload.problem("cpu"), random.Random(0)
    evaluator = Evaluator(problem, torch.device("cpu"))
    among = [None, TORCH_TOPK, *candidates(problem, cpu_device(), ["torch_fallback"])]
    found: dict[str, list[list[float]]] = {}
    for _ in range(rounds):
        for one in draw.sample(list(dict.fromkeys(among)), len(set(among))):
            before = CoreTime.now()
            taken = evaluator.sample(one)
            contention = CoreTime.now().contention_since(before)
            name = BASELINE if one is None else one.config
            found.setdefault(name, []).append([round(taken, 1), round(contention, 3)])
    return found


def main(mode: str) -> None:
    """Record."""
    told: list[dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else []
    by_workload = {tuple(one["workload"]): one for one in told}
    for workload in WORKLOADS:
        shape = workload.rows, workload.cols, workload.k
        one = by_workload.setdefault(shape, {"workload": shape})
        if mode == "noisy":
            with busy_loops():
                one["noisy"] = turns(workload, ROUNDS[mode])
        else:
            found = turns(workload, ROUNDS[mode])
            baseline = [taken for taken, _ in found.pop(BASELINE)]
            one["quiet"] = {
                name: round(median(a / b for (a, _), b in zip(its, baseline, strict=True)), 4)
                for name, its in found.items()
            }
            sys.stdout.write(f"{workload}: {one['quiet']}\n")
    lines = (json.dumps(one, separators=(",", ":")) for one in by_workload.values())
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
