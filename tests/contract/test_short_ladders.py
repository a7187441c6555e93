"""The ladders of the families for short rows: a rung for every problem that they serve, and few rungs."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk import registry
from autotopk.device import H100, Device
from autotopk.problem import ANSWERS, DTYPE_BYTES, MemoryLayout, Problem, vector_width
from autotopk.program import KernelProgram
from autotopk.strategies import lane_merge
from autotopk.strategies._short_rows import MERGED_DTYPES, reading_of
from autotopk.strategy import Strategy

FAMILIES = {"lane_merge": 295, "masked_argmax": 120}
"""With the most rungs that each may have."""

RUNGS = list(lane_merge.kernels("float32", True))

DEVICES = [
    Device("cuda", f"sm_{major}{minor}", (major, minor), processors, 40 << 20, 24, 99 << 10)
    for major, minor, processors in ((8, 0, 108), (8, 6, 84), (9, 0, 132), (10, 0, 148), (12, 0, 170))
]


def check(strategy: Strategy, problem: Problem, device: Device) -> bool:
    """Whether the family serves the problem; if so every step of its ladder is one of its rungs."""
    if strategy.reasons_unable(problem, device):
        return False
    ladder = strategy.ladder(problem, device)
    assert len(set(ladder)) == len(ladder) > 0, problem
    rungs = set(strategy.rungs(device.arch))
    for config in ladder:
        assert strategy.valid(config, problem, device), (problem, config)
        program = strategy.program(config, problem, device)
        assert isinstance(program, KernelProgram)
        assert rungs.issuperset(program.sources), (problem, config)
    assert strategy.heuristic(problem, device) in (None, ladder[0])
    return True


def layouts(cols: int, dtype: str) -> st.SearchStrategy[MemoryLayout]:
    itemsize = DTYPE_BYTES[dtype]
    strides = st.sampled_from([0, 1, cols, cols + 3, cols + 16, -(-cols // 16) * 16, 1 << 33])
    adjacent = st.builds(
        lambda stride, offset: MemoryLayout(
            stride, vector=vector_width(offset * itemsize, stride, cols, itemsize), aligned=offset * itemsize % 16 == 0
        ),
        strides,
        st.sampled_from([0, 1, 2, 4, 8, 16]),
    )
    beside = st.integers(1, 300).map(lambda inner: MemoryLayout(inner * cols, col_stride=inner + 1, inner=inner))
    return adjacent | beside


@st.composite
def problems(draw: st.DrawFn, name: str) -> Problem:
    dtype = draw(st.sampled_from(sorted(registry.get(name).features.dtypes)))
    cols = draw(
        st.integers(1, 8200)
        | st.integers(1, 80)
        | st.builds(lambda n, d: 2**n + d, st.integers(1, 13), st.integers(-1, 1))
    )
    return Problem(
        rows=draw(st.sampled_from([1, 2, 33, 1000, 4096, 100_000, (1 << 31) - 1])),
        cols=cols,
        k=min(cols, draw(st.integers(1, 130) | st.sampled_from([1, 2, 4, 8, 10, 31, 32, 33, 63, 64, 128]))),
        dtype=dtype,
        largest=draw(st.booleans()),
        sorted=draw(st.booleans()),
        answer=draw(st.sampled_from(ANSWERS)),
        device_type="cuda",
        layout=draw(layouts(cols, dtype)),
    )


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_rung_is_valid_where_its_kernel_serves(data: st.DataObject) -> None:
    problem, kernel = data.draw(problems("lane_merge")), data.draw(st.sampled_from(RUNGS))
    kernel = replace(kernel, dtype=problem.dtype, reading=reading_of(kernel.config.lanes, problem))
    serves = kernel.share <= lane_merge.MAX_SHARE and kernel.serves(problem) and lane_merge.fits(kernel.config, problem)
    assert registry.get("lane_merge").valid(kernel.config, problem, H100) == serves


@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
@settings(max_examples=500, deadline=None)
def test_every_problem_served_has_rungs(name: str, data: st.DataObject) -> None:
    check(registry.get(name), data.draw(problems(name)), data.draw(st.sampled_from(DEVICES)))


@pytest.mark.parametrize("name", FAMILIES)
def test_corners_have_rungs(name: str) -> None:
    """Every length and k about which a rung ends, contiguous and along another dimension."""
    strategy, draw, served = registry.get(name), random.Random(0), 0
    for cols in sorted({2**n * step + more for n in range(12) for step in (1, 3) for more in (-1, 0, 1)} - {0}):
        for k in {1, min(2, cols), min(8, cols), min(10, cols), min(11, cols), min(32, cols), min(64, cols), cols}:
            dtype, largest = draw.choice(sorted(strategy.features.dtypes)), draw.random() < 0.7
            beside = MemoryLayout(cols * 4, col_stride=4, inner=4)
            served += check(strategy, Problem.contiguous(8, cols, k, dtype, largest=largest), H100)
            served += check(strategy, Problem(8, cols, k, dtype, largest, device_type="cuda", layout=beside), H100)
    assert served > 100


@pytest.mark.parametrize("name", FAMILIES)
def test_rungs_are_few(name: str) -> None:
    for device in DEVICES:
        rungs = list(registry.get(name).rungs(device.arch))
        assert 0 < len(rungs) == len(set(rungs)) <= FAMILIES[name]
        assert rungs == list(registry.get(name).rungs(device.arch))


@pytest.mark.parametrize("name", FAMILIES)
def test_numbers_direction_and_answer_make_no_kernel(name: str) -> None:
    """Of one configuration; for lane_merge the direction does."""
    strategy = registry.get(name)
    dtypes = ("float16", "bfloat16") if name == "masked_argmax" else ("float32",)
    directions = (True, False) if name == "masked_argmax" else (True,)
    kernels = {
        strategy.program(strategy.ladder(problem, H100)[0], problem, H100).sources
        for dtype in dtypes
        for largest in directions
        for rows in (1, 70, 700)
        for cols in (904, 1000, 1024)
        for k in (7, 9, 10)
        for answer in ANSWERS
        for problem in [Problem.contiguous(rows, cols, k, dtype, largest=largest, answer=answer)]
    }
    assert len(kernels) == 1


def test_a_configuration_off_the_ladder_is_made_to_measure() -> None:
    strategy = registry.get("lane_merge")
    problem = Problem.contiguous(1000, 600, 5)
    config = strategy.config_type(lanes=32, warps=4, depth=8, tree=False)
    assert strategy.valid(config, problem, H100)
    (source,) = strategy.program(config, problem, H100).sources
    assert source not in set(strategy.rungs(90))
    assert dict(source.constants)["VECTORS"] == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", MERGED_DTYPES)
def test_trees_come_first_and_long_rungs_last(dtype: str) -> None:
    strategy = registry.get("lane_merge")
    (first, *_) = strategy.ladder(Problem.contiguous(32768, 128, 4), H100)
    assert first.tree
    problem = Problem.contiguous(64, 512, 20, dtype)
    (source,) = strategy.program(strategy.ladder(problem, H100)[0], problem, H100).sources
    assert dict(source.constants)["SPAN"] == 512  # type: ignore[attr-defined]


def test_long_lists_of_a_lane_are_not_proposed_where_shorter_ones_serve() -> None:
    """They take minutes to compile."""
    strategy = registry.get("lane_merge")
    for rows, cols, k in ((12384, 71, 25), (203, 32, 3), (24430, 32, 10), (1024, 1024, 32)):
        problem = Problem.contiguous(rows, cols, k)
        assert max(config.depth for config in strategy.shortlist(problem, H100)) <= 16, problem


@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_no_rung_stands_in_for_what_is_built_for_a_shape(name: str, data: st.DataObject) -> None:
    """What a name was measured at is of one kernel: a rung has its sizes in it, and shortlists have the least ones."""
    strategy, problem = registry.get(name), data.draw(problems(name))
    if not strategy.is_able(problem, H100):
        return
    for config in strategy.shortlist(problem, H100):
        sizes = {"vectors", "inside", "longest", "most"} & vars(config).keys()
        own = replace(config, **dict.fromkeys(sizes, 0))
        assert strategy.program(config, problem, H100) == strategy.program(own, problem, H100)
    for rung in strategy.ladder(problem, H100):
        assert rung.most >= problem.k
        assert str(rung.most) in strategy.candidate(rung).config


def test_a_layout_alone_is_the_least_kernel() -> None:
    """As it was written before sizes were told; a rung that goes no further is that kernel under its own name."""
    strategy, problem = registry.get("lane_merge"), Problem.contiguous(64, 500, 12, "float32")
    plain = strategy.parse_config('{"depth":8,"lanes":32,"tree":false,"warps":2}')
    assert strategy.candidate(plain).config == '{"depth":8,"lanes":32,"tree":false,"warps":2}'
    (least,) = strategy.program(plain, problem, H100).sources
    larger = [strategy.program(rung, problem, H100).sources[0] for rung in strategy.ladder(problem, H100)]
    assert least not in larger
    sized = '{"depth":8,"inside":3,"lanes":32,"most":12,"tree":false,"vectors":4,"warps":2}'
    assert strategy.candidate(strategy.parse_config(sized)).config == sized
    assert strategy.program(strategy.parse_config(sized), problem, H100).sources == (least,)
    assert not strategy.valid(strategy.parse_config(sized), Problem.contiguous(64, 500, 13, "float32"), H100)
