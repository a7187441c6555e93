"""Families that read rows by lines, with lists that overflow, clusters of every size, and rows at every alignment."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk import registry
from autotopk.device import H100
from autotopk.kernel import scalars
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.program import KernelProgram
from autotopk.strategies.block_buckets import BlockBucketsConfig
from autotopk.strategies.cluster_lists import ClusterListsConfig
from autotopk.strategies.load_maxima import LoadMaximaConfig
from autotopk.strategies.stream_maxima import StreamMaximaConfig
from autotopk.strategy import Strategy
from tests.contract.cases import LAYOUTS, ORDERS, Case
from tests.contract.drawn import draw_values
from tests.contract.emulated import answer
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")


@dataclass(frozen=True)
class Kind:
    """A family, a dtype, and what the kernels are compiled for."""

    family: str
    dtype: str
    config: LoadMaximaConfig | BlockBucketsConfig | ClusterListsConfig | StreamMaximaConfig

    def __str__(self) -> str:
        knobs = "x".join(str(value) for value in vars(self.config).values())
        return f"{self.family}-{self.dtype}-{knobs}"

    @property
    def strategy(self) -> Strategy:
        return registry.get(self.family)

    @property
    def room(self) -> int:
        """Elements of the longest row."""
        return self.config.room // DTYPE_BYTES[self.dtype]


KINDS = [
    Kind("load_maxima", "float32", LoadMaximaConfig(1, 64, 4, 128)),
    Kind("load_maxima", "float32", LoadMaximaConfig(2, 32, 8, 64)),
    Kind("load_maxima", "float32", LoadMaximaConfig(4, 64, 1, 128)),
    Kind("load_maxima", "float64", LoadMaximaConfig(1, 64, 4, 64)),
    Kind("load_maxima", "float64", LoadMaximaConfig(2, 64, 2, 64)),
    Kind("load_maxima", "bfloat16", LoadMaximaConfig(1, 32, 4, 128)),
    Kind("load_maxima", "float16", LoadMaximaConfig(2, 64, 1, 128)),
    Kind("load_maxima", "float16", LoadMaximaConfig(2, 32, 32, 64)),
    Kind("load_maxima", "int8", LoadMaximaConfig(1, 32, 2, 128)),
    Kind("load_maxima", "uint8", LoadMaximaConfig(2, 64, 1, 128)),
    Kind("load_maxima", "int64", LoadMaximaConfig(1, 64, 2, 64)),
    Kind("load_maxima", "int32", LoadMaximaConfig(1, 64, 1, 64)),
    Kind("load_maxima", "int16", LoadMaximaConfig(8, 32, 1, 64)),
    Kind("stream_maxima", "float32", StreamMaximaConfig(1, 32, 64, 128)),
    Kind("stream_maxima", "float32", StreamMaximaConfig(4, 32, 64, 64)),
    Kind("stream_maxima", "float32", StreamMaximaConfig(1, 32, 256, 64)),
    Kind("stream_maxima", "float32", StreamMaximaConfig(1, 32, 256, 128)),
    Kind("stream_maxima", "bfloat16", StreamMaximaConfig(2, 32, 128, 64)),
    Kind("block_buckets", "float32", BlockBucketsConfig(64, 4, 80)),
    Kind("block_buckets", "float32", BlockBucketsConfig(32, 8, 160)),
    Kind("block_buckets", "float32", BlockBucketsConfig(128, 1, 320)),
    Kind("block_buckets", "bfloat16", BlockBucketsConfig(32, 4, 160)),
    Kind("block_buckets", "bfloat16", BlockBucketsConfig(32, 8, 80)),
    Kind("block_buckets", "float16", BlockBucketsConfig(64, 2, 80)),
    Kind("block_buckets", "float32", BlockBucketsConfig(64, 8, 1280)),
    Kind("block_buckets", "bfloat16", BlockBucketsConfig(64, 4, 1280)),
    Kind("cluster_lists", "float32", ClusterListsConfig(1, 64, 4, 128)),
    Kind("cluster_lists", "float32", ClusterListsConfig(2, 32, 8, 64)),
    Kind("cluster_lists", "float32", ClusterListsConfig(4, 64, 2, 256)),
    Kind("cluster_lists", "float64", ClusterListsConfig(2, 64, 2, 64)),
    Kind("cluster_lists", "bfloat16", ClusterListsConfig(8, 32, 1, 128)),
    Kind("cluster_lists", "float16", ClusterListsConfig(2, 64, 1, 128)),
    Kind("cluster_lists", "uint8", ClusterListsConfig(2, 64, 1, 128)),
    Kind("cluster_lists", "int64", ClusterListsConfig(4, 32, 2, 64)),
    Kind("cluster_lists", "int32", ClusterListsConfig(8, 32, 1, 64)),
    Kind("cluster_lists", "float32", ClusterListsConfig(2, 128, 1, 64)),
    Kind("cluster_lists", "float32", ClusterListsConfig(8, 256, 1, 2048)),
    Kind("cluster_lists", "bfloat16", ClusterListsConfig(8, 256, 2, 2048)),
    Kind("cluster_lists", "int32", ClusterListsConfig(8, 256, 1, 2048)),
]
SPACIOUS = [kind for kind in KINDS if kind.dtype == "float32" and kind.config.lines > 1]
"""For what hypothesis draws."""


@pytest.fixture(scope="module")
def sequences(emulated_kernels: Path) -> Sequences:
    return Sequences(emulated_kernels)


def cases(kind: Kind) -> Iterator[Case]:
    layouts, orders = itertools.cycle(LAYOUTS), itertools.cycle(ORDERS)
    most = kind.config.capacity * 4 // 5
    for name in inputs.names_for(getattr(torch, kind.dtype)):
        for cols in (1, 37, kind.room // 2, kind.room):
            for k in sorted({1, min(cols, 7), min(cols, most // 2), min(cols, most)}):
                largest, order = next(orders)
                yield Case(2, cols, k, kind.dtype, name, largest, order, next(layouts))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_answers_right(kind: Kind, sequences: Sequences) -> None:
    for seed, case in enumerate(cases(kind)):
        x = case.input("cpu")
        found = answer(sequences, kind.strategy, kind.config, case, x, indices_only=seed % 7 == 0, seed=seed)
        assert not case.problems_with(x, found), case


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_answers_right_whatever_is_asked(sequences: Sequences, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(SPACIOUS))
    cols = data.draw(st.integers(1, kind.room))
    case = Case(
        rows=data.draw(st.integers(1, 3)),
        cols=cols,
        k=data.draw(st.integers(1, min(cols, kind.config.capacity * 4 // 5))),
        dtype=kind.dtype,
        largest=data.draw(st.booleans()),
        sorted=data.draw(st.booleans()),
        layout=data.draw(st.sampled_from(LAYOUTS)),
    )
    x = draw_values(data, case.input("cpu"))
    seed = data.draw(st.integers(0, 1000))
    found = answer(sequences, kind.strategy, kind.config, case, x, seed=seed)
    assert not case.problems_with(x, found), case


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_stable(kind: Kind, largest: bool, sequences: Sequences) -> None:
    """-0 and +0 are equal, and all NaN."""
    assert kind.strategy.features.stable == kind.strategy.features.dtypes
    for seed, name in enumerate(inputs.names_for(getattr(torch, kind.dtype))):
        case = Case(2, kind.room - 3, 30, kind.dtype, name, largest, layout="padded")
        x = case.input("cpu")
        _, indices = answer(sequences, kind.strategy, kind.config, case, x, seed=seed)
        assert torch.equal(indices, x.sort(dim=1, descending=largest, stable=True).indices[:, :30]), name


@pytest.mark.parametrize("kind", [kind for kind in KINDS if getattr(kind.config, "blocks", 1) > 1], ids=str)
def test_the_best_are_all_of_one_block(kind: Kind, sequences: Sequences) -> None:
    """Of 16 bytes dealt out to blocks by turns, or by parts: what the others find best among theirs is not."""
    config, dtype = cast(LoadMaximaConfig | ClusterListsConfig, kind.config), getattr(torch, kind.dtype)
    cols, whole = kind.room, 16 // DTYPE_BYTES[kind.dtype] * config.threads
    most = min(cols // config.blocks, config.capacity * 4 // 5)
    generator = torch.Generator().manual_seed(0)
    for seed, stripe in enumerate((whole, cols // config.blocks)):
        of_one = torch.arange(cols) // stripe % config.blocks == seed % config.blocks
        x = torch.randint(0, 60, (2, cols), generator=generator) + 60 * of_one
        for k in {most // 4 + 1, most // 2, most}:
            case = Case(2, cols, k, kind.dtype)
            found = answer(sequences, kind.strategy, kind.config, case, given := x.to(dtype), seed=seed)
            assert not case.problems_with(given, found), (case, stripe)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if getattr(kind.config, "blocks", 1) > 4], ids=str)
def test_many_of_the_best_are_equal(kind: Kind, sequences: Sequences) -> None:
    """More than are ranked among each other, and fewer than overflow a list: one block has them all."""
    cols, k = kind.room, kind.config.capacity * 3 // 10
    case = Case(1, cols, k, kind.dtype, layout="aligned")
    for seed in range(3):
        x = case.input("cpu")
        equals = torch.randperm(cols, generator=torch.Generator().manual_seed(seed))[: k // 2]
        x[0, equals] = x.max() if seed else x.median()
        _, indices = answer(sequences, kind.strategy, kind.config, case, x, seed=seed)
        assert torch.equal(indices, x.sort(dim=1, descending=True, stable=True).indices[:, :k])


def test_every_block_has_threads_that_send_to_it() -> None:
    with pytest.raises(ValueError, match="blocks=16 are too many for 32 threads"):
        ClusterListsConfig(16, 32, 1, 256)


def barriers(sequences: Sequences, config: BlockBucketsConfig, cols: int, k: int, dtype: str, seed: int) -> int:
    """That `block_buckets` takes for a random row, in order."""
    x = torch.randn(1, cols, generator=torch.Generator().manual_seed(seed)).to(getattr(torch, dtype))
    problem = Problem.contiguous(1, cols, k, dtype)
    program = registry.get("block_buckets").program(config, problem, H100)
    assert isinstance(program, KernelProgram)
    (launch,) = program.launches
    answer = {"values": torch.empty(1, k, dtype=x.dtype), "indices": torch.empty(1, k, dtype=torch.int64)}
    return sequences.emulator(launch.source)(1, {**scalars(problem), "x": x, **answer}).barriers


@pytest.mark.parametrize("share", [0.26, 0.4, 0.49, 0.6])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_random_rows_are_counted_once(dtype: str, share: float, sequences: Sequences) -> None:
    """By `block_buckets`, in order, whatever share is wanted: a few rows that are not keep a GPU waiting.

    Counting takes barriers.
    """
    config, rows = BlockBucketsConfig(256, 4, 1280), 40
    once = min(barriers(sequences, config, 1600, 100, dtype, seed) for seed in range(4))
    found = [barriers(sequences, config, 1600, int(share * 1600), dtype, seed) for seed in range(rows)]
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
    """By `block_buckets`: a guess is of as many elements as there are, though some threads have fewer, or none."""
    once = barriers(sequences, config, config.room // DTYPE_BYTES[dtype], k, dtype, 0)
    assert sum(barriers(sequences, config, cols, k, dtype, seed) != once for seed in range(12)) <= 1


@pytest.mark.parametrize("step", [2.0**-8, 1.0, 2.0**20], ids=["near", "apart", "far"])
@pytest.mark.parametrize("keys", [1, 3, 6, 12])
def test_crowds(keys: int, step: float, sequences: Sequences) -> None:
    """Of `block_buckets`, of one bucket and of several, alone and with few others among them."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(64, 8, 1280)
    generator = torch.Generator().manual_seed(keys)
    for seed, (cols, k, others) in enumerate([(2048, 1000, 0), (2041, 1024, 2), (2048, 700, 30)]):
        x = torch.randn(1, cols, generator=generator) - 10
        crowd = torch.randperm(cols, generator=generator)[:1020]
        x[0, crowd] = 8 + step * (torch.arange(1020) % keys)
        x[0, crowd[:others]] = 2e6 * torch.rand(others, generator=generator)
        case = Case(1, cols, k, "float32", layout="aligned")
        _, indices = answer(sequences, strategy, config, case, x, seed=seed)
        assert torch.equal(indices, x.sort(dim=1, descending=True, stable=True).indices[:, :k]), (cols, k, others)


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
    """Of `cluster_lists`: intervals of equals, or of neighbours that are divided twice, beside NaN and infinities."""
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
            assert torch.equal(indices, x.sort(dim=1, descending=True, stable=True).indices[:, :k]), (step, odd, k)


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("config", CLUSTERS, ids=str)
def test_cuts_that_are_hard_to_find(config: ClusterListsConfig, largest: bool, sequences: Sequences) -> None:
    """By `cluster_lists`, far from the blocks' own: steps of all sizes, one at the k-th, below lines of peaks."""
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
        assert torch.equal(indices, x.sort(dim=1, descending=largest, stable=True).indices[:, :k]), ratio


@pytest.mark.parametrize("peaks", [4, 9, 10])
def test_guesses_that_are_too_high(peaks: int, sequences: Sequences) -> None:
    """By `block_buckets`: fewer than wanted are the first of their threads' elements, and above all others."""
    strategy, config = registry.get("block_buckets"), BlockBucketsConfig(64, 4, 80)
    for seed, k in enumerate((20, 22, 60)):
        case = Case(1, config.room // 4, k, "float32", layout="aligned")
        x = case.input("cpu")
        x[0, [4 * lane + 128 * warp for warp in (0, 1) for lane in range(peaks)]] += 60
        found = answer(sequences, strategy, config, case, x, seed=seed)
        assert not case.problems_with(x, found), k


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
