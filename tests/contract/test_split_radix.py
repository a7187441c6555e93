"""split_radix with lists that overflow, parts shorter than k, and samples that mislead, in the emulator."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk import registry
from autotopk.compilers.cuda import CudaSource
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.problem import Problem
from autotopk.program import KernelProgram
from autotopk.strategies.split_radix import SplitRadixConfig
from tests.contract.cases import LAYOUTS, ORDERS, Case
from tests.contract.drawn import draw_values
from tests.contract.emulated import answer
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")


@dataclass(frozen=True)
class Kind:
    """A dtype, and what the kernels are compiled for."""

    dtype: str
    config: SplitRadixConfig

    def __str__(self) -> str:
        c = self.config
        return f"{self.dtype}-{c.blocks}x{c.threads}x{c.loads}-c{c.capacity}-{c.finish}"


KINDS = [
    Kind("float32", SplitRadixConfig(3, 64, 1, 64, "last")),
    Kind("float32", SplitRadixConfig(5, 32, 2, 128, "launch")),
    Kind("float64", SplitRadixConfig(2, 64, 4, 64, "last")),
    Kind("bfloat16", SplitRadixConfig(4, 32, 4, 128, "last")),
    Kind("int8", SplitRadixConfig(3, 64, 2, 256, "last")),
    Kind("int64", SplitRadixConfig(1, 64, 1, 64, "last")),
]


@pytest.fixture(scope="module")
def sequences(emulated_kernels: Path) -> Sequences:
    return Sequences(emulated_kernels)


def cases(kind: Kind) -> Iterator[Case]:
    layouts, orders = itertools.cycle(LAYOUTS), itertools.cycle(ORDERS)
    most = kind.config.capacity // 2
    for name in inputs.names_for(getattr(torch, kind.dtype)):
        for cols in (1, 37, 700, 3001):
            for k in sorted({1, min(cols, most // 2), min(cols, most)}):
                largest, order = next(orders)
                yield Case(2, cols, k, kind.dtype, name, largest, order, next(layouts))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_answers_right(kind: Kind, sequences: Sequences) -> None:
    strategy = registry.get("split_radix")
    for seed, case in enumerate(cases(kind)):
        x = case.input("cpu")
        found = answer(sequences, strategy, kind.config, case, x, indices_only=seed % 7 == 0, seed=seed)
        assert not case.problems_with(x, found), case


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_answers_right_whatever_is_asked(sequences: Sequences, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS[:2]))
    cols = data.draw(st.integers(1, 2000))
    case = Case(
        rows=data.draw(st.integers(1, 3)),
        cols=cols,
        k=data.draw(st.integers(1, min(cols, kind.config.capacity // 2))),
        dtype=kind.dtype,
        largest=data.draw(st.booleans()),
        layout=data.draw(st.sampled_from(LAYOUTS)),
    )
    x = draw_values(data, case.input("cpu"))
    seed = data.draw(st.integers(0, 1000))
    found = answer(sequences, registry.get("split_radix"), kind.config, case, x, seed=seed)
    assert not case.problems_with(x, found), case


@pytest.mark.parametrize("kind", KINDS[:2], ids=str)
@pytest.mark.parametrize("name", ["all_equal", "ties", "ten_values", "all_but_k_minus_1_equal", "random"])
def test_of_equal_values_the_first_are_chosen_on_every_run(kind: Kind, name: str, sequences: Sequences) -> None:
    case = Case(2, 2500, 30, kind.dtype, name)
    x = case.input("cpu")
    expected = x.sort(dim=1, descending=True, stable=True).indices[:, :30]
    for seed in range(6):
        _, indices = answer(sequences, registry.get("split_radix"), kind.config, case, x, seed=seed)
        assert torch.equal(indices, expected)


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_sample_of_all_the_largest_costs_a_second_read(blocks: int, sequences: Sequences) -> None:
    """Its bound lets fewer than k pass: eight aligned pairs of loads are sampled, and nothing else is large."""
    case = Case(1, 816, 30)
    x = case.input("cpu")
    assert x.data_ptr() % 32 == 0
    pairs = x[:, : 816 // blocks].view(-1, 8)
    pairs[torch.arange(8) * len(pairs) // 8] += 1000
    config = SplitRadixConfig(blocks, 64, 1, 64, "last")
    found = answer(sequences, registry.get("split_radix"), config, case, x)
    assert not case.problems_with(x, found)


@pytest.mark.requires("nvcc")
@pytest.mark.parametrize("arch", [80, 89, 90, 100, 120])
@pytest.mark.parametrize("finish", ["launch", "last"])
def test_compiles_without_spills(arch: int, finish: str) -> None:
    strategy, problem = registry.get("split_radix"), Problem.contiguous(1, 10_000_000, 100)
    program = strategy.program(SplitRadixConfig(132, 1024, 4, 4096, finish), problem, H100)
    assert isinstance(program, KernelProgram)
    for launch in program.launches:
        assert isinstance(launch.source, CudaSource)
        kernel = launch.source.compile(arch)
        assert kernel.registers <= 64
        assert kernel.spill_bytes <= (0 if arch >= 90 else 40)
