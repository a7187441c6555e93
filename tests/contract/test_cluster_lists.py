"""What `cluster_lists` alone does, in the emulator."""

from typing import cast

import pytest
import torch
from torch import Tensor

from autotopk import registry
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.strategies.cluster_lists import ClusterLists, ClusterListsConfig
from tests.contract.cases import Case, best_columns
from tests.contract.emulated import answer, barriers, barriers_beyond_random
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")


def test_every_block_has_threads_that_send_to_it() -> None:
    with pytest.raises(ValueError, match="blocks=16 are too many for 32 threads"):
        ClusterListsConfig(16, 32, 1, 256)


@pytest.mark.parametrize(
    ("config", "cols", "k", "dtype"),
    [
        (ClusterListsConfig(1, 128, 4, 1024), 2048, 200, "float32"),
        (ClusterListsConfig(2, 128, 4, 2048), 4096, 400, "float32"),
        (ClusterListsConfig(1, 128, 8, 2048), 4096, 600, "float32"),
        (ClusterListsConfig(1, 128, 4, 2048), 4096, 500, "bfloat16"),
    ],
    ids=str,
)
def test_masked_rows_are_tried_once(
    config: ClusterListsConfig, cols: int, k: int, dtype: str, sequences: Sequences
) -> None:
    """Whichever half or more of a row is not masked: what a cut is made from is all over the row.

    Where the mean of the warps' candidates does not tell, one barrier more does.
    """
    beyond = barriers_beyond_random(sequences, registry.get("cluster_lists"), config, cols, k, dtype)
    assert max(beyond) <= config.blocks


CLUSTERS = [
    ClusterListsConfig(1, 128, 4, 1024),
    ClusterListsConfig(2, 256, 2, 2048),
    ClusterListsConfig(8, 256, 1, 2048),
    ClusterListsConfig(1, 64, 16, 512),
]
"""One block, several, and some that own ranges; lists with room for crowds; lines that are held, and read again."""


