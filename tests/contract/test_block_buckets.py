"""What `block_buckets` alone does, in the emulator."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import sqrt
from typing import cast

import pytest
import torch

from autotopk import registry
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES, WINDOWS, Answer, Problem
from autotopk.strategies._costs.sampling import guessed
from autotopk.strategies.block_buckets import BlockBucketsConfig
from tests.contract.cases import LAYOUTS, Case, best_columns
from tests.contract.emulated import answer, barriers, barriers_beyond_random
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")

LOOKED_AT_ONCE = 6
"""Barriers of a row in order that nothing misleads, of 32-bit floats that are all counted."""


def barriers_of_random(
    sequences: Sequences, config: BlockBucketsConfig, cols: int, k: int, dtype: str, seed: int
) -> int:
    """Of a random row, in order."""
    x = torch.randn(1, cols, generator=torch.Generator().manual_seed(seed)).to(getattr(torch, dtype))
    return barriers(sequences, registry.get("block_buckets"), config, x, k)


@pytest.mark.parametrize("share", [0.26, 0.4, 0.49, 0.6])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_random_rows_are_counted_once(dtype: str, share: float, sequences: Sequences) -> None:
    """In order, whatever share is wanted: a few rows that are not keep a GPU waiting.

    Counting takes barriers.
    """
    config, rows = BlockBucketsConfig(256, 4, 1280), 40
    once = min(barriers_of_random(sequences, config, 1600, 100, dtype, seed) for seed in range(4))
    found = [barriers_of_random(sequences, config, 1600, int(share * 1600), dtype, seed) for seed in range(rows)]
    assert sum(one > once for one in found) <= 1


@pytest.mark.parametrize(
    ("config", "cols", "k", "dtype"),
    [
        (BlockBucketsConfig(256, 4, 1280), 4096, 1000, "float32"),
        (BlockBucketsConfig(256, 2, 1280), 2048, 256, "float32"),
        (BlockBucketsConfig(256, 2, 1280), 4096, 1000, "bfloat16"),
    ],
    ids=str,
)
def test_masked_rows_are_counted_once(
    config: BlockBucketsConfig, cols: int, k: int, dtype: str, sequences: Sequences
) -> None:
    """In order, whichever half or more of a row is not masked: what a guess looks at is all over the row."""
    assert set(barriers_beyond_random(sequences, registry.get("block_buckets"), config, cols, k, dtype)) == {0}


@pytest.mark.parametrize("sixteenths", [5, 6])
def test_rows_whose_guess_misses_are_counted_twice(sixteenths: int, sequences: Sequences) -> None:
    """So little of a row is not padding that the guess may miss: padding is left out of what is counted then."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(256, 2, 1280)
    beyond = barriers_beyond_random(sequences, strategy, config, 4096, 1000, "bfloat16", [sixteenths])
    assert max(beyond) in range(1, 8), "some were to miss, and to be counted once again"


