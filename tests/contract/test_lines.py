"""Families that read rows by lines, with lists that overflow, clusters of every size, and rows at every alignment."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotopk import registry
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES
from autotopk.strategies.block_buckets import BlockBucketsConfig
from autotopk.strategies.cluster_lists import ClusterListsConfig
from autotopk.strategies.load_maxima import LoadMaximaConfig
from autotopk.strategies.stream_maxima import StreamMaximaConfig
from autotopk.strategy import Strategy
from tests.contract.cases import LAYOUTS, ORDERS, Case, best_columns
from tests.contract.drawn import draw_values
from tests.contract.emulated import answer, problem_of, problems_of_all
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
    Kind("cluster_lists", "float32", ClusterListsConfig(1, 256, 2, 256)),
    Kind("cluster_lists", "float32", ClusterListsConfig(2, 32, 8, 64)),
    Kind("cluster_lists", "float32", ClusterListsConfig(4, 64, 2, 256)),
    Kind("cluster_lists", "bfloat16", ClusterListsConfig(8, 32, 1, 128)),
    Kind("cluster_lists", "float16", ClusterListsConfig(2, 64, 1, 128)),
    Kind("cluster_lists", "float32", ClusterListsConfig(2, 128, 1, 64)),
    Kind("cluster_lists", "float32", ClusterListsConfig(8, 256, 1, 2048)),
    Kind("cluster_lists", "bfloat16", ClusterListsConfig(8, 256, 2, 2048)),
]


SPACIOUS = [kind for kind in KINDS if kind.dtype == "float32" and kind.config.lines > 1]
"""For what hypothesis draws."""


def cases(kind: Kind) -> Iterator[Case]:
    layouts, orders = itertools.cycle(LAYOUTS), itertools.cycle(ORDERS)
    most = kind.config.capacity * 4 // 5
    for name in inputs.names_for(getattr(torch, kind.dtype)):
        for cols in (1, 37, kind.room // 2, kind.room):
            for k in sorted({1, min(cols, 7), min(cols, most // 2), min(cols, most)}):
                largest, order = next(orders)
                case = Case(2, cols, k, kind.dtype, name, largest, order, next(layouts))
                if is_valid(kind, case, case.input("cpu")):
                    yield case


def is_valid(kind: Kind, case: Case, x: torch.Tensor) -> bool:
    """What a configuration is made for."""
    return kind.strategy.valid(kind.config, problem_of(case, x), H100)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_answers_right(kind: Kind, sequences: Sequences) -> None:
    for case, problems in problems_of_all(sequences, kind.strategy, kind.config, cases(kind)):
        assert not problems, case


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
    x = case.input("cpu")
    assume(is_valid(kind, case, x))
    x = draw_values(data, x)
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
        assert torch.equal(indices, best_columns(x, 30, largest=largest)), name


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
        assert torch.equal(indices, best_columns(x, k))
