"""block_buckets with lists that overflow, clusters of every size, and rows at every alignment, in the emulator."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk import registry
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES
from autotopk.strategies.block_buckets import BlockBucketsConfig
from tests.contract.cases import LAYOUTS, ORDERS, Case
from tests.contract.drawn import draw_values
from tests.contract.emulated import answer
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")


@dataclass(frozen=True)
class Kind:
    """A dtype, and what the kernels are compiled for."""

    dtype: str
    config: BlockBucketsConfig

    def __str__(self) -> str:
        c = self.config
        return f"{self.dtype}-{c.threads}x{c.lines}-c{c.capacity}"

    @property
    def room(self) -> int:
        """Elements of the longest row."""
        return self.config.room // DTYPE_BYTES[self.dtype]


KINDS = [
    Kind("float32", BlockBucketsConfig(64, 4, 80)),
    Kind("float32", BlockBucketsConfig(32, 8, 160)),
    Kind("float32", BlockBucketsConfig(128, 1, 320)),
    Kind("bfloat16", BlockBucketsConfig(32, 4, 160)),
    Kind("float16", BlockBucketsConfig(64, 2, 80)),
]


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
    strategy = registry.get("block_buckets")
    for seed, case in enumerate(cases(kind)):
        x = case.input("cpu")
        found = answer(sequences, strategy, kind.config, case, x, indices_only=seed % 7 == 0, seed=seed)
        assert not case.problems_with(x, found), case


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_answers_right_whatever_is_asked(sequences: Sequences, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS[:2]))
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
    found = answer(sequences, registry.get("block_buckets"), kind.config, case, x, seed=seed)
    assert not case.problems_with(x, found), case


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_stable(kind: Kind, largest: bool, sequences: Sequences) -> None:
    """-0 and +0 are equal, and all NaN."""
    strategy = registry.get("block_buckets")
    assert strategy.features.stable == strategy.features.dtypes
    for seed, name in enumerate(inputs.names_for(getattr(torch, kind.dtype))):
        case = Case(2, kind.room - 3, 30, kind.dtype, name, largest, layout="padded")
        x = case.input("cpu")
        _, indices = answer(sequences, strategy, kind.config, case, x, seed=seed)
        assert torch.equal(indices, x.sort(dim=1, descending=largest, stable=True).indices[:, :30]), name
