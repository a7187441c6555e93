"""Kernels that route answer right in Triton's interpreter, in every layout and at the ends of every rung."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from math import prod

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor

from autotopk import registry
from autotopk.compilers.triton import TritonSource
from autotopk.device import H100
from autotopk.kernel import Kernel
from autotopk.oracle.routing import problems_with_routes
from autotopk.problem import Problem
from autotopk.program import KernelProgram
from autotopk.routing import LOGITS, SCORINGS, Routing
from autotopk.runtime.launch import arguments
from autotopk.strategies import lane_route, list_route, masked_route
from autotopk.strategy import Config, Strategy
from tests.compilers.shipped import shipped
from tests.contract.cases import answer_amid_guards
from tests.contract.routes import SCALE, Route, routes, scale_bits

NAMES = ("lane_route", "list_route", "masked_route")

interpreted = pytest.mark.interpret


def run(program: KernelProgram, route: Route, x: Tensor) -> tuple[Tensor, Tensor]:
    """The kernel's answer, from outputs that started as garbage amid guards."""
    source, problem, bias = program.sources[0], route.problem(x), route.bias("cpu")
    assert isinstance(source, TritonSource)
    grid = program.launches[0].blocks(problem)
    assert prod(grid) <= 8

    def launch(weights: Tensor, indices: Tensor) -> None:
        given = {"x": x, "values": weights, "indices": indices, "bias": torch.zeros(1) if bias is None else bias}
        source.interpret(grid, arguments(problem, **given, scale=scale_bits()))

    index_dtype = torch.int32 if route.answer == "narrow_weights" else torch.int64
    return answer_amid_guards(problem, torch.float32, index_dtype, launch)


def check(strategy: Strategy, config: Config, route: Route) -> None:
    x = route.logits("cpu")
    program = strategy.program(config, route.problem(x), H100)
    assert isinstance(program, KernelProgram)
    assert route.problems_with(x, run(program, route, x)) == [], config


def questions() -> Iterator[ParameterSet]:
    """(strategy, its turn among the configurations, route) of all that are able."""
    turn = itertools.count()
    for at, route in enumerate(routes(3)):
        problem = route.problem(route.logits("cpu"))
        for name in NAMES:
            if not registry.get(name).reasons_unable(problem, H100):
                slow = [pytest.mark.slow] if at // 2 % 2 else []  # one or two of the three of each input stay
                yield pytest.param(name, next(turn), route, id=f"{name}-{route}", marks=slow)


@interpreted
@pytest.mark.parametrize(("name", "turn", "route"), list(questions()))
def test_answers_right(name: str, turn: int, route: Route) -> None:
    strategy = registry.get(name)
    configs = strategy.shortlist(route.problem(route.logits("cpu")), H100)
    check(strategy, configs[turn % len(configs)], route)