@pytest.mark.parametrize("crowds", [1, 2, 7])
@pytest.mark.parametrize("config", CLUSTERS, ids=str)
def test_crowds_of_clusters(config: ClusterListsConfig, crowds: int, sequences: Sequences) -> None:
    """Intervals of equals, or of neighbours that are divided twice, beside NaN and infinities."""
    strategy, cols, most = registry.get("cluster_lists"), config.room // 4, config.capacity * 4 // 5
    generator = torch.Generator().manual_seed(crowds)
    for seed, (step, odd) in enumerate([(0.0, 0), (2.0**-22, 0), (2.0**-8, 30), (2.0**-22, 300)]):
        x = torch.randn(1, cols, generator=generator) - 10
        crowd = torch.randperm(cols, generator=generator)[: most + 40]
        numbers = torch.arange(len(crowd))
        x[0, crowd] = 1 + numbers % crowds / 4 + step * (numbers % 3)
        x[0, crowd[:odd]] = torch.tensor([torch.nan, torch.inf])[numbers[:odd] % 2]
        for k in (most // 2 + 1, most):
            case = Case(1, cols, k, "float32", layout="aligned")
            _, indices = answer(sequences, strategy, config, case, x, seed=seed)
            assert torch.equal(indices, best_columns(x, k)), (step, odd, k)


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("config", CLUSTERS, ids=str)
def test_cuts_that_are_hard_to_find(config: ClusterListsConfig, largest: bool, sequences: Sequences) -> None:
    """Far from the blocks' own: steps of all sizes, one at the k-th, below lines of peaks."""
    strategy, cols, k = registry.get("cluster_lists"), config.room // 4, config.capacity // 4
    generator = torch.Generator().manual_seed(k)
    for seed, ratio in enumerate((1.001, 1.2, 4.0)):
        sizes = config.capacity * 2 // 3  # of a step: too many for one more, or too few
        steps = torch.arange(cols) // sizes
        x = torch.where(steps < 40, ratio ** -steps.double(), -(ratio ** (steps.double() - 80))).float()[None]
        x = x.clamp(-3e38, 3e38) + 0.0
        peaks = torch.randperm(cols // 4, generator=generator)[: (k - 3) // 4]
        x[0, (4 * peaks[:, None] + torch.arange(4)).flatten()] = 1e6
        x = x[:, torch.randperm(cols // 4, generator=generator)[:, None].mul(4).add(torch.arange(4)).flatten()]
        if not largest:
            x = -x
            x[0, :: cols // 7] = torch.nan
        case = Case(1, cols, k, "float32", largest=largest, layout="aligned")
        _, indices = answer(sequences, strategy, config, case, x, seed=seed)
        assert torch.equal(indices, best_columns(x, k, largest=largest)), ratio


def barriers_of(sequences: Sequences, config: ClusterListsConfig, x: Tensor, k: int) -> int:
    """That all blocks take for a row whose answer is right."""
    strategy = registry.get("cluster_lists")
    case = Case(1, x.shape[1], k, str(x.dtype).removeprefix("torch."), layout="aligned")
    _, indices = answer(sequences, strategy, config, case, x)
    assert torch.equal(indices, best_columns(x, k))
    return barriers(sequences, strategy, config, x, k)


@pytest.mark.parametrize(
    ("config", "k"),
    [
        (ClusterListsConfig(1, 256, 4, 256), 100),
        (ClusterListsConfig(2, 256, 4, 1024), 400),
        (ClusterListsConfig(4, 256, 2, 1024), 200),
    ],
    ids=str,
)
def test_a_block_with_too_many_lists_fewer(config: ClusterListsConfig, k: int, sequences: Sequences) -> None:
    """Three barriers more for each block, and no list of all is made again."""
    cols = config.room // 4
    once = barriers_of(sequences, config, torch.randn(1, cols, generator=torch.Generator().manual_seed(0)), k)
    for name in ("near_ties", "ascending", "descending"):
        for seed in range(3):
            for row in inputs.make(name, 2, cols, k, torch.float32, "cpu", seed).split(1):
                found = barriers_of(sequences, config, row.contiguous(), k)
                assert found in range(once, once + 3 * config.blocks + 1), (name, seed)


@pytest.mark.parametrize(
    ("config", "elements"),
    [
        (ClusterListsConfig(1, 256, 8, 256), 1024),
        (ClusterListsConfig(2, 512, 4, 4096), 4096),
        (ClusterListsConfig(4, 256, 4, 512), 512),
        (ClusterListsConfig(16, 256, 8, 512), 128),
        (ClusterListsConfig(1, 1024, 8, 8192), 8192),
        (ClusterListsConfig(8, 512, 4, 4096), 4096),
        (ClusterListsConfig(16, 512, 4, 4096), 2048),
    ],
    ids=str,
)
def test_lists_have_more_room_than_is_sent(config: ClusterListsConfig, elements: int) -> None:
    """Four times that, so that a block makes its cut higher, or eight times where blocks own ranges and spread them."""
    source = ClusterLists().source(config, "float32", windows=False, ordered=True)
    assert dict(source.constants)["LISTED"] == elements


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
def test_few_that_a_block_has_alone(largest: bool, sequences: Sequences) -> None:
    """NaN, zeros of both signs and others that are equal; some that were listed before."""
    config, strategy = ClusterListsConfig(1, 256, 2, 256), registry.get("cluster_lists")
    generator = torch.Generator().manual_seed(int(largest))
    few = torch.randint(-5, 5, (1, 100), generator=generator) * torch.tensor([[1.0, -1.0]]).repeat(1, 50)
    few[0, torch.randperm(100, generator=generator)[:60]] = torch.nan
    crowded = torch.randn(1, 2048, generator=generator).abs() * (-1 if largest else 1)
    crowded[0, torch.randperm(2048, generator=generator)[:400]] *= 1e-3
    for seed, (x, k) in enumerate([(few, 30), (few, 80), (few, 100), (crowded, 3), (crowded, 20), (crowded, 60)]):
        case = Case(1, x.shape[1], k, "float32", largest=largest, layout="aligned")
        _, indices = answer(sequences, strategy, config, case, x, seed=seed)
        assert torch.equal(indices, best_columns(x, k, largest=largest)), k


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_short_list_takes_four_barriers(dtype: str, sequences: Sequences) -> None:
    """One for a cut that is a mean, one for the list, two for its order; one more where a warp is far above others."""
    config, k = ClusterListsConfig(1, 256, 4, 256), 100
    x = torch.randn(1, config.room // DTYPE_BYTES[dtype], generator=torch.Generator().manual_seed(1))
    x = x.to(getattr(torch, dtype))
    assert barriers_of(sequences, config, x, k) == 4
    lines = x.view(-1, 32, 16 // DTYPE_BYTES[dtype])  # of every warp by turns
    lines[3, :, 0] += 1000
    assert barriers_of(sequences, config, x, k) == 5


@pytest.mark.parametrize("config", [ClusterListsConfig(2, 256, 2, 512), ClusterListsConfig(2, 256, 2, 2048)], ids=str)
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
def test_what_is_below_the_highest_cut_does_not_count(
    largest: bool, config: ClusterListsConfig, sequences: Sequences
) -> None:
    """All wanted are one block's, which lists less than k of them; the other lists as many, all worse."""
    generator = torch.Generator().manual_seed(0)
    lines = torch.rand(config.room // 16 // 64, 2, 32, 4, generator=generator)  # of each block by turns
    lines[:, 0] += 5
    x = lines.reshape(1, -1) * (1 if largest else -1)
    for k in (60, 64, 68, 72, 100, 150):  # of few that do not count no interval is a crowd
        case = Case(1, x.shape[1], k, "float32", largest=largest, layout="aligned")
        _, indices = answer(sequences, registry.get("cluster_lists"), config, case, x)
        assert torch.equal(indices, best_columns(x, k, largest=largest)), k


@pytest.mark.parametrize("count", [650, 750, 850])
def test_nan_beside_others_are_no_crowd(count: int, sequences: Sequences) -> None:
    """In a range of both: to rank a crowd takes six barriers."""
    config = ClusterListsConfig(8, 256, 1, 2048)
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(1, config.room // 4, generator=generator)
        x[0, torch.randperm(x.shape[1], generator=generator)[:count]] = torch.nan
        assert barriers_of(sequences, config, x, 1000) <= 12 * config.blocks, seed


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_entries_are_spread_over_blocks_that_own_ranges(dtype: str, sequences: Sequences) -> None:
    """No crowd of equals, and no range that has too many, makes all blocks look for a cut."""
    config, k = ClusterListsConfig(8, 256, 1, 2048), 1000
    cols = config.room // DTYPE_BYTES[dtype]
    most = 13 * config.blocks  # looking for a cut, and what follows, takes 114 and more
    for seed, name in enumerate(("ascending", "few_nan", "hashed_peaks", "ties", "scales")):
        x = inputs.make(name, 1, cols, k, getattr(torch, dtype), "cpu", seed)
        assert barriers_of(sequences, config, x, k) <= most, name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_parts_that_cannot_be_spread(dtype: str, sequences: Sequences) -> None:
    """One block has nearly all of the best, more than it stores, or than an owner is sent."""
    config, strategy = ClusterListsConfig(8, 256, 1, 2048), registry.get("cluster_lists")
    each, cols = 16 // DTYPE_BYTES[dtype], config.room // DTYPE_BYTES[dtype]
    of_first = torch.arange(cols) // (32 * each) % config.blocks == 0  # the blocks take 32 lines by turns
    for seed, (count, others, k) in enumerate(
        [(900, 700, 1000), (1000, 600, 1600), (1000, 1600, 1600), (250, 900, 1000)]
    ):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(1, cols, generator=generator)
        x[0, of_first.nonzero().flatten()[:count]] += 20
        rest = torch.randperm(cols, generator=generator)[:others]
        x[0, rest] += 9
        x = x.to(getattr(torch, dtype))
        for largest in (True, False):
            given = x if largest else -x
            case = Case(1, cols, k, dtype, largest=largest, layout="aligned")
            _, indices = answer(sequences, strategy, config, case, given, seed=seed)
            assert torch.equal(indices, best_columns(given, k, largest=largest)), (count, k)


@pytest.mark.parametrize(("equal", "high", "k"), [(1, 40, 1000), (2, 0, 400), (3, 0, 1000)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_splitters_that_mislead(dtype: str, equal: int, high: int, k: int, sequences: Sequences) -> None:
    """Blocks' are all equal, more than they store, or all others' draws are above them."""
    config, strategy = ClusterListsConfig(8, 256, 2, 2048), registry.get("cluster_lists")
    each, cols = 16 // DTYPE_BYTES[dtype], config.room // DTYPE_BYTES[dtype]
    block = torch.arange(cols) // (32 * each) % config.blocks
    x = torch.rand(1, cols, generator=torch.Generator().manual_seed(high))
    x[0, block < equal] = 1.5
    for number in range(equal, config.blocks):
        x[0, (block == number).nonzero().flatten()[::7][:high]] += 5
    x = x.to(getattr(torch, dtype))
    case = Case(1, cols, k, dtype, layout="aligned")
    _, indices = answer(sequences, strategy, config, case, x, seed=high)
    assert torch.equal(indices, best_columns(x, k))


def test_equals_of_the_last_are_not_listed(sequences: Sequences) -> None:
    """Where many have the key of the k-th they are counted, though a list has room for them."""
    config, k = ClusterListsConfig(2, 256, 4, 1024), 400
    cols = config.room // 4
    block = torch.arange(cols) // 128 % 2
    found = []
    for others in (20, 600):  # beyond the room of the list
        x = torch.rand(1, cols, generator=torch.Generator().manual_seed(0))
        for number, count in enumerate((560, 380 + others)):
            x[0, (block == number).nonzero().flatten()[::5][:count]] = 2
        found.append(barriers_of(sequences, config, x, k))
    assert found[0] == found[1]


@pytest.mark.parametrize(("cols", "k", "dtype"), [(34768, 122, "float32"), (83424, 140, "bfloat16")])
def test_lists_of_clusters_have_room_for_what_reaches_their_cuts(cols: int, k: int, dtype: str) -> None:
    """In lists of 512 of 16 blocks, one lacks room in every second row and more."""
    strategy, problem = registry.get("cluster_lists"), Problem.contiguous(2, cols, k, dtype)
    proposed = [*strategy.ladder(problem, H100), *strategy.shortlist(problem, H100)]
    assert proposed
    assert all(config.capacity >= 1024 for config in proposed if config.blocks == 16)
    few = Problem.contiguous(2, cols, 50, dtype)
    assert any(config.capacity == 512 and config.blocks == 16 for config in strategy.ladder(few, H100))


@pytest.mark.parametrize(("rows", "blocks"), [(1, 16), (7, 16), (8, 8), (16, 8)])
def test_clusters_are_as_large_as_find_room_at_once(rows: int, blocks: int) -> None:
    """Of an H100's processors 7 clusters of 16 find neighbours, not 8."""
    strategy, problem = registry.get("cluster_lists"), Problem.contiguous(rows, 325_344, 915, "bfloat16")
    for proposed in (strategy.ladder(problem, H100), strategy.shortlist(problem, H100)):
        assert max(cast("ClusterListsConfig", one).blocks for one in proposed) == blocks


def test_blocks_own_ranges_where_few_are_wanted_too() -> None:
    """Lists of 256 entries a block, beside those that are as short as can be."""
    strategy, problem = registry.get("cluster_lists"), Problem.contiguous(5, 60_000, 21, "bfloat16")
    proposed = [cast("ClusterListsConfig", one) for one in strategy.shortlist(problem, H100)]
    assert {one.capacity // one.blocks for one in proposed if one.blocks == 16} == {32, 256}
    assert all(len({one.capacity for one in proposed if one.blocks == blocks}) == 1 for blocks in (1, 2, 4))
