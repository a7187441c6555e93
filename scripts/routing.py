"""What `topk_softmax` takes beside `topk` of the same rows, and beside torch's operators, on the GPU at hand.

    python3 -m scripts.routing

Microseconds of one call in a CUDA graph of calls that rotate through more inputs than the L2 holds, each the median of
rounds in which all three take turns.
"""

from functools import partial
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import autotopk
from autotopk.cli.bench import call_of
from autotopk.device import cuda_device
from autotopk.oracle.inputs import make, names_for
from autotopk.runtime.trial import Trial
from autotopk.tuning.timing import CudaTimer, random_inputs
from autotopk.workloads import Workload, tagged

ROUNDS = 11


def measured(workload: Workload) -> tuple[list[float], list[str]]:
    """Times of topk_softmax, topk and torch's operators, and what is wrong with the answers of the first."""
    problem, device = workload.problem("cuda"), torch.device("cuda")
    trial = Trial.of(problem, "cuda")
    ours = call_of(trial)
    timer = CudaTimer(random_inputs(problem, device))
    calls: list[Any] = [ours, partial(autotopk.topk, k=workload.k), trial.torchs]
    samples = [timer.prepare(call) for call in calls]
    times = [[sample() for sample in samples] for _ in range(ROUNDS)]
    wrong = []
    for name in names_for(getattr(torch, workload.dtype)):
        x = make(name, workload.rows, workload.cols, workload.k, getattr(torch, workload.dtype), "cuda")
        wrong += [f"{name}: {told}" for told in trial.problems_with(x, ours(x))]
    return [median(of_call) for of_call in zip(*times, strict=True)], wrong


def main() -> None:
    """Print a table."""
    table = Table("workload", "topk_softmax us", "topk us", "ratio", "torch us", "ratio", "strategy", "right")
    for workload in tagged("routing"):
        (ours, topk, torchs), wrong = measured(workload)
        choice = autotopk.explain_problem(workload.problem("cuda"), cuda_device(0)).choice
        row = f"{ours:.2f}", f"{topk:.2f}", f"{ours / topk:.2f}", f"{torchs:.1f}", f"{ours / torchs:.3f}"
        table.add_row(str(workload), *row, str(choice.candidate), wrong[0] if wrong else "yes")
    Console(width=220).print(table)


if __name__ == "__main__":
    main()
