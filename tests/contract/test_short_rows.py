"""What short rows' kernels do when words leave doubt, and that they write indices alone, in Triton's interpreter."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor

from autotopk import registry
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from autotopk.problem import ANSWERS, INTEGERS, MemoryLayout, Problem
from autotopk.program import KernelProgram
from autotopk.runtime.launch import arguments
from autotopk.strategies import lane_merge as lanes
from autotopk.strategies._short_rows import MERGED_COLS, MERGED_COLS_SIDE_BY_SIDE, MERGED_DTYPES
from autotopk.strategy import Config, Strategy
from tests.contract.cases import best_columns

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
@pytest.mark.parametrize("dtype", sorted(INTEGERS))
def test_integers_are_stable(dtype: str, largest: bool) -> None:
    """As masked_argmax declares of them; of floats -0 has a key of its own."""
    strategy, problem = registry.get("masked_argmax"), Problem.contiguous(3, 72, 9, dtype, largest=largest)
    assert strategy.features.stable == INTEGERS
    config = strategy.shortlist(problem, H100)[0]
    for name in ("ties", "ten_values", "all_equal", "extremes"):
        x = inputs.make(name, 3, 72, 9, getattr(torch, dtype), "cpu")
        _, indices = run(strategy, config, problem, x)
        assert torch.equal(indices, best_columns(x, 9, largest=largest)), name


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


@pytest.mark.parametrize("k", [6, 7, 8])
def test_a_list_that_ends_behind_the_spare_one(k: int) -> None:
    """What the one lane with the best hides is like the last ones taken, and greater."""
    problem = Problem.contiguous(1, 512, k)
    strategy, config = lane_merge(16, 8, problem)
    shared = (torch.arange(512) // 4 % 16 == 5).nonzero()[: k + 2, 0]
    x = torch.rand(1, 512, generator=torch.Generator().manual_seed(0))
    x[0, shared] = torch.arange(100, 100 - k - 2, -1).float()
    x[0, shared[-3:]] = torch.tensor([50.0, 50.0, 50.0]) * (1 + torch.arange(3) * 2**-22)
    assert not problems_with(x, *run(strategy, config, problem, x), k)


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


@pytest.mark.parametrize(
    ("count", "dtype", "largest"),
    [
        pytest.param(count, dtype, largest, marks=[] if largest == ((turn + other) % 2 == 0) else [pytest.mark.slow])
        for turn, count in enumerate((8, 9, 10, 17, 18, 32))
        for other, dtype in enumerate(("float32", "bfloat16"))
        for largest in (True, False)
    ],
)
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


VALUES = itertools.cycle(["random", "ties", "few_nan", "near_ties", "minus_inf_padding"])


def of_every_run() -> set[lanes.LaneMergeKernel]:
    """Of every rung and dtype one direction, in turns; of many loads, as they are in the interpreter, one dtype."""
    found: dict[tuple[object, ...], list[lanes.LaneMergeKernel]] = {}
    for dtype, largest in itertools.product(MERGED_DTYPES, (True, False)):
        for rung in lanes.kernels(dtype, largest):
            kind = dtype if rung.vectors < 32 else "any"
            found.setdefault((kind, rung.reading, rung.config, rung.vectors), []).append(rung)
    return {alike[turn % len(alike)] for turn, alike in enumerate(found.values())}


def lane_merge_problems() -> Iterator[ParameterSet]:
    """(rung, problem, name of an input): of the shortest and the longest rows of every rung, in turn any answer.

    Not slow is one of both, in turns, of the rungs of every run.
    """
    answers, turns, kept = itertools.cycle(ANSWERS), itertools.cycle([0, -1]), of_every_run()
    for dtype, largest in itertools.product(MERGED_DTYPES, (True, False)):
        for rung in lanes.kernels(dtype, largest):
            narrow = MERGED_COLS_SIDE_BY_SIDE if rung.reading == "beside" else MERGED_COLS
            shortest = max(1, rung.inside * rung.step)
            whole = rung.width if rung.reading == "aligned" else 1
            lengths = sorted({-(-shortest // whole) * whole, min(rung.longest, narrow)})
            fast = [lengths[next(turns)]] if rung in kept else []
            for cols in lengths:
                stride = cols + (3 if rung.reading == "single" else rung.reading == "ragged")
                layout = MemoryLayout(stride, vector=whole, aligned=rung.reading != "single")
                if rung.reading == "beside":
                    layout = MemoryLayout(cols * 3, col_stride=3, inner=3)
                k = min(rung.most, cols)
                problem = Problem(3, cols, k, dtype, largest, True, next(answers), device_type="cuda", layout=layout)
                slow = [] if cols in fast else [pytest.mark.slow]
                yield pytest.param(
                    rung, problem, next(VALUES), id=f"{rung.reading}-{rung.config}-{problem}", marks=slow
                )


@pytest.mark.parametrize(("rung", "problem", "name"), list(lane_merge_problems()))
def test_every_rung_of_lane_merge(rung: lanes.LaneMergeKernel, problem: Problem, name: str) -> None:
    """From its shortest rows, whose memory ends where they do, to its longest."""
    x = inputs.make(name, 3, problem.cols, problem.k, getattr(torch, problem.dtype), "cpu")
    layout = problem.layout
    strides = (1, layout.col_stride) if layout.side_by_side else (layout.row_stride, 1)
    offset = int(rung.reading == "single")
    memory = torch.full(
        (offset + 3 * max(layout.row_stride, 1) + 64,), float("nan") if problem.largest else float("-inf")
    ).to(x.dtype)
    laid = memory.as_strided((3, problem.cols), strides, offset).copy_(x)
    values = torch.zeros(3 * problem.k, dtype=x.dtype)
    indices = torch.zeros(3 * problem.k, dtype=torch.int32 if problem.answer == "indices" else torch.int64)
    tensors = arguments(problem, x=laid, values=values, indices=indices)
    rung.source.interpret((-(-3 * rung.config.lanes // (32 * rung.config.warps)), 1, 1), tensors)
    if layout.side_by_side:
        values, indices = (y.view(problem.k, 3).t().contiguous() for y in (values, indices))
    values, indices = values.view(3, -1), indices.view(3, -1)
    if problem.answer == "indices":
        indices = indices.long()
        values = x.gather(1, indices)
    assert not problems_with(x, values, indices, problem.k, largest=problem.largest)
