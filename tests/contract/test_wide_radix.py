"""wide_radix with rows that many blocks share and rows of one block, and k up to whole rows, in the emulator."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk import registry
from autotopk.compilers.cuda import CudaSource
from autotopk.device import H100
from autotopk.kernel import Kernel, KernelSource
from autotopk.oracle import inputs
from autotopk.packs import ARCHS
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.program import KernelProgram, most_scratch
from autotopk.strategies import wide_radix
from autotopk.strategies.wide_radix import MIN_K, WideRadixConfig
from tests.compilers.shipped import shipped
from tests.contract.cases import LAYOUTS, ORDERS, Case, at, best_columns
from tests.contract.drawn import draw_values
from tests.contract.emulated import PREEMPTIONS, answer, problem_of, problems_of_all
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")

SPLIT, WHOLE = WideRadixConfig(64, 3, split=True), WideRadixConfig(64, 2, split=False)
SIZES = ((3, 1), (2, 37), (3, 700), (2, 9001))
"""(rows, cols): a block's share of the longest rows is sorted by two blocks where k is large."""


@dataclass(frozen=True)
class Kind:
    """A dtype, and how its rows are shared out."""

    dtype: str
    config: WideRadixConfig

    def __str__(self) -> str:
        return f"{self.dtype}-{'split' if self.config.split else 'whole'}"


KINDS = [Kind(dtype, config) for dtype in DTYPE_BYTES for config in (SPLIT, WHOLE)]


