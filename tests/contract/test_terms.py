"""What every strategy's time grows with: numbers that a sum of them can be fitted to."""

import random
from itertools import islice, product
from math import isfinite

import pytest

from autotopk import registry
from autotopk.device import H100, cpu_device
from autotopk.problem import Problem
from autotopk.strategies._costs import at_once, rounds
from autotopk.strategies._costs.radix import repeated, survivors
from autotopk.strategies._costs.sampling import lacking
from autotopk.strategy import Strategy
from tests.contract.test_declarations import able

SHORT_ROW, LONG_ROW = (64, 512, 8), (64, 1 << 20, 64)


@pytest.mark.parametrize("strategy", registry.available(), ids=lambda strategy: strategy.name)
def test_terms_are_as_many_for_every_problem_and_none_is_negative(strategy: Strategy) -> None:
    lengths = set()
    for problem, device in islice(able(strategy), 0, None, 7):
        for config in (*islice(strategy.ladder(problem, device), 3), *strategy.shortlist(problem, device)[:3]):
            terms = strategy.terms(config, problem, device)
            assert all(isfinite(one) and one >= 0 for one in terms), (problem, config)
            assert any(one > 0 for one in terms)
            lengths.add(len(terms))
    assert len(lengths) == 1


@pytest.mark.parametrize("strategy", registry.available(), ids=lambda strategy: strategy.name)
def test_more_rows_have_no_smaller_term(strategy: Strategy) -> None:
    for (rows, cols, k), order in product((SHORT_ROW, LONG_ROW), (True, False)):
        few, many = (Problem.contiguous(count, cols, k, sorted=order) for count in (rows, 64 * rows))
        if strategy.reasons_unable(few, H100) or strategy.reasons_unable(many, H100):
            continue
        for config in strategy.shortlist(few, H100):
            if strategy.valid(config, many, H100):
                pairs = zip(strategy.terms(config, few, H100), strategy.terms(config, many, H100), strict=True)
                assert all(less <= more for less, more in pairs), config


@pytest.mark.parametrize(
    ("cols", "k", "dtype", "bits", "expected"),
    [
        (
            32768,
            256,
            "float32",
            11,
            745,
        ),  # 2.28 % are above 2, where the bin of 2.42 begins
        (4096, 128, "float32", 11, 164),
        (4096, 128, "float32", 8, 1264),  # above 0.5
        (4096, 128, "int32", 8, 128 + 16),
        (100, 90, "float32", 11, 90),
    ],
)
def test_survivors_of_a_digit(cols: int, k: int, dtype: str, bits: int, expected: int) -> None:
    assert survivors(cols, k, dtype, bits) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(("k", "bits"), [*product((20, 50, 900), (8, 11))])
def test_survivors_of_drawn_rows(k: int, bits: int) -> None:
    """Beside rows of normal numbers, whose leading bits are counted."""
    import torch

    cols = 4000
    rows = torch.randn(200, cols, generator=torch.Generator().manual_seed(k))
    bins = rows.view(torch.int32)
    keys = torch.where(bins < 0, bins ^ 0x7FFFFFFF, bins) >> (32 - bits)
    kth = torch.topk(keys, k).values[:, -1:]
    counted = (keys >= kth).sum(dim=1).float().mean().item()
    assert survivors(cols, k, "float32", bits) == pytest.approx(counted, rel=0.6)


def test_terms_of_a_cpu() -> None:
    strategy = registry.get("torch_fallback")
    problem = Problem.contiguous(64, 4096, 128, device_type="cpu")
    found = [strategy.terms(config, problem, cpu_device()) for config in strategy.shortlist(problem, cpu_device())]
    assert len(set(map(tuple, found))) == len(found)


@pytest.mark.parametrize(
    ("cols", "k", "dtype", "capacity", "expected"),
    [
        (4096, 128, "float32", 256, 0.0),  # the 164 that a digit leaves fit
        (4096, 128, "float32", 150, 1.0),
        (4096, 128, "float32", 0, 1.0),  # the second leaves nobody else but seldom
        (4096, 4096, "float32", 0, 0.0),
        (4096, 4096, "int64", 0, 0.0),
        (256, 16, "int64", 0, 0.1),  # one of 2,048 bins seldom has two
    ],
)
def test_digits_that_are_counted_again(cols: int, k: int, dtype: str, capacity: int, expected: float) -> None:
    assert repeated(cols, k, dtype, 11, capacity) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("k", "maxima"), [(28, 14), (60, 14), (8, 14), (200, 128)])
def test_maxima_of_drawn_rows_are_all_among_the_best(k: int, maxima: int) -> None:
    """Of lines of 8 elements."""
    problem, draw = Problem.contiguous(1, 8 * maxima, k, "bfloat16"), random.Random(1)
    found = []
    for _ in range(400):
        best = set(draw.sample(range(8 * maxima), k))
        found.append(all(any(8 * line + at in best for at in range(8)) for line in range(maxima)))
    assert lacking(problem, maxima) == pytest.approx(sum(found) / 400, abs=0.1)


@pytest.mark.parametrize(("cluster", "clusters"), [(1, 132), (2, 66), (4, 30), (8, 15), (16, 7)])
def test_blocks_of_a_cluster_are_neighbours(cluster: int, clusters: int) -> None:
    """So the sixteenth cluster of eight blocks waits, although there would be multiprocessors for it."""
    assert H100.processors == 132
    whole = at_once(1024, H100, shared_bytes=H100.shared_bytes, cluster=cluster)  # a multiprocessor has room for one
    assert whole == clusters * cluster
    assert rounds(whole, 1024, H100, H100.shared_bytes, cluster=cluster) == 1
    assert rounds(whole + 1, 1024, H100, H100.shared_bytes, cluster=cluster) == 2
