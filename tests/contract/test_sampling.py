"""What is known of a sampled cut before it is taken, beside samples that are taken."""

from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import torch

from autotopk import registry
from autotopk.device import H100
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.strategies import block_buckets
from autotopk.strategies._costs.sampling import DEVIATIONS, MORE, ROUNDED, SampledCut, cut_of, guessed, overflowing
from autotopk.strategies.split_radix import SplitRadixConfig
from tests.contract.test_split_radix import assert_sampled_by, looked_at

TIMES = 1000


def passing(cut: SampledCut, seed: int) -> np.ndarray:
    """How many elements reach the cut, of rows in no order: ranks of elements stand for them."""
    numbers = np.random.default_rng(seed)
    found = []
    for _ in range(TIMES):
        best = np.sort(numbers.integers(0, cut.cols, (cut.pieces, cut.elements)).min(axis=1))
        found.append(best[cut.rank - 1] + 1)
    return np.array(found)


@pytest.mark.parametrize(
    ("cols", "k", "dtype"),
    [(131_072, 2048, "float32"), (151_936, 64, "bfloat16"), (3_162_784, 316, "float32"), (1 << 20, 1, "int64")],
)
def test_elements_that_reach_a_cut(cols: int, k: int, dtype: str) -> None:
    cut = cut_of(Problem.contiguous(1, cols, k, dtype))
    found = passing(cut, k)
    assert found.mean() == pytest.approx(cut.passing, rel=0.1)
    assert (found >= k).mean() > 0.99
    for room in np.quantile(found, (0.05, 0.5, 0.95)).astype(int).tolist():
        likely = float((found > room).mean())
        assert cut.exceeding(room) == pytest.approx(likely, abs=4 * sqrt(likely * (1 - likely) / TIMES) + 0.01)


@pytest.mark.parametrize(
    ("cols", "k", "itemsize", "threads", "lines"),
    [
        (4096, 135, 4, 256, 4),
        (8192, 283, 4, 512, 4),
        (2048, 22, 2, 256, 1),
        (2048, 3, 2, 256, 1),
        (1024, 500, 4, 256, 1),
    ],
)
def test_elements_that_reach_a_guess(cols: int, k: int, itemsize: int, threads: int, lines: int) -> None:
    """The best of each lane's first elements, ranked in its warp, and then of these; lanes that see all differ less."""
    cut, numbers = guessed(cols, k, itemsize, threads, lines), np.random.default_rng(k)
    of_threads = numbers.random((TIMES, threads, cols // threads))
    best = np.sort(of_threads[:, :, : int(cut.elements)].max(axis=2).reshape(TIMES, threads // 32, 32), axis=2)
    ranks = cut.in_warp + (np.arange(cut.warps) >= cut.warps - cut.above)
    of_warps = best[:, range(threads // 32), -ranks]
    told = np.sort(of_warps, axis=1)[:, -cut.in_block]
    found = (of_threads >= told[:, None, None]).sum(axis=(1, 2))
    assert (cut.warps, (found >= k).mean() > 0.99) == (threads // 32, True)
    for room in np.quantile(found, (0.05, 0.5, 0.95, 0.99)).astype(int).tolist():
        likely = float((found > room).mean())
        assert cut.exceeding(room) == pytest.approx(likely, abs=4 * sqrt(likely * (1 - likely) / TIMES) + 0.05)


@pytest.mark.parametrize(("cols", "k"), [(31, 1), (257, 9), (1000, 3), (40_001, 700), (50_000, 5), (5_000_000, 64)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_as_many_are_looked_at_as_the_kernel_does(cols: int, k: int, dtype: str) -> None:
    cut = cut_of(Problem.contiguous(1, cols, k, dtype))
    places = looked_at(cols, k, getattr(torch, dtype), 0, parts=2)
    loads = len({place * DTYPE_BYTES[dtype] // 16 for place in places})
    assert cut.pieces * cut.elements * DTYPE_BYTES[dtype] // 16 == pytest.approx(loads, rel=0.05)  # two may meet


def test_a_block_guesses_for_as_many() -> None:
    """By numbers that are here in another language."""
    text = (Path(block_buckets.__file__).parent / "elements.cuh").read_text()
    assert f"aim = (wanted + {MORE}) * one_over(all) + {DEVIATIONS}f * wanted *" in text
    assert f"if (10 * lines > {ROUNDED} * more * THREADS) deals = more;" in text


def test_the_kernel_takes_the_same_rank() -> None:
    """By the formula, which is here in another language."""
    assert_sampled_by(
        "return unsigned(mean + 4 * variance * rsqrtf(variance)) + 4;",
        "return most < PIECE ? max(31 - __clz(most), 0) : PIECE_BITS;",
        "const bool all = VECTOR < 16 || (unsigned long long)VECTOR * k <= row.cols;",
        "likely_rank(k, row.cols, 1u << pieces, (all ? VECTOR : 1) << lanes << times);",
        "rank >> pieces ? 0 : rank",
    )


def test_everything_passes_where_nothing_can_be_told() -> None:
    cut = cut_of(Problem.contiguous(1, 3000, 2000))
    assert cut.rank > cut.pieces
    assert cut.passing == 3000
    assert (cut.exceeding(2999), cut.exceeding(3000)) == (1, 0)


@pytest.mark.parametrize(
    ("problem", "least"),
    [
        (Problem.contiguous(67, 8_000_000, 316, "float32", "cuda"), 16384),
        (Problem.contiguous(78, 1_000_000, 1, "int64", "cuda"), 8192),
        (Problem.contiguous(131, 1_000_000, 756, "float16", "cuda"), 8192),
    ],
    ids=str,
)
def test_lists_that_nearly_always_overflow_are_no_first_choice(problem: Problem, least: int) -> None:
    strategy = registry.get("split_radix")
    assert overflowing(4096, 1, problem) > 0.5
    assert overflowing(least, 1, problem) < 0.05
    first, *_ = strategy.ladder(problem, H100)
    assert isinstance(first, SplitRadixConfig)
    assert first.capacity == least
    assert min(one.capacity for one in strategy.shortlist(problem, H100)) == least


def test_a_list_too_short_for_all_parts_together_is_no_reason_for_a_longer_one() -> None:
    """What its part lets pass is what a block lists; the last is the only one to see more, and few."""
    problem = Problem.contiguous(1, 100_000_000, 32, "float32", "cuda")
    assert cut_of(problem).exceeding(4096) > 0.5
    first, *_ = registry.get("split_radix").ladder(problem, H100)
    assert isinstance(first, SplitRadixConfig)
    assert first.capacity == 4096