def cases(kind: Kind) -> Iterator[Case]:
    """Every input once, of sizes in turns; of every size k = 1, 2, N - 1 and N."""
    layouts, orders, sizes = itertools.cycle(LAYOUTS), itertools.cycle(ORDERS), itertools.cycle(SIZES[1:3])
    names = inputs.names_for(getattr(torch, kind.dtype))
    for name in names:
        rows, cols = next(sizes)
        for k in (cols // 3, cols):
            largest, order = next(orders)
            yield Case(rows, cols, k, kind.dtype, name, largest, order, next(layouts))
        next(orders)
    for rows, cols in SIZES[:3]:
        for k in sorted({1, min(cols, 2), max(1, cols - 1), cols}):
            largest, order = next(orders)
            yield Case(rows, cols, k, kind.dtype, names[0], largest, order, next(layouts))
    yield Case(*SIZES[3], 8999, kind.dtype, names[0], layout=next(layouts))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_answers_right(kind: Kind, sequences: Sequences) -> None:
    strategy = registry.get("wide_radix")
    for case, problems in problems_of_all(sequences, strategy, kind.config, cases(kind), indices_of=5):
        assert not problems, case


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_answers_right_whatever_is_asked(sequences: Sequences, data: st.DataObject) -> None:
    config = data.draw(st.sampled_from([SPLIT, WHOLE, WideRadixConfig(128, 1, split=True)]))
    cols = data.draw(st.integers(1, 2000))
    case = Case(
        rows=data.draw(st.integers(1, 3)),
        cols=cols,
        k=data.draw(st.integers(1, cols)),
        largest=data.draw(st.booleans()),
        sorted=data.draw(st.booleans()),
        layout=data.draw(st.sampled_from(LAYOUTS)),
    )
    x = draw_values(data, case.input("cpu"))
    seed = data.draw(st.integers(0, 1000))
    found = answer(sequences, registry.get("wide_radix"), config, case, x, seed=seed)
    assert not case.problems_with(x, found), case


@pytest.mark.parametrize("config", [SPLIT, WHOLE], ids=["split", "whole"])
@pytest.mark.parametrize("name", ["all_equal", "ties", "ten_values", "all_but_k_minus_1_equal", "random"])
def test_of_equal_values_the_first_are_chosen_and_come_first(
    config: WideRadixConfig, name: str, sequences: Sequences
) -> None:
    case = Case(2, 2500, 1200, "float32", name)
    x = case.input("cpu")
    expected = best_columns(x, 1200)
    for seed in range(3):
        _, indices = answer(sequences, registry.get("wide_radix"), config, case, x, seed=seed)
        assert torch.equal(indices, expected)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("k", [383, 385, 512, 513, 1100, 1101])
def test_tiles_full_and_not(dtype: str, k: int, sequences: Sequences) -> None:
    """A tile of 64 threads has 512 entries, or 384 of 64 bits; a row of one tile is sorted in shared memory."""
    for seed, (cols, name) in enumerate([(k, "random"), (1101, "random"), (1101, "ten_values"), (k, "all_equal")]):
        case = Case(2, cols, k, dtype, name, layout="padded")
        x = case.input("cpu")
        found = answer(sequences, registry.get("wide_radix"), WHOLE, case, x, indices_only=seed == 1, seed=seed)
        assert not case.problems_with(x, found), case


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_many_parts_sort_a_row(dtype: str, sequences: Sequences, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one group of them."""
    monkeypatch.setattr(wide_radix, "SORT_PART", 64)
    strategy, config = registry.get("wide_radix"), WideRadixConfig(64, 37, split=True)
    for seed, (name, k) in enumerate([("random", 3500), ("ten_values", 3000), ("random", 1100)]):
        case = Case(2, 3500, k, dtype, name, layout="padded")
        x = case.input("cpu")
        found = answer(sequences, strategy, config, case, x, indices_only=seed == 2, seed=seed)
        assert not case.problems_with(x, found), case


PROBLEMS = [
    Problem.contiguous(1, 30_000_000, 30_000),
    Problem.contiguous(5000, 40_000, 15_000),
    Problem.contiguous(1, 1_000_000, 1_000_000, "int64"),
    Problem.contiguous(64, 100_000, 100_000, "bfloat16", largest=False),
    Problem.contiguous(4096, 8192, 4096, "int8", sorted=False),
    Problem.contiguous(16, 1 << 20, 100_000, "float64", answer="indices"),
    Problem.contiguous(1_000_000, 1, 1, "int32"),
    Problem.contiguous(1, 1 << 30, 1 << 30, "int16", sorted=False),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_ladder_serves_any_k(problem: Problem) -> None:
    strategy = registry.get("wide_radix")
    assert not strategy.reasons_unable(problem, H100)
    ladder, rungs = strategy.ladder(problem, H100), set(strategy.rungs(90))
    assert strategy.heuristic(problem, H100) == (ladder[0] if problem.k >= MIN_K else None)
    for config in ladder:
        program = strategy.program(config, problem, H100)
        assert {*program.sources} <= rungs
        assert program.scratch_bytes(problem) <= most_scratch(problem)


def test_short_rows_may_have_a_block_for_every_4_kilobytes() -> None:
    """1x118303, k = 116,015, takes less by 57 blocks than by 14, and than torch.topk; the rule stays at 16 KB."""
    problem = Problem.contiguous(1, 118_303, 116_015, "float16")
    assert [one.blocks for one in registry.get("wide_radix").ladder(problem, H100) if one.split] == [14, 57]
    long = Problem.contiguous(1, 30_000_000, 30_000)
    assert [one.blocks for one in registry.get("wide_radix").ladder(long, H100) if one.split] == [264, 132, 528]


def test_refuses_what_scratch_has_no_room_for() -> None:
    problem = Problem.contiguous(1, 30_000_000, 30_000_000, answer="indices")
    (reason,) = registry.get("wide_radix").reasons_unable(problem, H100)
    assert reason == f"k=30000000 needs 480000000 bytes of scratch, more than {most_scratch(problem)}"


def test_rows_of_any_k_are_split_where_the_answer_is_as_large_as_scratch() -> None:
    for problem in (Problem.contiguous(1, 30_000_000, 30_000_000), Problem.contiguous(2, 22_101_698, 4_747_809)):
        first = registry.get("wide_radix").heuristic(problem, H100)
        assert isinstance(first, WideRadixConfig)
        assert first.split


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int64"])
@pytest.mark.parametrize("order", [True, False])
def test_takes_long_rows_of_which_much_is_wanted(dtype: str, order: bool) -> None:
    much = Problem.contiguous(32, 546_518, 285_321, dtype, sorted=order)
    assert registry.get("wide_radix").heuristic(much, H100) is not None


def test_leaves_to_torch_what_scratch_leaves_few_blocks_for() -> None:
    problem = Problem.contiguous(1000, 1_000_000, 500_000, answer="indices")
    strategy = registry.get("wide_radix")
    assert strategy.ladder(problem, H100)[0] == WideRadixConfig(512, 250, split=False)
    few = Problem.contiguous(100, 1_000_000, 500_000, answer="indices")
    assert strategy.ladder(few, H100)[0] == WideRadixConfig(512, 25, split=False)
    assert strategy.heuristic(few, H100) is None


def test_one_kernel_serves_every_step() -> None:
    strategy = registry.get("wide_radix")
    assert len(set(strategy.rungs(90))) == 7
    program = strategy.program(strategy.ladder(PROBLEMS[0], H100)[0], PROBLEMS[0], H100)
    assert isinstance(program, KernelProgram)
    assert len(program.launches) == 3 + 1 + 1 + 2 * 4
    assert len({*program.sources}) == 1


def test_two_blocks_of_what_is_shipped_fit_a_processor() -> None:
    for arch in ARCHS:
        for source in registry.get("wide_radix").rungs(arch):
            check_room(shipped(source, arch), source)


@pytest.mark.requires("nvcc")
def test_compiles_for_two_blocks_a_processor() -> None:
    source = next(registry.get("wide_radix").rungs(90))
    check_room(source.compile(90), source)


def check_room(kernel: Kernel, source: KernelSource) -> None:
    assert isinstance(source, CudaSource)
    assert kernel.registers <= 64
    assert kernel.spill_bytes <= 64, source.symbol


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_kth_alone(kind: Kind, sequences: Sequences) -> None:
    """Of equal elements the one of the lowest column."""
    strategy = registry.get("wide_radix")
    for seed, case in enumerate(cases(kind)):
        x = case.input("cpu")
        problem = replace(problem_of(case, x), answer="kth")
        assert not strategy.reasons_unable(problem, H100)
        program = strategy.program(kind.config, problem, H100)
        assert isinstance(program, KernelProgram)
        values, indices = torch.full((case.rows,), 7, dtype=x.dtype), torch.full((case.rows,), -7)
        tensors = {"x": x, "values": values, "indices": indices}
        sequences.run(program, problem, tensors, seed=seed, preempt=PREEMPTIONS[seed % len(PREEMPTIONS)])
        expected = x.sort(dim=1, descending=case.largest, stable=True).values[:, case.k - 1]
        assert torch.equal(values.nan_to_num(12345), expected.nan_to_num(12345)), case
        same = (x == values[:, None]) | (x.isnan() & values.isnan()[:, None])
        lowest = same.int().argmax(dim=1)
        zeros = values == 0  # -0 and +0 have keys of their own
        assert torch.equal(indices[~zeros], lowest[~zeros]), case
        assert torch.equal(at(x, indices[:, None])[:, 0].nan_to_num(12345), expected.nan_to_num(12345)), case
