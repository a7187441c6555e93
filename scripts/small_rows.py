"""How small rows that nobody tuned fare on this GPU: `python scripts/small_rows.py random FILE` writes JSON."""

import json
import math
import multiprocessing
import random as randomness
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import repeat
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch
from rich.progress import track

import autotopk
from autotopk.cli import bench
from autotopk.device import Device, device_of
from autotopk.errors import BuildError
from autotopk.kernel import KernelSource
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from autotopk.problem import Problem
from autotopk.program import KernelProgram
from autotopk.runtime import dispatch
from autotopk.strategies._short_rows import MERGED_DTYPES
from autotopk.tuning import timing

CHECKED = ("random", "ties", "all_equal", "nan", "minus_inf_padding")


def shapes(count: int, seed: int) -> Iterator[Problem]:
    """Rows from 1 to 100,000, columns from 2 to 4,096, k up to 64, each even over its logarithm; three dtypes."""
    draw = randomness.Random(seed)

    def even(low: int, high: int) -> int:
        return min(high, int(math.exp(draw.uniform(math.log(low), math.log(high + 1)))))

    for _ in range(count):
        cols = even(2, 4096)
        yield Problem.contiguous(even(1, 100_000), cols, even(1, min(64, cols)), draw.choice(MERGED_DTYPES))


def random(file: Path, count: int = 200, seed: int = 0) -> None:
    """Time and check `autotopk.topk` beside torch.topk on random shapes."""
    device, problems = torch.device("cuda"), list(shapes(count, seed))
    place = device_of(device)
    choices = [dispatch.choose(problem, place) for problem in problems]
    asked = zip(choices, problems, strict=True)
    compile_all((choice.strategy.program(choice.config, problem, place) for choice, problem in asked), place)
    rows = []
    for problem, choice in track(list(zip(problems, choices, strict=True))):
        wrong = [fault for name in CHECKED for fault in faults(problem, name, device)]
        timer = timing.timer_for(timing.random_inputs(problem, device))
        ours, torchs = (timer.median_us(partial(run, k=problem.k), 5) for run in (autotopk.topk, torch.topk))
        chosen = {"strategy": choice.strategy.name, "config": asdict(choice.config), "step": choice.step}
        rows.append({**shape(problem), **chosen, "gpu_us": ours, "torch_gpu_us": torchs, "problems": wrong})
    write(file, {"seed": seed, "rows": rows}, place)
    ratios = sorted(row["gpu_us"] / row["torch_gpu_us"] for row in rows)
    slower, inexact = sum(ratio > 1 for ratio in ratios), sum(bool(row["problems"]) for row in rows)
    speed = 1 / geometric_mean(ratios)
    print(f"{count} shapes: {speed:.2f} times torch.topk's speed, slowest {1 / ratios[-1]:.2f}, {slower} slower")
    print(f"{inexact} with a wrong answer on {', '.join(CHECKED)}")


def compile_all(programs: Iterable[Any], device: Device) -> None:
    """On all cores, before anything is timed."""
    sources = dict.fromkeys(program.sources[0] for program in programs if isinstance(program, KernelProgram))
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_one, sources, repeat(device.arch)))


def compile_one(source: KernelSource, arch: int) -> None:
    """Into the cache folder; what does not compile is left to dispatch."""
    try:
        source.load(arch)
    except BuildError:
        pass


def faults(problem: Problem, name: str, device: torch.device) -> list[str]:
    """What is wrong with the answer to a named input."""
    dtype = getattr(torch, problem.dtype)
    x = inputs.make(name, problem.rows, problem.cols, problem.k, dtype, str(device))
    values, indices = autotopk.topk(x, problem.k)
    return [f"{name}: {fault}" for fault in problems_with(x, values, indices, problem.k)]


def shape(problem: Problem) -> dict[str, Any]:
    """Rows, columns, k and dtype."""
    return {"rows": problem.rows, "cols": problem.cols, "k": problem.k, "dtype": problem.dtype}


def write(file: Path, found: dict[str, Any], device: Device) -> None:
    """With the device, versions, commit and command."""
    document = bench.document([], torch.device("cuda"), " ".join(["python", *sys.argv]))
    document.pop("summary")
    file.write_text(json.dumps({**document, **found}, indent=1) + "\n")


if __name__ == "__main__":
    {"random": random}[sys.argv[1]](Path(sys.argv[2]))