@pytest.mark.parametrize(
    ("config", "cols", "k", "dtype"),
    [
        (BlockBucketsConfig(512, 4, 640), 6080, 289, "bfloat16"),
        (BlockBucketsConfig(256, 4, 320), 2600, 100, "float32"),
        (BlockBucketsConfig(256, 4, 320), 2600, 120, "float32"),
        (BlockBucketsConfig(1024, 4, 320), 2000, 100, "float32"),
        (BlockBucketsConfig(256, 4, 320), 3728, 135, "float16"),
        (BlockBucketsConfig(256, 4, 320), 3136, 130, "bfloat16"),
        (BlockBucketsConfig(256, 1, 80), 432, 23, "float32"),
        (BlockBucketsConfig(256, 1, 320), 209, 103, "float32"),
        (BlockBucketsConfig(256, 1, 320), 192, 59, "float32"),
        (BlockBucketsConfig(256, 1, 320), 96, 19, "float32"),
        (BlockBucketsConfig(256, 4, 1280), 64, 3, "float32"),
        (BlockBucketsConfig(256, 1, 320), 300, 60, "float16"),
    ],
    ids=str,
)
def test_rows_of_which_threads_have_unlike_shares_are_read_once(
    config: BlockBucketsConfig, cols: int, k: int, dtype: str, sequences: Sequences
) -> None:
    """A guess is of as many elements as there are, though some threads have fewer, or none, or those of some warps."""
    once = barriers_of_random(sequences, config, config.room // DTYPE_BYTES[dtype], k, dtype, 0)
    assert sum(barriers_of_random(sequences, config, cols, k, dtype, seed) != once for seed in range(24)) <= 1


@pytest.mark.parametrize(
    ("config", "cols", "k", "dtype"),
    [
        (BlockBucketsConfig(256, 1, 80), 2048, 22, "bfloat16"),
        (BlockBucketsConfig(256, 2, 160), 2048, 48, "float32"),
        (BlockBucketsConfig(256, 2, 320), 606, 179, "bfloat16"),
        (BlockBucketsConfig(256, 2, 160), 1026, 71, "bfloat16"),
        (BlockBucketsConfig(256, 4, 80), 3000, 3, "float32"),
    ],
    ids=str,
)
def test_lists_overflow_as_often_as_is_told(
    config: BlockBucketsConfig, cols: int, k: int, dtype: str, sequences: Sequences
) -> None:
    """What overflows takes more barriers; a few more where elements that reach a cut are alike."""
    rows = 60
    found = [barriers_of_random(sequences, config, cols, k, dtype, seed) for seed in range(rows)]
    told = guessed(cols, k, DTYPE_BYTES[dtype], config.threads, config.lines).exceeding(config.capacity)
    assert sum(one > min(found) for one in found) / rows == pytest.approx(told, abs=0.03 + 3 * sqrt(told / rows))


@pytest.mark.parametrize("step", [2.0**-8, 1.0, 2.0**20], ids=["near", "apart", "far"])
@pytest.mark.parametrize("keys", [1, 3, 6, 12])
def test_crowds(keys: int, step: float, sequences: Sequences) -> None:
    """Of one bucket and of several, alone and with few others among them."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(64, 8, 1280)
    generator = torch.Generator().manual_seed(keys)
    for seed, (cols, k, others) in enumerate([(2048, 1000, 0), (2041, 1020, 2), (2048, 700, 30)]):
        x = torch.randn(1, cols, generator=generator) - 10
        crowd = torch.randperm(cols, generator=generator)[:1020]
        x[0, crowd] = 8 + step * (torch.arange(1020) % keys)
        x[0, crowd[:others]] = 2e6 * torch.rand(others, generator=generator)
        case = Case(1, cols, k, "float32", layout="aligned")
        _, indices = answer(sequences, strategy, config, case, x, seed=seed)
        assert torch.equal(indices, best_columns(x, k)), (cols, k, others)


@pytest.mark.parametrize("config", [BlockBucketsConfig(64, 4, 80), BlockBucketsConfig(64, 8, 80)], ids=str)
@pytest.mark.parametrize("peaks", [4, 9, 10])
def test_guesses_that_are_too_high(peaks: int, config: BlockBucketsConfig, sequences: Sequences) -> None:
    """Fewer than wanted are the first of their threads' elements, and above all others."""
    strategy = registry.get("block_buckets")
    for seed, (k, largest) in enumerate(product((20, 22, 60), (True, False))):
        case = Case(1, config.room // 4, k, "float32", largest=largest, layout="aligned")
        x = case.input("cpu")
        x[0, [4 * lane + 128 * warp for warp in (0, 1) for lane in range(peaks)]] += 60 if largest else -60
        found = answer(sequences, strategy, config, case, x, seed=seed)
        assert not case.problems_with(x, found), k


def numbers(kind: str, cols: int, generator: torch.Generator) -> torch.Tensor:
    """A row of floats that intervals of numbers suffice for, or not."""
    normal, uniform = torch.randn(1, cols, generator=generator), torch.rand(1, cols, generator=generator)
    x = {
        "normal": normal,
        "far from zero": 3e4 + normal,
        "so far that rounding counts": 2e6 + normal,
        "skewed": torch.exp(5 * normal),
        "denormal": 1e-40 * normal,
        "of a range that has an inverse": 4e36 * normal.clamp(-1.2, 1.2),
        "of a range that has none": 3e38 * (2 * uniform - 1),
        "ranges of which some have one": 8.9e37 * uniform,
        "steps": torch.floor(64 * uniform) / 8,
    }[kind]
    places = torch.randperm(cols, generator=generator)
    x[0, places[:5]] = torch.tensor([torch.inf, -torch.inf, torch.nan, -torch.nan, -0.0])
    x[0, places[5 : 5 + cols // 16]] = [-torch.inf, torch.nan, torch.inf][int(places[0]) % 3]
    return x


OF_NUMBERS = [
    (BlockBucketsConfig(64, 4, 640), (100, 260, 500, 512)),
    (BlockBucketsConfig(32, 8, 640), (100, 260, 480, 490)),
    (BlockBucketsConfig(32, 8, 80), (5, 20, 60, 64)),
    (BlockBucketsConfig(128, 2, 160), (9, 40, 50, 128)),
    (BlockBucketsConfig(128, 1, 320), (20, 100, 256, 230)),
]
"""Of one to eight lines of a thread, and how many are wanted: few, which the third and fourth list, and more."""


@pytest.mark.parametrize(("config", "wanted"), OF_NUMBERS, ids=str)
@pytest.mark.parametrize(
    "kind",
    [
        "normal",
        "far from zero",
        "so far that rounding counts",
        "skewed",
        "denormal",
        "of a range that has an inverse",
        "of a range that has none",
        "ranges of which some have one",
        "steps",
    ],
)
def test_numbers(kind: str, config: BlockBucketsConfig, wanted: Sequence[int], sequences: Sequences) -> None:
    """Of every range, with infinities and NaN among them, in both orders and in none, pairs and indices alone."""
    strategy, generator = registry.get("block_buckets"), torch.Generator().manual_seed(len(kind))
    for seed, k in enumerate(wanted):
        cols = config.room // 4 - seed % 2 * 37
        for number, (largest, ordered) in enumerate(product((True, False), repeat=2)):
            case = Case(1, cols, k, "float32", largest=largest, sorted=ordered, layout=LAYOUTS[seed % len(LAYOUTS)])
            x = case.input("cpu").copy_(numbers(kind, cols, generator))
            found = answer(sequences, strategy, config, case, x, indices_only=(seed + number) % 3 == 0, seed=seed)
            assert not case.problems_with(x, found), case
            indices, best = found[1], best_columns(x, k, largest=largest)
            if not ordered:
                indices, best = indices.sort().values, best.sort().values
            assert torch.equal(indices, best), case


@pytest.mark.parametrize("sign", [1, -1], ids=["above", "below"])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1.0, 3e4), (1e36, 0.0), (1e-20, 1e-20)])
def test_numbers_are_looked_at_once(scale: float, offset: float, sign: int, sequences: Sequences) -> None:
    """Of every scale, as far from zero as there is room between numbers: what misleads takes more barriers."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(256, 4, 1280)
    taken = []
    for seed in range(8):
        normal = torch.randn(1, 4096, generator=torch.Generator().manual_seed(seed))
        taken.append(barriers(sequences, strategy, config, scale * normal + sign * offset, 1000))
    assert sorted(taken)[:-1] == [LOOKED_AT_ONCE] * 7  # of one row in hundreds fewer reach the cut than are wanted


@pytest.mark.parametrize(
    ("k", "dtype", "alike"),
    [(64, "float32", True), (64, "int32", True), (1024, "float32", False), (64, "float16", False)],
)
def test_any_order_is_that_of_lists(k: int, dtype: str, alike: bool) -> None:
    """Listed by kernels in order, numbers take less time than counted; of thousands of rows, so that k alone tells."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(256, 4, 1280 if k > 128 else 320)
    problem = Problem.contiguous(4096, 4096, k, dtype)
    programs = [strategy.program(config, replace(problem, sorted=in_order), H100) for in_order in (True, False)]
    assert (programs[0] == programs[1]) == alike


@pytest.mark.parametrize("name", inputs.names_for(torch.float32))
def test_few_keys_are_divided_at_once(name: str, sequences: Sequences) -> None:
    """Not key by key, for which ten values took 33 barriers, and a row whose sampled elements are the best up to 72."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(256, 4, 1280)
    rows = inputs.make(name, 3, 4096, 1024, torch.float32, "cpu")
    found = [barriers(sequences, strategy, config, row.clone(), 1024) for row in rows.split(1)]
    assert max(found) <= LOOKED_AT_ONCE + 16, found


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("cut", [0.0, 1e-45, -1e-45, 3.0], ids=["zeros", "above zero", "below zero", "threes"])
def test_lists_have_all_that_equals_their_cut(cut: float, largest: bool, sequences: Sequences) -> None:
    """Zeros of both signs, and what is next to them, as far as there is room: the first by columns are chosen."""
    strategy, config, k = registry.get("block_buckets"), BlockBucketsConfig(32, 8, 80), 20
    for seed in range(4):
        case = Case(1, config.room // 4, k, "float32", largest=largest, layout="aligned")
        x = case.input("cpu").fill_(-5 if largest else 5)
        places = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(seed))
        x[0, places[:60]] = cut
        x[0, places[:60:2]] *= -1 if cut == 0 else 1
        x[0, places[60:64]] = 9 if largest else -9
        found = answer(sequences, strategy, config, case, x, seed=seed)
        assert not case.problems_with(x, found)
        assert torch.equal(found[1], best_columns(x, k, largest=largest))


def test_numbers_of_all(sequences: Sequences) -> None:
    """Of a row of which all are wanted the least counts as well."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(256, 4, 1280)
    for seed in range(4):
        x = torch.randn(1, 1000, generator=torch.Generator().manual_seed(seed))
        assert barriers(sequences, strategy, config, x, 1000) == barriers(sequences, strategy, config, x, 900)


def test_lists_of_numbers_that_are_just_full(sequences: Sequences) -> None:
    """Behind the last entry is room for what is compared with it, or the row is looked at again."""
    strategy, config, k = registry.get("block_buckets"), BlockBucketsConfig(32, 4, 80), 64
    for equals in range(10, 24):
        case = Case(1, 512, k, "float32", layout="aligned")
        x = case.input("cpu")
        x[0] = torch.randn(512, generator=torch.Generator().manual_seed(equals)) - 8
        sampled, others = (torch.randperm(n, generator=torch.Generator().manual_seed(n + equals)) for n in (128, 384))
        best = torch.cat([sampled[:8], 128 + others[: k - 12 + equals]])  # few where a cut is guessed from
        x[0, best] = 4 - torch.arange(len(best)).clamp(max=k - 4) / 32
        found = answer(sequences, strategy, config, case, x, seed=equals)
        assert not case.problems_with(x, found), equals
        assert torch.equal(found[1], best_columns(x, k)), equals
        looked_at_once = barriers(sequences, strategy, config, x, k) == LOOKED_AT_ONCE
        assert looked_at_once == (len(best) <= config.capacity - 4), equals


@pytest.mark.parametrize(
    ("dtype", "k", "answer", "ordered", "lines"),
    [
        ("float32", 1001, "pairs", True, 4),
        ("float32", 1000, "pairs", True, 8),
        ("float32", 1001, "pairs", False, 8),
        ("bfloat16", 1001, "pairs", True, 8),
        ("float32", 1001, WINDOWS, True, 8),
    ],
)
def test_most_of_a_row_as_numbers_is_put_in_order_by_four_lines(
    dtype: str, k: int, answer: Answer, ordered: bool, lines: int
) -> None:
    """Of more there are no registers for extremes, and the row would be read again."""
    strategy = registry.get("block_buckets")
    problem = Problem.contiguous(500, 2000, k, dtype, "cuda", sorted=ordered, answer=answer)
    rungs = cast("Sequence[BlockBucketsConfig]", strategy.ladder(problem, H100))
    assert max(one.lines for one in rungs) == lines
    assert all(strategy.valid(one, problem, H100) for one in rungs)
    assert strategy.valid(BlockBucketsConfig(256, 8, 2560), problem, H100) == (lines == 8)


FEW_KEYS = [BlockBucketsConfig(64, 8, 1280), BlockBucketsConfig(128, 4, 640), BlockBucketsConfig(256, 1, 320)]
"""Rows of up to eight and four lines of a thread that are counted at once, and one that is listed first."""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("config", FEW_KEYS, ids=str)
@pytest.mark.parametrize("keys", [1, 2, 3, 5, 9])
def test_few_keys(keys: int, config: BlockBucketsConfig, dtype: str, sequences: Sequences) -> None:
    """Near each other and far apart, alone and below some that no sample has, or few, or many."""
    strategy, kind = registry.get("block_buckets"), getattr(torch, dtype)
    cols, most = config.room // 4, config.capacity * 4 // 5
    generator = torch.Generator().manual_seed(keys)
    for seed, (step, others) in enumerate([(2.0**-8, 0), (1e30, 3), (1.0, 40), (1.0, most // 2)]):
        of_keys = torch.randint(0, keys, (1, cols), generator=generator) - keys // 2
        x = (of_keys * step).to(kind) + 0.0
        places = torch.randperm(cols, generator=generator)[:others]
        x[0, places] = 1e35 * (1 + torch.rand(others, generator=generator)).to(kind)
        x[0, places[1::2]] = torch.tensor([torch.inf, torch.nan, 2e37], dtype=kind)[seed % 3]
        layout = LAYOUTS[seed % len(LAYOUTS)]
        for k, largest in ((most // 3 + 1, True), (most, False), (min(most, others + cols // keys), True)):
            case = Case(1, cols, k, dtype, largest=largest, layout=layout)
            given = case.input("cpu").copy_(x)
            _, indices = answer(sequences, strategy, config, case, given, seed=seed)
            best = best_columns(x, k, largest=largest)
            assert torch.equal(indices, best), (step, others, k, largest)


def test_times_of_windows_are_of_their_own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which have fewer blocks of a processor."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(256, 4, 1280)
    plain = Problem.contiguous(5000, 4096, 1000, "float32", "cuda")
    windows = replace(plain, answer=WINDOWS, stable=True)
    of_plain, of_windows = (strategy.terms(config, one, H100) for one in (plain, windows))
    monkeypatch.setattr(BlockBucketsConfig, "resident", 1)
    assert strategy.terms(config, plain, H100) != of_plain
    assert strategy.terms(config, windows, H100) == of_windows
