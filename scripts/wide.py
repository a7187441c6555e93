"""Check and time `wide_radix`, every rung of its ladder: `python scripts/wide.py random` or `hostile`."""

import sys
from dataclasses import replace
from functools import partial

import torch

from autotopk import registry
from autotopk.device import device_of
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from autotopk.problem import Problem
from autotopk.runtime import launch
from autotopk.tuning import timing

SHAPES = (
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
)
HOSTILE = ((1, 3_000_001, 30_001), (300, 40_003, 15_000), (600, 8191, 4001), (3, 200_001, 200_001))
ORDERS = ((True, True), (False, False), (False, True))
"""(largest, sorted)."""


def random() -> None:
    """Sorted and in any order; 1.5 times torch.topk's speed is the aim."""
    device, strategy = torch.device("cuda"), registry.get("wide_radix")
    place = device_of(device)
    for rows, cols, k, dtype in SHAPES:
        for order in (True, False):
            problem = Problem.contiguous(rows, cols, k, dtype, sorted=order)
            timer = timing.timer_for(timing.random_inputs(problem, device))
            torch_us = timer.median_us(partial(torch.topk, k=k, sorted=order))
            print(f"{problem}: torch.topk {torch_us:.1f} us", flush=True)
            for config in strategy.ladder(problem, place):
                program = strategy.program(config, problem, place)
                run = launch.bind(program, problem, place)
                x = timer.inputs[0]
                values, indices = run(x)
                faults = problems_with(x, values, indices, k, sorted=order)
                us = timer.median_us(run)
                times, way = torch_us / us, "split" if config.split else "whole"
                scratch = program.scratch_bytes(problem) / (rows * k * (problem.itemsize + 8))
                print(
                    f"  {config.blocks:4} {way} {us:9.1f} us, {times:.2f} times, scratch {scratch:.2f} of the output, "
                    f"{faults or 'exact'}",
                    flush=True,
                )
            del timer
            torch.cuda.empty_cache()


def hostile() -> None:
    """Every input of the oracle, with the first and the last rung, twice."""
    strategy, place = registry.get("wide_radix"), device_of(torch.device("cuda"))
    for rows, cols, k in HOSTILE:
        for name in inputs.names_for(torch.float32):
            x = inputs.make(name, rows, cols, k, torch.float32, "cuda")
            timer = timing.timer_for([x])
            for largest, order in ORDERS:
                problem = replace(Problem.contiguous(rows, cols, k), largest=largest, sorted=order)
                ladder = strategy.ladder(problem, place)
                for config in dict.fromkeys((ladder[0], ladder[-1 if rows > 1 else 0])):
                    run = launch.bind(strategy.program(config, problem, place), problem, place)
                    (values, indices), (_, again) = run(x), run(x)
                    faults = problems_with(x, values, indices, k, largest=largest, sorted=order)
                    if not torch.equal(indices, again):
                        faults.append("another answer the second time")
                    print(f"{name} {problem} {config}: {timer.median_us(run):.1f} us, {faults or 'exact'}", flush=True)


if __name__ == "__main__":
    {"random": random, "hostile": hostile}[sys.argv[1]]()
