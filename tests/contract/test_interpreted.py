"""Every Triton kernel answers right in Triton's interpreter, and writes nothing but its answer."""

from dataclasses import replace
from itertools import product
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autotopk import registry
from autotopk.compilers.triton import TritonSource
from autotopk.device import H100
from autotopk.problem import Problem
from autotopk.program import KernelProgram
from autotopk.runtime.launch import arguments
from autotopk.strategy import Config, Strategy
from tests.contract.cases import (
    Beside,
    Case,
    answer_amid_guards,
    beside_cases,
    boundary_cases,
    input_cases,
    questions,
    turn,
)
from tests.contract.drawn import draw_case, draw_values

pytestmark = pytest.mark.interpret

MAX_PROGRAMS = 8
"""Programs run one after another, 30 to 45 ms each."""


def triton_strategies() -> list[str]:
    """The strategies whose kernels are written in Triton."""
    problem = Problem.contiguous(2, 64, 4)
    return [
        strategy.name
        for strategy in registry.available()
        if not strategy.reasons_unable(problem, H100)
        and isinstance(program := strategy.program(strategy.shortlist(problem, H100)[0], problem, H100), KernelProgram)
        and isinstance(program.sources[0], TritonSource)
    ]


TRITON = triton_strategies()
CASES = [*boundary_cases(3, 7, 8192, 33), *input_cases(2, 67, 9)]
QUESTIONS = [question for question in questions(CASES, H100) if question.values[0] in TRITON]


def run(program: KernelProgram, problem: Problem, x: Tensor) -> tuple[Tensor, Tensor]:
    """The kernel's answer, from outputs that started as garbage amid guards."""
    source = program.sources[0]
    assert isinstance(source, TritonSource)

    def launch(values: Tensor, indices: Tensor) -> None:
        source.interpret(program.launches[0].blocks(problem), arguments(problem, x=x, values=values, indices=indices))

    return answer_amid_guards(problem, x.dtype, torch.int64, launch)


def check(strategy: Strategy, config: Config, case: Case, x: Tensor) -> None:
    problem = case.problem(x, "cuda")
    program = strategy.program(config, problem, H100)
    assert isinstance(program, KernelProgram)
    assert prod(program.launches[0].blocks(problem)) <= MAX_PROGRAMS
    found = case.problems_with(x, run(program, problem, x))
    assert not found, config


@pytest.mark.parametrize(("name", "case"), QUESTIONS)
def test_answers_right(name: str, case: Case) -> None:
    strategy, x = registry.get(name), case.input("cpu")
    check(strategy, turn(strategy, case, case.problem(x, "cuda"), H100), case, x)


@pytest.mark.parametrize("case", list(beside_cases()), ids=str)
def test_rows_side_by_side(case: Beside) -> None:
    x = case.input("cpu")
    problem = replace(case.way(x).problem, device_type="cuda")
    size = list(x.shape)
    size[case.dim] = case.k
    able = [s for s in registry.available() if not s.reasons_unable(problem, H100)]
    assert able
    for strategy in able:
        for config in strategy.shortlist(problem, H100):
            values, indices = run(strategy.program(config, problem, H100), problem, x)  # type: ignore[arg-type]
            assert not case.problems_with(x, values.view(size), indices.view(size)), config


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("cols", [20, 64, 203])
def test_lane_merge_orders_what_its_words_cannot_tell(cols: int, largest: bool) -> None:
    """Every number of elements that differ in their last bits alone, in every layout: pairs up to all of them."""
    strategy = registry.get("lane_merge")
    generator = torch.Generator().manual_seed(cols)
    inputs = []
    for alike in (2, 3, 5, cols):
        classes = torch.arange(cols) // alike
        steps = torch.randint(0, 200, (3, cols), generator=generator)
        bits = (0x3F800000 + classes * 4096 + steps).to(torch.int32)
        x = bits.gather(1, torch.rand(3, cols, generator=generator).argsort(1)).view(torch.float32)
        x[1].neg_()
        inputs.append(x)
    for first, k in enumerate((1, 3, 4, 9)):
        case = Case(3, cols, k, largest=largest)
        configs = strategy.shortlist(case.problem(inputs[0], "cuda"), H100)
        for at, config in enumerate(configs, first):  # a Latin square: each with every k, and with every input
            check(strategy, config, case, inputs[at % len(inputs)])


@pytest.mark.parametrize(
    ("cols", "dtype", "largest"),
    [
        pytest.param(cols, dtype, largest, marks=[] if largest == (number % 2 == 0) else [pytest.mark.slow])
        for number, (cols, dtype) in enumerate(
            product((35, 40, 67, 129, 258, 264, 515), ("float32", "bfloat16", "float16"))
        )
        for largest in (True, False)
    ],
)
def test_lane_merge_keeps_to_its_rows(cols: int, dtype: str, largest: bool) -> None:
    """Rows begin at 16 bytes or anywhere; whatever a load gives beside them would be the best of all."""
    strategy = registry.get("lane_merge")
    case = Case(5, cols, 6, dtype, largest=largest)
    x = case.input("cpu").abs_().add_(1)
    if largest:
        x.neg_()
    problem = case.problem(x, "cuda")
    for lanes in (1, 2, 8, 32):
        config = strategy.config_type(lanes=lanes, warps=1, depth=8, tree=False)
        if strategy.valid(config, problem, H100):
            check(strategy, config, case, x)


def every_config() -> list[pytest.param]:  # type: ignore[valid-type]
    """(strategy name, configuration, case): every configuration of some spaces, on rows that few programs cover."""
    found: dict[tuple[str, Config, int], Case] = {}
    for name in TRITON:
        strategy = registry.get(name)
        for cols in (19, 300):
            for rows in (1, 2, 3, 7, 15, 31, 63, 130):
                case = Case(rows, cols, 3, "float32", "nan", layout="padded")
                problem = case.problem(case.input("cpu"), "cuda")
                for config in strategy.shortlist(problem, H100):
                    program = strategy.program(config, problem, H100)
                    assert isinstance(program, KernelProgram)
                    if prod(program.launches[0].blocks(problem)) <= MAX_PROGRAMS:
                        found[name, config, cols] = case
    return [pytest.param(name, config, case, id=f"{config}-{case}") for (name, config, _), case in found.items()]


@pytest.mark.parametrize(("name", "config", "case"), every_config())
def test_every_config_answers_right(name: str, config: Config, case: Case) -> None:
    check(registry.get(name), config, case, case.input("cpu"))


@pytest.mark.parametrize("name", TRITON)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_answers_right_whatever_is_asked(name: str, data: st.DataObject) -> None:
    case = draw_case(data, rows=3, cols=200, k=8)
    strategy, x = registry.get(name), case.input("cpu")
    problem = case.problem(x, "cuda")
    if not strategy.reasons_unable(problem, H100):
        config = data.draw(st.sampled_from(list(strategy.shortlist(problem, H100))))
        check(strategy, config, case, draw_values(data, x))
