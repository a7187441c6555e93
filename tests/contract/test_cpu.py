"""Every strategy that can run on a CPU answers right."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk import registry
from autotopk.device import cpu_device
from autotopk.runtime import launch
from tests.contract.cases import Case, boundary_cases, input_cases, questions, sample
from tests.contract.drawn import draw_case, draw_values

CPU = cpu_device()
CASES = [*boundary_cases(5, 10, 4097, 4097), *input_cases(3, 1301, 9), Case(70_000, 3, 2), Case(1, 300_000, 500)]


def check(name: str, case: Case, x: torch.Tensor) -> None:
    """All configurations of the sample, on the same input, which none may change."""
    strategy = registry.get(name)
    problem = case.problem(x, "cpu")
    before = x.clone()
    for config in sample(strategy, problem, CPU):
        answer = launch.bind(strategy.program(config, problem, CPU), problem, CPU)(x)
        found = case.problems_with(x, answer)
        assert not found, config
        assert torch.equal(x.contiguous().view(torch.uint8), before.contiguous().view(torch.uint8)), config


@pytest.mark.parametrize(("name", "case"), questions(CASES, CPU))
def test_answers_right(name: str, case: Case) -> None:
    check(name, case, case.input("cpu"))


@pytest.mark.parametrize("name", [strategy.name for strategy in registry.available()])
@settings(deadline=None)
@given(data=st.data())
def test_answers_right_whatever_is_asked(name: str, data: st.DataObject) -> None:
    case = draw_case(data, rows=4, cols=2200, k=2200)
    x = case.input("cpu")
    if not registry.get(name).reasons_unable(case.problem(x, "cpu"), CPU):
        check(name, case, draw_values(data, x))
