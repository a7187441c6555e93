"""What `block_buckets` alone does, in the emulator."""

import pytest
import torch

from autotopk import registry
from autotopk.problem import DTYPE_BYTES
from autotopk.strategies.block_buckets import BlockBucketsConfig
from tests.contract.cases import LAYOUTS, Case, best_columns
from tests.contract.emulated import answer, barriers
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")


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
        (BlockBucketsConfig(512, 4, 640), 6080, 289, "bfloat16"),
        (BlockBucketsConfig(256, 4, 320), 2600, 120, "float32"),
        (BlockBucketsConfig(1024, 4, 320), 2000, 100, "float32"),
    ],
    ids=str,
)
def test_rows_of_which_threads_have_unlike_shares_are_listed_once(
    config: BlockBucketsConfig, cols: int, k: int, dtype: str, sequences: Sequences
) -> None:
    """A guess is of as many elements as there are, though some threads have fewer, or none."""
    once = barriers_of_random(sequences, config, config.room // DTYPE_BYTES[dtype], k, dtype, 0)
    assert sum(barriers_of_random(sequences, config, cols, k, dtype, seed) != once for seed in range(12)) <= 1


@pytest.mark.parametrize("step", [2.0**-8, 1.0, 2.0**20], ids=["near", "apart", "far"])
@pytest.mark.parametrize("keys", [1, 3, 6, 12])
def test_crowds(keys: int, step: float, sequences: Sequences) -> None:
    """Of one bucket and of several, alone and with few others among them."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(64, 8, 1280)
    generator = torch.Generator().manual_seed(keys)
    for seed, (cols, k, others) in enumerate([(2048, 1000, 0), (2041, 1024, 2), (2048, 700, 30)]):
        x = torch.randn(1, cols, generator=generator) - 10
        crowd = torch.randperm(cols, generator=generator)[:1020]
        x[0, crowd] = 8 + step * (torch.arange(1020) % keys)
        x[0, crowd[:others]] = 2e6 * torch.rand(others, generator=generator)
        case = Case(1, cols, k, "float32", layout="aligned")
        _, indices = answer(sequences, strategy, config, case, x, seed=seed)
        assert torch.equal(indices, best_columns(x, k)), (cols, k, others)


@pytest.mark.parametrize("peaks", [4, 9, 10])
def test_guesses_that_are_too_high(peaks: int, sequences: Sequences) -> None:
    """Fewer than wanted are the first of their threads' elements, and above all others."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(64, 4, 80)
    for seed, k in enumerate((20, 22, 60)):
        case = Case(1, config.room // 4, k, "float32", layout="aligned")
        x = case.input("cpu")
        x[0, [4 * lane + 128 * warp for warp in (0, 1) for lane in range(peaks)]] += 60
        found = answer(sequences, strategy, config, case, x, seed=seed)
        assert not case.problems_with(x, found), k


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