def ends() -> Iterator[ParameterSet]:
    """The shortest and the longest rows of every rung with the most of k, in turn by every scoring and input.

    One of both is slow, in turns, and those of many loads are, as they are in the interpreter.
    """
    scorings, raw = itertools.cycle(SCORINGS), itertools.cycle(["", ":raw"])
    values = itertools.cycle(["random", "ties", "few_nan", "near_ties", "minus_inf_padding"])
    turns = itertools.cycle([0, -1])

    def asked(name: str, config: Config, route: Route, slow: bool) -> ParameterSet:
        return pytest.param(name, config, route, id=f"{name}-{config}-{route}", marks=[pytest.mark.slow] * slow)

    for dtype in LOGITS:
        for lanes in lane_route.kernels(dtype):
            # slots that nobody asks for give a NaN, which the interpreter's maximum keeps, and the GPU's does not
            shortest = max(-(-lanes.most // lanes.width) * lanes.width, lanes.inside * lanes.step)
            lengths = sorted({shortest, lanes.longest})
            kept = lengths[next(turns)]
            for experts in lengths:
                padded = lanes.reading == "single"
                rule = f"{next(scorings)}{next(raw)}"
                one = Route(2, experts, min(lanes.most, experts), rule, dtype, next(values), padded=padded)
                yield asked("lane_route", lanes.config, one, experts != kept or lanes.vectors >= 32)
        for rung in list_route.kernels(dtype):
            lengths = sorted({max(rung.most, rung.inside * rung.step), rung.vectors * rung.step})
            kept = lengths[next(turns)]
            for experts in lengths:
                groups = f":{max(1, experts // rung.group // 2)}of{experts // rung.group}" if rung.group else ""
                rule = f"{next(scorings)}+bias{groups}{next(raw)}"
                one = Route(2, experts, rung.most, rule, dtype, next(values))
                yield asked("list_route", rung.config, one, experts != kept)
        for masked in masked_route.kernels(dtype):
            count, places = (masked.groups, masked.groups * 20) if masked.groups > 1 else (1, 1999)
            kept_groups = f":{count // 2}of{count}" if count > 1 else ""
            rule = f"{next(scorings)}{'+bias' if masked.biased else ''}{kept_groups}{next(raw)}"
            one = Route(1, places, 9, rule, dtype, next(values), padded=True)
            yield asked("masked_route", masked.config, one, False)


@interpreted
@pytest.mark.parametrize(("name", "config", "route"), list(ends()))
def test_every_rung(name: str, config: Config, route: Route) -> None:
    strategy, problem = registry.get(name), route.problem(route.logits("cpu"))
    assert not strategy.reasons_unable(problem, H100)
    program = strategy.program(config, problem, H100)
    assert {*program.sources} <= {*strategy.rungs(90)}
    check(strategy, config, route)


@interpreted
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [2, 9, 40])
def test_of_equals_the_lower_index(name: str, count: int) -> None:
    """Whichever path of a kernel finds them."""
    rule = "softmax" if name == "lane_route" else "sigmoid+bias"
    route = Route(2, 64, 7, rule)
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(count)) - 9
    places = torch.arange(count) * 3 % 64
    x[:, places] = 1.0
    strategy = registry.get(name)
    problem = route.problem(x)
    for config in strategy.shortlist(problem, H100):
        program = strategy.program(config, problem, H100)
        assert isinstance(program, KernelProgram)
        bias = torch.zeros(64)
        weights, indices = torch.empty(2, 7), torch.empty(2, 7, dtype=torch.int64)
        given = {"x": x, "values": weights, "indices": indices, "bias": bias, "scale": scale_bits()}
        program.sources[0].interpret(program.launches[0].blocks(problem), arguments(problem, **given))  # type: ignore[attr-defined]
        wanted = sorted(places.tolist())[:7]
        assert indices[:, : len(wanted)].tolist() == [wanted] * 2, config


@interpreted
@pytest.mark.parametrize("level", [0.0, 8.0, 1000.0])
def test_biases_that_make_scores_alike(level: float) -> None:
    """Words of scores with a great bias differ in nothing but places: rows are done again by rounds."""
    strategy, route = registry.get("list_route"), Route(2, 256, 8, "sigmoid+bias:4of8")
    x = route.logits("cpu")
    problem, bias = route.problem(x), torch.full((256,), level)
    for config in strategy.shortlist(problem, H100):
        weights, indices = torch.empty(2, 8), torch.empty(2, 8, dtype=torch.int64)
        program = strategy.program(config, problem, H100)
        assert isinstance(program, KernelProgram)
        given = {"x": x, "values": weights, "indices": indices, "bias": bias, "scale": scale_bits()}
        program.sources[0].interpret(program.launches[0].blocks(problem), arguments(problem, **given))  # type: ignore[attr-defined]
        assert problems_with_routes(x, bias, weights, indices, 8, route.routing, SCALE) == []


# Ladders

FAMILIES = {"lane_route": 15, "masked_route": 12}
"""With the most rungs of each; those of `list_route` serve the shapes of well-known models alone."""


