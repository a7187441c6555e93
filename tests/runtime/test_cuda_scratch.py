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
SHAPES = ((1, 3_000_000), (5, 700_001))


def programs() -> Iterator[tuple[Strategy, Config]]:
    """One configuration of every strategy for each set of scratch that its programs declare, and number of launches."""
    problem = Problem.contiguous(1, 3_000_000, K)
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


def many(rows: int, cols: int, count: int) -> list[Tensor]:
    """Inputs that are all different, adversarial ones among them."""
    names = ("random", "ties", "few_nan", "ascending", "all_equal", "narrow")
    return [
        inputs.make(names[at % len(names)], rows, cols, K, torch.float32, "cuda", seed=at).contiguous()
        for at in range(count)
    ]


def wrong(x: Tensor, answer: tuple[Tensor, Tensor]) -> list[str]:
    return problems_with(x, *answer, K)


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_streams_at_once(program: tuple[Strategy, Config], rows: int, cols: int) -> None:
    run, tensors = bound(program, rows, cols), many(rows, cols, 12)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    answers = []
    for turn in range(5):
        for at, x in enumerate(tensors):
            with torch.cuda.stream(streams[(at + turn) % len(streams)]):
                answers.append((x, run(x)))
    torch.cuda.synchronize()
    for x, answer in answers:
        assert not wrong(x, answer)


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_graphs_at_once(program: tuple[Strategy, Config], rows: int, cols: int) -> None:
    """Each replayed many times beside the other and beside plain calls, with new data each time."""
    run, tensors = bound(program, rows, cols), many(rows, cols, 6)
    run(tensors[0])
    graphs, places, answers = [], [], []
    for _ in range(2):
        places.append(tensors[0].clone())
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            first = run(places[-1])
            answers.append((first, run(places[-1])))  # two programs in one graph
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in range(2)]
    for turn in range(6):
        for place, at in zip(places, (turn, turn + 1), strict=True):
            place.copy_(tensors[at % len(tensors)])
        torch.cuda.synchronize()
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
                graph.replay()
        plain = run(tensors[0])
        torch.cuda.synchronize()
        assert not wrong(tensors[0], plain)
        for place, both in zip(places, answers, strict=True):
            for answer in both:
                assert not wrong(place, answer)


def test_what_must_be_zero_is_zero_again(program: tuple[Strategy, Config]) -> None:
    scratch._kept.clear()
    for rows, cols in SHAPES:
        run = bound(program, rows, cols)
        for x in many(rows, cols, 6):
            assert not wrong(x, run(x))
            torch.cuda.synchronize()
            assert not any(bool(buffer.any()) for buffer in scratch._kept.values())


def test_garbage_may_be_anything(program: tuple[Strategy, Config]) -> None:
    """The allocator's memory is filled with ones, then with what another input left."""
    run, tensors = bound(program, 1, 3_000_000), many(1, 3_000_000, 6)
    for x in tensors:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        filling = [torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda") for size in (1 << 20, 32 << 20)]
        del filling
        assert not wrong(x, run(x))
