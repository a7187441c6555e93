"""How a strategy in CUDA C++ is asked in the emulator."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from autotopk.device import H100
from autotopk.kernel import scalars
from autotopk.problem import Problem
from autotopk.program import KernelProgram
from autotopk.strategies._costs.split import Lists
from autotopk.strategy import Config, Strategy
from tests.contract.cases import Case, answer_amid_guards, at
from tests.emulator.sequences import Sequences

PREEMPTIONS = (0, 30, 400)
"""Accesses to shared memory after which another thread runs; 0 for threads that run until they must wait."""


@dataclass(frozen=True)
class Kind:
    """A dtype, and how blocks share a row, which its kernels are compiled for."""

    dtype: str
    config: Lists

    def __str__(self) -> str:
        c = self.config
        return f"{self.dtype}-{c.blocks}x{c.threads}x{c.loads}-c{c.capacity}"


def answer(
    sequences: Sequences,
    strategy: Strategy,
    config: Config,
    case: Case,
    x: Tensor,
    *,
    indices_only: bool = False,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Values and indices, from outputs that started as garbage amid guards."""
    problem = problem_of(case, x, indices_only=indices_only)
    assert strategy.valid(config, problem, H100)
    program = strategy.program(config, problem, H100)
    assert isinstance(program, KernelProgram)

    def launch(values: Tensor, indices: Tensor) -> None:
        tensors = {"x": x, "values": 0 if indices_only else values, "indices": indices}
        sequences.run(program, problem, tensors, seed=seed, preempt=PREEMPTIONS[seed % len(PREEMPTIONS)])

    index_dtype = torch.int32 if indices_only else torch.int64
    values, indices = answer_amid_guards(problem, x.dtype, index_dtype, launch)
    found = indices.long()
    return at(x, found) if indices_only else values, found


def problems_of_all(
    sequences: Sequences, strategy: Strategy, config: Config, cases: Iterable[Case], *, indices_of: int = 7
) -> Iterator[tuple[Case, list[str]]]:
    """What is wrong with each answer, threads in an order by the case's number; one of so many asks for indices."""
    for seed, case in enumerate(cases):
        x = case.input("cpu")
        found = answer(sequences, strategy, config, case, x, indices_only=seed % indices_of == 0, seed=seed)
        yield case, case.problems_with(x, found)


def problem_of(case: Case, x: Tensor, *, indices_only: bool = False) -> Problem:
    """The problem that dispatch would make of the case on a GPU."""
    return replace(case.problem(x, "cuda"), answer="indices" if indices_only else "pairs")


def barriers(sequences: Sequences, strategy: Strategy, config: Config, x: Tensor, k: int) -> int:
    """That a kernel takes for a row, in order."""
    problem = Problem.contiguous(1, x.shape[1], k, str(x.dtype).removeprefix("torch."))
    program = strategy.program(config, problem, H100)
    assert isinstance(program, KernelProgram)
    (launch,) = program.launches
    outputs = {"values": torch.empty(1, k, dtype=x.dtype), "indices": torch.empty(1, k, dtype=torch.int64)}
    blocks, given = launch.blocks(problem), scalars(problem)
    scratch = {one.name: torch.zeros(one.bytes.of(given), dtype=torch.uint8) for one in program.scratch}
    return sequences.emulator(launch.source)(blocks, {**given, "x": x, **outputs, **scratch}).barriers


def barriers_beyond_random(
    sequences: Sequences,
    strategy: Strategy,
    config: Config,
    cols: int,
    k: int,
    dtype: str,
    kept_sixteenths: Iterable[int] = range(8, 16, 2),
) -> list[int]:
    """That a kernel takes for rows of which the first or the last part is kept, and the rest is -inf.

    Each less those that it takes for a random row, in order.
    """
    kept, beyond = torch.arange(cols), []
    for seed in range(3):
        x = torch.randn(1, cols, generator=torch.Generator().manual_seed(seed)).to(getattr(torch, dtype))
        once = barriers(sequences, strategy, config, x, k)
        for part in (cols * sixteenths // 16 for sixteenths in kept_sixteenths):
            for masked in (kept >= part, kept < cols - part):
                row = x.masked_fill(masked, -torch.inf)
                beyond.append(barriers(sequences, strategy, config, row, k) - once)
    return beyond
