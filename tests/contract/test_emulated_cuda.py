"""Every strategy in CUDA C++ answers right in the emulator, in its configurations of the fewest threads.

A strategy is found by its programs: nothing here names one.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from math import prod

import pytest
import torch

from autotopk import registry
from autotopk.compilers.cuda import CudaSource
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.program import KernelProgram
from autotopk.strategy import Config, Strategy
from tests.contract.cases import LAYOUTS, ORDERS, Case
from tests.contract.emulated import answer, problem_of
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")

SIZES = ((3, 700, 17), (2, 66_003, 100), (1, 1, 1), (1, 70_001, 33), (3, 701, 701))
"""(rows, cols, k), in turns: of every input a short row and a long one, and whole rows."""


def cuda_launches(strategy: Strategy, config: Config, problem: Problem) -> int:
    """Launches of a program in CUDA C++; 0 for any other program."""
    program = strategy.program(config, problem, H100)
    if not isinstance(program, KernelProgram):
        return 0
    return len(program.launches) if all(isinstance(one.source, CudaSource) for one in program.launches) else 0


def cheapest(strategy: Strategy, problem: Problem) -> list[Config]:
    """Of each number of launches, the configuration of the fewest threads in all; empty unless in CUDA C++."""
    found: dict[int, tuple[int, Config]] = {}
    if strategy.reasons_unable(problem, H100):
        return []
    for config in strategy.lattice(problem, H100):
        if count := cuda_launches(strategy, config, problem):
            cost = threads(strategy, config, problem)
            if count not in found or cost < found[count][0]:
                found[count] = cost, config
    return [config for _, config in found.values()]


def threads(strategy: Strategy, config: Config, problem: Problem) -> int:
    """Of the first launch, per row."""
    program = strategy.program(config, problem, H100)
    assert isinstance(program, KernelProgram)
    first = program.launches[0]
    assert isinstance(first.source, CudaSource)
    return prod(first.blocks(replace(problem, rows=1))) * first.source.threads


ASKED = [
    (strategy.name, dtype)
    for strategy in registry.available()
    for dtype in DTYPE_BYTES
    if any(cheapest(strategy, Problem.contiguous(*size, dtype, sorted=False)) for size in SIZES)
]


def cases(dtype: str) -> Iterator[Case]:
    layouts, orders, sizes = itertools.cycle(LAYOUTS), itertools.cycle(ORDERS), itertools.cycle(SIZES)
    for name in inputs.names_for(getattr(torch, dtype)):
        for _ in range(2):
            rows, cols, k = next(sizes)
            largest, order = next(orders)
            yield Case(rows, cols, k, dtype, name, largest, order, next(layouts))
        next(orders)  # so that orders and sizes do not move in step


@pytest.mark.parametrize(("name", "dtype"), ASKED)
def test_answers_right(name: str, dtype: str, sequences: Sequences) -> None:
    strategy = registry.get(name)
    for seed, case in enumerate(cases(dtype)):
        x = case.input("cpu")
        indices_only = "indices" in strategy.features.answers and seed % 6 == 5
        for config in cheapest(strategy, problem_of(case, x, indices_only=indices_only)):
            found = answer(sequences, strategy, config, case, x, indices_only=indices_only, seed=seed)
            assert not case.problems_with(x, found), (case, config)
