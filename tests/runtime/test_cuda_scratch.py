"""Programs with scratch memory, where it matters whose it is: streams, graphs, and both at once."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from autotopk import registry
from autotopk.device import H100, device_of
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from autotopk.problem import Problem
from autotopk.program import KernelProgram
from autotopk.runtime import launch, scratch
from autotopk.runtime.views import Run
from autotopk.strategy import Config, Strategy

pytestmark = pytest.mark.gpu

K = 300
SHAPES = ((1, 5_000_000), (7, 700_001))
"""Large enough for every way to split them."""


def programs() -> Iterator[tuple[Strategy, Config]]:
    """One configuration of every strategy for each set of scratch that its programs declare, and number of launches."""
    problem = Problem.contiguous(*SHAPES[0], K)
    for strategy in registry.available():
        if strategy.reasons_unable(problem, H100):
            continue
        kinds: dict[object, Config] = {}
        for config in strategy.shortlist(problem, H100):
            program = strategy.program(config, problem, H100)
            if isinstance(program, KernelProgram) and program.scratch:
                kind = len(program.launches), tuple((one.name, one.zeroed) for one in program.scratch)
                kinds.setdefault(kind, config)
        yield from ((strategy, config) for config in kinds.values())


@pytest.fixture(params=list(programs()), ids=lambda pair: f"{pair[0].name} {pair[1]}")
def program(request: pytest.FixtureRequest) -> tuple[Strategy, Config]:
    found: tuple[Strategy, Config] = request.param
    return found


def bound(program: tuple[Strategy, Config], rows: int, cols: int) -> Run:
    strategy, config = program
    problem, device = Problem.contiguous(rows, cols, K), device_of(torch.device("cuda"))
    return launch.bind(strategy.program(config, problem, device), problem, device)


def questions(run: Run, rows: int, cols: int) -> list[tuple[Tensor, tuple[Tensor, Tensor]]]:
    """Inputs that are all different, adversarial ones among them, each with the right answer, asked for alone."""
    found = []
    for seed, name in enumerate(("random", "ties", "few_nan", "ascending", "all_equal", "narrow")):
        x = inputs.make(name, rows, cols, K, torch.float32, "cuda", seed=seed).contiguous()
        values, indices = run(x)
        assert not problems_with(x, values, indices, K)
        found.append((x, (values, indices)))
    torch.cuda.synchronize()
    return found


def same(answer: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> bool:
    """The same elements in the same places: an input has one answer."""
    return torch.equal(answer[1], expected[1])


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_streams_at_once(program: tuple[Strategy, Config], rows: int, cols: int) -> None:
    run = bound(program, rows, cols)
    asked = questions(run, rows, cols)
    streams = [torch.cuda.Stream() for _ in range(4)]
    answers = []
    for turn in range(20):
        for at, (x, expected) in enumerate(asked):
            with torch.cuda.stream(streams[(at + turn) % len(streams)]):
                answers.append((run(x), expected))
    torch.cuda.synchronize()
    assert all(same(*pair) for pair in answers)


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_graphs_at_once(program: tuple[Strategy, Config], rows: int, cols: int) -> None:
    """Each replayed many times beside the other and beside plain calls, with new data each time."""
    run = bound(program, rows, cols)
    asked = questions(run, rows, cols)
    graphs, places, answers = [], [], []
    for _ in range(2):
        places.append(asked[0][0].clone())
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            first = run(places[-1])
            answers.append((first, run(places[-1])))  # two programs in one graph
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in range(2)]
    for turn in range(12):
        given = [asked[(turn + other) % len(asked)] for other in range(2)]
        for place, (x, _) in zip(places, given, strict=True):
            place.copy_(x)
        torch.cuda.synchronize()
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
                graph.replay()
        plain = run(asked[0][0])
        torch.cuda.synchronize()
        assert same(plain, asked[0][1])
        for both, (_, expected) in zip(answers, given, strict=True):
            assert all(same(answer, expected) for answer in both)


def test_what_must_be_zero_is_zero_again(program: tuple[Strategy, Config]) -> None:
    scratch._kept.clear()
    for rows, cols in SHAPES:
        questions(bound(program, rows, cols), rows, cols)
        assert not any(bool(buffer.any()) for buffer in scratch._kept.values())


def test_garbage_may_be_anything(program: tuple[Strategy, Config]) -> None:
    """The allocator's memory is filled with ones before each call."""
    run = bound(program, *SHAPES[0])
    for x, expected in questions(run, *SHAPES[0]):
        torch.cuda.empty_cache()
        filling = [torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda") for size in (1 << 20, 32 << 20)]
        del filling
        assert same(run(x), expected)