@pytest.mark.parametrize("name", FAMILIES)
def test_every_problem_served_has_rungs(name: str) -> None:
    strategy, draw, served = registry.get(name), random.Random(0), 0
    rungs = set(strategy.rungs(90))
    assert len(rungs) <= FAMILIES[name]
    for _ in range(3000):
        groups = draw.choice([1, 1, 2, 4, 7, 8, 16, 33, 64])
        experts = groups * draw.choice([1, 2, 3, 4, 5, 8, 16, 20, 32, 33, 48, 64, 128, 200, 256, 1000, 2048])
        rule = Routing(draw.choice(SCORINGS), draw.random() < 0.5, draw.random() < 0.5, groups, draw.randint(1, groups))
        k = draw.randint(1, min(80, rule.candidates(experts)))
        rows, dtype = draw.choice([1, 33, 4096, 100_000]), draw.choice(LOGITS)
        problem = Problem.contiguous(rows, experts, k, dtype, routing=rule)
        if draw.random() < 0.3:
            problem = replace(problem, layout=replace(problem.layout, row_stride=experts + 1, vector=1, aligned=False))
        if strategy.reasons_unable(problem, H100):
            continue
        served += 1
        ladder = strategy.ladder(problem, H100)
        assert len(set(ladder)) == len(ladder) > 0, problem
        for config in ladder:
            assert strategy.valid(config, problem, H100), (problem, config)
            assert rungs.issuperset(strategy.program(config, problem, H100).sources), (problem, config)
    assert served > 300


@pytest.mark.parametrize(
    ("experts", "k", "rule", "name"),
    [
        (256, 8, "sigmoid+bias:4of8", "list_route"),
        (384, 8, "sigmoid+bias", "list_route"),
        (256, 6, "sqrtsoftplus+bias", "list_route"),
        (896, 16, "sigmoid+bias", "list_route"),
        (256, 8, "softmax", "lane_route"),
        (128, 4, "softmax", "lane_route"),
        (128, 8, "softmax", "lane_route"),
        (64, 6, "softmax", "lane_route"),
        (512, 10, "softmax", "lane_route"),
        (384, 6, "sqrtsoftplus", "lane_route"),
    ],
)
@pytest.mark.parametrize("rows", [1, 64, 4096, 32768])
@pytest.mark.parametrize("dtype", LOGITS)
def test_routers_of_models_have_rungs(experts: int, k: int, rule: str, name: str, rows: int, dtype: str) -> None:
    """What runs where nothing was tuned is among the kernels that are shipped."""
    problem = Problem.contiguous(rows, experts, k, dtype, routing=Routing.parse(rule))
    able = [one for one in registry.available() if not one.reasons_unable(problem, H100)]
    assert able[0].name == name
    program = able[0].program(able[0].heuristic(problem, H100), problem, H100)
    assert {*program.sources} <= {*able[0].rungs(90)}


# Compiled


COMPILED = [
    (90, "lane_route", Problem.contiguous(4096, 256, 8, "bfloat16", routing=Routing())),
    (90, "list_route", Problem.contiguous(4096, 256, 8, routing=Routing.parse("sigmoid+bias:4of8"))),
    (90, "masked_route", Problem.contiguous(4096, 160, 6, routing=Routing.parse("softmax:3of8"))),
    (80, "list_route", Problem.contiguous(4096, 384, 8, "bfloat16", routing=Routing.parse("sigmoid+bias"))),
    (100, "lane_route", Problem.contiguous(32768, 128, 4, routing=Routing())),
    (120, "masked_route", Problem.contiguous(64, 99, 6, "float16", routing=Routing.parse("softmax+bias"))),
]
"""Architecture, family and problem; the first three are compiled in every run, others are slow."""


@pytest.mark.compile
@pytest.mark.parametrize(
    ("arch", "name", "problem"),
    [pytest.param(*one, marks=[pytest.mark.slow] if at > 2 else []) for at, one in enumerate(COMPILED)],
    ids=str,
)
def test_compiles_within_limits(arch: int, name: str, problem: Problem) -> None:
    strategy = registry.get(name)
    source = strategy.program(strategy.shortlist(problem, H100)[0], problem, H100).sources[0]
    kernel = source.compile(arch)
    check_limits(kernel, name, problem)
    assert kernel.registers <= 168


@pytest.mark.parametrize(("arch", "name", "problem"), COMPILED, ids=str)
def test_shipped_kernels_are_within_limits(arch: int, name: str, problem: Problem) -> None:
    strategy = registry.get(name)
    source = strategy.program(strategy.ladder(problem, H100)[0], problem, H100).sources[0]
    check_limits(shipped(source, arch), name, problem)


def check_limits(kernel: Kernel, name: str, problem: Problem) -> None:
    assert kernel.spill_bytes == 0
    assert 0 < kernel.registers <= 255
    assert kernel.symbol == f"autotopk_{name}_{problem.dtype}"
    assert {"x", "values", "indices", "scale"} <= {parameter.name for parameter in kernel.parameters}
