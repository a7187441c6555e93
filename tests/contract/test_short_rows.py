"""What short rows' kernels do when words leave doubt, and that they write indices alone, in Triton's interpreter."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from autotopk import registry
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from autotopk.problem import Problem
from autotopk.program import KernelProgram
from autotopk.runtime.launch import arguments
from autotopk.strategy import Config, Strategy

pytestmark = pytest.mark.interpret


def run(strategy: Strategy, config: Config, problem: Problem, x: Tensor) -> tuple[Tensor, Tensor]:
    """Values, zeros where only indices are asked for, and indices."""
    program = strategy.program(config, problem, H100)
    assert isinstance(program, KernelProgram)
    values = torch.zeros(problem.rows, problem.k, dtype=x.dtype)
    indices = torch.zeros(problem.rows, problem.k, dtype=torch.int32 if problem.answer == "indices" else torch.int64)
    tensors = arguments(problem, x=x, values=values, indices=indices)
    program.sources[0].interpret(program.launches[0].blocks(problem), tensors)  # type: ignore[attr-defined]
    return values, indices


def lane_merge(lanes: int, depth: int, problem: Problem) -> tuple[Strategy, Config]:
    strategy = registry.get("lane_merge")
    config = strategy.config_type(lanes=lanes, warps=1, depth=depth, tree=False)
    assert strategy.valid(config, problem, H100)
    return strategy, config


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["lane_merge", "masked_argmax"])
@pytest.mark.parametrize("values", ["random", "ties", "nan"])
def test_int32_indices_alone(name: str, dtype: str, values: str) -> None:
    """They are those of the pairs, and values stay untouched."""
    strategy, problem = registry.get(name), Problem.contiguous(3, 72, 5, dtype)
    x = inputs.make(values, 3, 72, 5, getattr(torch, dtype), "cpu")
    config = strategy.shortlist(problem, H100)[0]
    _, expected = run(strategy, config, problem, x)
    untouched, indices = run(strategy, config, replace(problem, answer="indices"), x)
    assert indices.tolist() == expected.tolist()
    assert not untouched.any()


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("step", [1e-6, 1.0])
def test_the_best_in_one_lane(dtype: str, largest: bool, step: float) -> None:
    """Its list ends too soon, and what it hides may be far above what was found instead, or like it."""
    problem = Problem.contiguous(2, 512, 12, dtype, largest=largest)
    strategy, config = lane_merge(16, 8, problem)
    width = problem.layout.vector
    column = torch.arange(512)
    x = torch.randn(2, 512, generator=torch.Generator().manual_seed(0)) * step + 1
    x = torch.where(column // width % 16 == 5, x + 3 * step, x)
    x = (x if largest else -x).to(getattr(torch, dtype))
    assert not problems_with(x, *run(strategy, config, problem, x), 12, largest=largest)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("count", [1, 3, 7, 8, 20])
def test_infinities_and_nans_of_several_lanes(count: int, largest: bool) -> None:
    """Where they are fewer than k what comes after them is right as well."""
    problem = Problem.contiguous(4, 96, 8, largest=largest)
    strategy, config = lane_merge(8, 8, problem)
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(4, 96, generator=generator)
    places = torch.rand(4, 96, generator=generator).argsort(1)[:, :count]
    kinds = torch.tensor([0x7FC00000, -1, 0x7F800000, -0x800000], dtype=torch.int32).view(torch.float32)
    x.scatter_(1, places, kinds[torch.randint(4, (4, count), generator=generator)])
    assert not problems_with(x, *run(strategy, config, problem, x), 8, largest=largest)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("count", [8, 9, 10, 17, 18, 32])
def test_lists_that_end_in_the_second_pass(count: int, dtype: str, largest: bool) -> None:
    """One lane of 32 has `count` of the best, its list holds fewer, and an infinity sends the row there."""
    problem = Problem.contiguous(2, 1024, 32, dtype, largest=largest)
    strategy, config = lane_merge(32, 8, problem)
    generator = torch.Generator().manual_seed(count)
    width = problem.layout.vector
    shared = (torch.arange(1024) // width % 32 == 3).nonzero()[:, 0]
    x = torch.randn(2, 1024, generator=generator)
    x[:, shared[torch.randperm(len(shared), generator=generator)[:count]]] += 100
    x[0, 7], x[1, 900] = float("inf"), float("inf")
    x = (x if largest else -x).to(getattr(torch, dtype))
    assert not problems_with(x, *run(strategy, config, problem, x), 32, largest=largest)
