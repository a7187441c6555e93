"""What `autotopk.topk` costs as users call it, beside torch.topk in the same run."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import autotopk
from autotopk.cli.arguments import SelectionError
from autotopk.device import device_of
from autotopk.errors import MeasurementError
from autotopk.oracle import inputs
from autotopk.problem import KTH
from autotopk.runtime.trial import SCALE, Trial
from autotopk.tuning import timing
from autotopk.tuning.environment import environment_of
from autotopk.workloads import Workload

ROUNDS = 7
"""How often ours and torch.topk are timed in turn on the GPU, or on a CPU."""

HOST_ROUNDS = 3
"""The same for host time on a GPU; each round is the best of ten bursts."""

STDOUT = Path("-")
"""What asks for JSON on standard output."""

CHECKED = ("random", "all_equal", "narrow", "one_radix_bin", "ties", "minus_inf_padding", "nan", "descending")
"""The inputs that results are checked on, as far as the dtype has them."""


@dataclass(frozen=True)
class Row:
    """One shape in one order. Times are microseconds of one call; `gpu_us` is None on a CPU, where `host_us` is all."""

    rows: int
    cols: int
    k: int
    dtype: str
    sorted: bool
    routing: str
    """The rule of a router; empty for a plain top-k."""
    strategy: str
    config: dict[str, Any]
    step: str
    """How the strategy was chosen, see `autotopk.runtime.dispatch`."""
    gpu_us: float | None
    host_us: float
    torch_gpu_us: float | None
    torch_host_us: float
    exact: bool
    problems: tuple[str, ...]
    """What is wrong with the results where they are not exact."""
    cold: bool
    """Whether the inputs together exceed the L2."""

    @property
    def gpu_ratio(self) -> float | None:
        """GPU time over torch.topk's; below 1 is faster."""
        return self.gpu_us / self.torch_gpu_us if self.gpu_us and self.torch_gpu_us else None

    @property
    def host_ratio(self) -> float:
        """Host time over torch.topk's; below 1 is faster."""
        return self.host_us / self.torch_host_us


@dataclass(frozen=True)
class Summary:
    """Ratios of times over the shapes of one order."""

    sorted: bool
    clock: str
    """"gpu" or "host"."""
    geometric_mean: float
    worst: float
    inexact: int


def bench(workload: Workload, device: torch.device) -> Row:
    """Time and check one workload. Raises MeasurementError where memory is short or a kernel cannot be launched."""
    try:
        return _row(workload, device)
    except (RuntimeError, MemoryError) as error:
        raise MeasurementError(timing.first_line(error)) from error


def _row(workload: Workload, device: torch.device) -> Row:
    problem = workload.problem(device.type)
    trial = Trial.of(problem, str(device))
    ours: timing.Run = call_of(trial)
    torchs: timing.Run = trial.torchs
    problems = tuple(_problems(ours, trial, device))
    choice = autotopk.explain_problem(problem, device_of(device)).choice
    xs = timing.random_inputs(problem, device)
    timer = timing.timer_for(xs)
    wall = _in_turn([timer.prepare(ours), timer.prepare(torchs)], ROUNDS)
    if device.type == "cuda":
        gpu: Sequence[float | None] = wall
        host = _in_turn([partial(timing.host_us, partial(run, xs[0])) for run in (ours, torchs)], HOST_ROUNDS)
    else:
        gpu, host = (None, None), wall
    return Row(
        rows=workload.rows,
        cols=workload.cols,
        k=workload.k,
        dtype=workload.dtype,
        sorted=workload.sorted,
        routing=workload.key.routing,
        strategy=choice.strategy.name,
        config=asdict(choice.config),
        step=choice.step,
        gpu_us=gpu[0],
        host_us=host[0],
        torch_gpu_us=gpu[1],
        torch_host_us=host[1],
        exact=not problems,
        problems=problems,
        cold=timer.cold,
    )


def summaries(rows: Iterable[Row]) -> list[Summary]:
    """Sorted and unsorted apart, by GPU time and by host time."""
    clocks: dict[str, Callable[[Row], float | None]] = {"gpu": lambda r: r.gpu_ratio, "host": lambda r: r.host_ratio}
    found = []
    for order in (True, False):
        of_order = [row for row in rows if row.sorted == order]
        for clock, ratio_of in clocks.items():
            if ratios := [ratio for row in of_order if (ratio := ratio_of(row)) is not None]:
                mean = exp(sum(map(log, ratios)) / len(ratios))
                found.append(Summary(order, clock, mean, max(ratios), sum(not row.exact for row in of_order)))
    return found


def document(rows: Sequence[Row], device: torch.device, command: str) -> dict[str, Any]:
    """The rows with all that is needed to judge them, as JSON."""
    place = device_of(device)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "commit": _commit(),
        "device": {**asdict(place), "fingerprint": place.fingerprint},
        "versions": asdict(environment_of(place)),
        "rows": [asdict(row) for row in rows],
        "summary": [asdict(summary) for summary in summaries(rows)],
    }


def save(document: dict[str, Any], path: Path) -> None:
    """Write it to a file, or print it where the path is `STDOUT`. Raises SelectionError where that cannot be."""
    text = json.dumps(document, indent=2) + "\n"
    try:
        sys.stdout.write(text) if path == STDOUT else path.write_text(text)
    except OSError as error:
        raise SelectionError(f"--json {path}: {error}") from error


def call_of(trial: Trial) -> timing.Run:
    """As users call it."""
    problem, rule = trial.problem, trial.problem.routing
    if (ends := trial.ends) is not None:
        return lambda x: autotopk.topk_indices(x, problem.k, ends=ends[: len(x)], return_values=True)[::-1]
    if problem.operation == KTH:
        kth = partial(autotopk.kth_value, k=problem.k, largest=problem.largest)
        return lambda x: tuple(one.unsqueeze(1) for one in kth(x))
    if rule is None:
        return partial(autotopk.topk, k=problem.k, sorted=problem.sorted)
    return partial(
        autotopk.topk_softmax,
        k=problem.k,
        bias=trial.bias,
        scoring=rule.scoring,
        renormalize=rule.renormalize,
        scale=SCALE,
        n_group=rule.n_group,
        topk_group=rule.topk_group,
    )


def _problems(run: timing.Run, trial: Trial, device: torch.device) -> Iterable[str]:
    """What is wrong with the results, each after the name of its input."""
    problem = trial.problem
    dtype, shape = getattr(torch, problem.dtype), (problem.rows, problem.cols, problem.k)
    for name in CHECKED:
        if name in inputs.names_for(dtype):
            x: Tensor = inputs.make(name, *shape, dtype, str(device))
            for wrong in trial.problems_with(x, run(x)):
                yield f"{name}: {wrong}"


def _in_turn(samples: Sequence[timing.Sample], rounds: int) -> list[float]:
    """The median of each, sampled one after the other in every round."""
    return [median(times) for times in zip(*([sample() for sample in samples] for _ in range(rounds)), strict=True)]


def _commit() -> str | None:
    """The commit of the checkout that is running, "-dirty" where it was changed; None of an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    describe = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None
