"""Every strategy answers right on the GPU, through the launcher that `topk` uses."""

import itertools
import multiprocessing
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from autotopk import registry
from autotopk.device import H100, cuda_device
from autotopk.errors import BuildError
from autotopk.kernel import KernelSource
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.program import KernelProgram
from autotopk.runtime import launch
from autotopk.strategy import Config, Strategy
from tests.conftest import share_kernels
from tests.contract.cases import (
    LAYOUTS,
    Beside,
    Case,
    beside_cases,
    boundary_cases,
    fill,
    input_cases,
    questions,
    sample,
    turn,
)

pytestmark = pytest.mark.gpu

GPU = cuda_device(0) if torch.cuda.is_available() else H100

BIG = [
    *(Case(3000, 256, 8, "float32", name) for name in ("near_ties", "narrow", "few_nan", "minus_inf_padding")),
    *(Case(2000, 129, 4, dtype, "near_ties", largest=False) for dtype in ("float32", "float16", "bfloat16")),
    Case(10_000, 1000, 10, "float32", "near_ties"),
    Case(70_001, 33, 5),  # more rows than one dimension of a grid has blocks
    Case(4099, 1023, 10, "bfloat16", "ties"),
    Case(131, 8191, 100, "float16", "nan"),
    Case(65, 32_769, 1024, "float32", "narrow"),
    Case(3, 500_009, 2048, "float32", "one_radix_bin", layout="padded"),
    Case(1, 1 << 20, 100, "int64", "extremes", sorted=False),
    Case(2, 300_000, 300_000, "float32", "signed_zeros"),
    Case(33, 128_256, 50, "bfloat16", "minus_inf_padding", sorted=False),
    Case(8, 131_072, 2048, "float32", "sampler_peaks"),
    Case(8, 131_072, 2048, "float32", "sampler_holes", largest=False),
    Case(2, 1_200_001, 60, "bfloat16", "ties", largest=False),
    Case(7, 300_007, 12, "float16", "near_ties", layout="padded"),
]
LONG = [
    Case(rows, cols, k, "float32", name, order, order)
    for rows, cols, k in (
        (64, 4096, 128),
        (64, 32_768, 2048),
        (1, 524_288, 2048),
        (256, 151_936, 64),
        (3, 1_000_003, 1000),
        (1, 1_048_583, 100),
    )
    for name, order in zip(inputs.names_for(torch.float32), itertools.cycle((True, True, False)))
]
"""What other kernels gave wrong answers or died on, at the lengths at which they did."""

CASES = [*boundary_cases(5, 10, 8193, 128), *input_cases(3, 1021, 9), *BIG, *LONG]

COUNT = 2
"""Configurations that the cases of one shape take turns with: each is a kernel, and some compile for seconds."""


def sources(item: pytest.Item) -> Iterator[KernelSource]:
    """The kernels that a test of this file will run."""
    parameters: Mapping[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    if item.path == Path(__file__) and {"name", "case"} <= parameters.keys():
        strategy, case = registry.get(parameters["name"]), parameters["case"]
        problem = case.problem(case.place("cuda"), "cuda")
        program = strategy.program(turn(strategy, case, problem, GPU, COUNT), problem, GPU)
        if isinstance(program, KernelProgram):
            yield from program.sources


def compile_one(source: KernelSource, arch: int) -> None:
    try:
        source.load(arch)
    except BuildError:
        pass  # the test that needs it says so


@pytest.fixture(scope="session", autouse=True)
def _compiled_ahead(request: pytest.FixtureRequest, shared_cache: Path, kept_kernels: Path) -> None:
    """All cores at once, before tests that would compile one after another."""
    needed = dict.fromkeys(source for item in request.session.items for source in sources(item))
    share_kernels(shared_cache, kept_kernels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTOPK_CACHE_DIR", str(shared_cache))
        with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(compile_one, needed, itertools.repeat(GPU.arch)))


def poison(problem: Problem) -> None:
    """Leave garbage where the allocator will put the outputs."""
    shape = (problem.rows, problem.k)
    torch.full(shape, 77, dtype=getattr(torch, problem.dtype), device="cuda")
    torch.full(shape, -7, dtype=torch.int64, device="cuda")


def check(strategy: Strategy, config: Config, case: Case, x: torch.Tensor) -> None:
    """Also that the input stays as it was, and that a kernel gives the same answer again."""
    problem = case.problem(x, "cuda")
    program = strategy.program(config, problem, GPU)
    run = launch.bind(program, problem, GPU)
    before = x.clone()
    poison(problem)
    answer = run(x)
    found = case.problems_with(x, answer)
    assert not found, config
    if isinstance(program, KernelProgram):
        assert torch.equal(run(x)[1], answer[1]), config
    assert torch.equal(x.contiguous().view(torch.uint8), before.contiguous().view(torch.uint8)), config


@pytest.mark.parametrize(("name", "case"), questions(CASES, GPU))
def test_answers_right(name: str, case: Case) -> None:
    strategy, x = registry.get(name), case.input("cuda")
    check(strategy, turn(strategy, case, case.problem(x, "cuda"), GPU, COUNT), case, x)


@pytest.mark.parametrize("case", list(beside_cases()), ids=str)
def test_rows_side_by_side(case: Beside) -> None:
    x = case.input("cuda")
    way = case.way(x)
    for strategy in registry.available():
        if not strategy.reasons_unable(way.problem, GPU):
            for config in sample(strategy, way.problem, GPU, COUNT):
                program = strategy.program(config, way.problem, GPU)
                values, indices = launch.bind(program, way.problem, GPU, size=way.size)(x)
                assert not case.problems_with(x, values, indices), config


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize(("name", "case"), questions([Case(67, 300, 7, values="ten_values")], GPU))
def test_every_sampled_config_answers_right(name: str, case: Case, dtype: str) -> None:
    case = Case(case.rows, case.cols, case.k, dtype, case.values)
    strategy, x = registry.get(name), case.input("cuda")
    if strategy.reasons_unable(case.problem(x, "cuda"), GPU):
        pytest.skip("the strategy does not serve this one")
    for config in sample(strategy, case.problem(x, "cuda"), GPU, count=100):
        check(strategy, config, case, x)


@pytest.mark.parametrize("name", [strategy.name for strategy in registry.available()])
@pytest.mark.parametrize("seed", range(60))
def test_answers_right_on_random_bits(name: str, seed: int) -> None:
    """Few patterns at a time, so that ties and rare bits meet; few row lengths, which kernels are compiled for."""
    draw = random.Random(seed)
    dtype, cols = draw.choice(list(DTYPE_BYTES)), draw.choice([1, 5, 64, 100, 129])
    case = Case(
        rows=draw.randint(1, 100),
        cols=cols,
        k=draw.choice([1, min(5, cols), cols]),
        dtype=dtype,
        largest=draw.random() < 0.5,
        sorted=draw.random() < 0.5,
        layout=draw.choice(LAYOUTS),
    )
    bits = 8 * DTYPE_BYTES[dtype]
    patterns = [draw.getrandbits(bits) - (1 << (bits - 1)) for _ in range(draw.randint(1, 8))]
    strategy, x = registry.get(name), fill(case.input("cuda"), patterns, seed)
    problem = case.problem(x, "cuda")
    if strategy.reasons_unable(problem, GPU):
        pytest.skip("the strategy does not serve this one")
    check(strategy, turn(strategy, case, problem, GPU, COUNT), case, x)


def test_all_dtypes_are_covered() -> None:
    assert {case.dtype for case in CASES} == set(DTYPE_BYTES)
