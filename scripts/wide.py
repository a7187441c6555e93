"""Check wide_radix exactly and time it against torch.topk by CUDA-graph replay: `python scripts/wide.py`, on a GPU."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autotopk import registry
from autotopk.device import device_of
from autotopk.oracle.reference import problems_with
from autotopk.problem import Problem
from autotopk.runtime import launch
from autotopk.strategy import Config

SHAPES = [
    (1, 30_000_000, 30_000, "float32"),
    (5000, 40_000, 15_000, "float32"),
    (1, 1_000_000, 1_000_000, "float32"),
    (64, 100_000, 100_000, "float32"),
    (4096, 8192, 4096, "float32"),
    (16, 1_000_000, 100_000, "float32"),
    (1, 30_000_000, 30_000, "bfloat16"),
    (256, 131_072, 16_384, "bfloat16"),
    (1, 10_000_000, 1_000_000, "int64"),
    (8, 500_000, 20_000, "float64"),
    (64, 1_000_000, 20_000, "int8"),
    (1, 5_000_000, 5_000_000, "float32"),
]
ADVERSARIAL = [
    (name, rows, cols, k)
    for rows, cols, k in [(1, 3_000_001, 30_001), (300, 40_003, 15_000), (3, 200_001, 200_001)]
    for name in ("all_equal", "ties", "few_nan", "all_nan", "infinities", "ascending", "descending", "narrow_range")
]


def made(name: str, rows: int, cols: int, dtype: str) -> Tensor:
    """An input of that kind."""
    kind = getattr(torch, dtype)
    if name == "random":
        if kind.is_floating_point:
            return torch.randn(rows, cols, device="cuda", dtype=torch.float32 if kind.itemsize <= 4 else kind).to(kind)
        low, high = max(torch.iinfo(kind).min, -(2**62)), min(torch.iinfo(kind).max, 2**62)
        return torch.randint(low, high, (rows, cols), device="cuda", dtype=kind)
    x = torch.randn(rows, cols, device="cuda")
    if name == "all_equal":
        x.fill_(1.5)
    elif name == "ties":
        x = (x * 3).round()
    elif name == "few_nan":
        x[:, ::1001] = float("nan")
    elif name == "all_nan":
        x.fill_(float("nan"))
    elif name == "infinities":
        x[:, ::3], x[:, 1::7] = float("inf"), float("-inf")
    elif name == "ascending":
        x = x.sort(dim=1).values
    elif name == "descending":
        x = x.sort(dim=1, descending=True).values
    else:
        x = 1 + x.abs() * 1e-6
    return x


def replayed(call: Callable[[], Any], seconds: float = 0.3) -> float:
    """Median us of a call in a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    times: list[float] = []
    end = time.time() + seconds
    while len(times) < 5 or (time.time() < end and len(times) < 100):
        start, stop = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1000)
    return sorted(times)[len(times) // 2]


def main() -> None:
    """Check and time every shape, then every adversarial input."""
    place, strategy = device_of(torch.device("cuda")), registry.get("wide_radix")

    def bound(problem: Problem, config: Config) -> Callable[[Tensor], Any]:
        return launch.bind(strategy.program(config, problem, place), problem, place)

    for rows, cols, k, dtype in SHAPES:
        problem = Problem.contiguous(rows, cols, k, dtype)
        if reasons := strategy.reasons_unable(problem, place):
            print(problem, "refused:", reasons)
            continue
        x = made("random", rows, cols, dtype)
        theirs = replayed(partial(torch.topk, x, k))
        for config in strategy.ladder(problem, place):
            run = bound(problem, config)
            values, indices = run(x)
            wrong = problems_with(x, values, indices, k)
            us = replayed(partial(run, x))
            scratch = strategy.program(config, problem, place).scratch_bytes(problem) / (
                rows * k * (problem.itemsize + 8)
            )
            print(
                f"{problem}: {config.blocks:4} {'split' if config.split else 'whole'} {us:9.1f} us, torch.topk "
                f"{theirs:9.1f}, {theirs / us:5.2f} times, scratch {scratch:.2f} of the output, {wrong or 'exact'}",
                flush=True,
            )
        del x
        torch.cuda.empty_cache()
    for name, rows, cols, k in ADVERSARIAL:
        x = made(name, rows, cols, "float32")
        for largest, order in ((True, True), (False, False), (False, True)):
            problem = Problem.contiguous(rows, cols, k, largest=largest, sorted=order)
            ladder = strategy.ladder(problem, place)
            for config in dict.fromkeys([ladder[0], ladder[-1]] if rows > 1 else ladder[:1]):
                run = bound(problem, config)
                first, again = run(x), run(x)
                wrong = problems_with(x, first[0], first[1], k, largest=largest, sorted=order)
                same = torch.equal(first[1], again[1])
                print(
                    name,
                    problem,
                    config.split,
                    f"{replayed(partial(run, x), 0.1):9.1f} us",
                    wrong or "exact",
                    "same again" if same else "DIFFERS",
                    flush=True,
                )


if __name__ == "__main__":
    main()
