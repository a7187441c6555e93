"""whole_rows in the emulator: parts full and not, many rows to a part and parts to a row, lines at every alignment."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autotopk import registry
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.packs import ARCHS
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.program import Extent, KernelProgram
from autotopk.strategies.whole_rows import WholeRowsConfig
from tests.contract.cases import GUARD, INTEGERS, LAYOUTS, Case
from tests.contract.drawn import draw_values
from tests.contract.emulated import PREEMPTIONS, problem_of
from tests.emulator.sequences import Sequences

STRATEGY = registry.get("whole_rows")
CONFIGS = (WholeRowsConfig(32, 1), WholeRowsConfig(32, 4))


@dataclass(frozen=True)
class Kind:
    """A dtype, and what its kernel is compiled for."""

    dtype: str
    config: WholeRowsConfig

    def __str__(self) -> str:
        return f"{self.dtype}-{self.config.loads}"

    @property
    def part(self) -> int:
        """Elements of a block."""
        return self.config.threads * self.config.loads * 16 // DTYPE_BYTES[self.dtype]


KINDS = [Kind(dtype, config) for dtype in DTYPE_BYTES for config in CONFIGS]


def check(
    sequences: Sequences,
    kind: Kind,
    case: Case,
    x: Tensor,
    *,
    indices_only: bool = False,
    skew: int = 0,
    blocks: int = 0,
    seed: int = 0,
) -> None:
    """Every bit of the answer, in outputs that begin `skew` elements behind an aligned address, by so many blocks."""
    problem = problem_of(case, x, indices_only=indices_only)
    assert not STRATEGY.reasons_unable(problem, H100)
    program = STRATEGY.program(kind.config, problem, H100)
    assert isinstance(program, KernelProgram)
    if blocks:
        program = replace(program, launches=(replace(program.launches[0], grid=(Extent(blocks),)),))
    count = case.rows * case.cols
    values = torch.full((count + 2 * GUARD,), 77, dtype=x.dtype)
    indices = torch.full((count + 2 * GUARD,), -7, dtype=torch.int32 if indices_only else torch.int64)
    inner = slice(GUARD + skew, GUARD + skew + count)
    tensors = {"x": x, "values": 0 if indices_only else values[inner], "indices": indices[inner]}
    sequences.run(program, problem, tensors, seed=seed, preempt=PREEMPTIONS[seed % len(PREEMPTIONS)])
    bits = INTEGERS[x.element_size()]
    wanted_values, wanted_indices = torch.full_like(values, 77), torch.full_like(indices, -7)
    wanted_indices[inner] = torch.arange(case.cols, dtype=indices.dtype).repeat(case.rows)
    if not indices_only:
        wanted_values[inner] = x.reshape(-1)
    assert torch.equal(indices, wanted_indices), case
    assert torch.equal(values.view(bits), wanted_values.view(bits)), case


def cases(kind: Kind) -> Iterator[Case]:
    """Every input, of sizes around a part and a line in turns, at every layout."""
    part, line = kind.part, 16 // DTYPE_BYTES[kind.dtype]
    sizes = [(1, 1), (3, 1), (2 * part + 1, 1), (part, 2), (97, line), (97, line + 1), (41, 37), (3, 700)]
    sizes += [(1, part - 1), (1, part), (1, part + 1), (1, 3 * part + 5), (2, part), (2, part + 3)]
    names = itertools.cycle(inputs.names_for(getattr(torch, kind.dtype)))
    for layout, (rows, cols) in itertools.product(LAYOUTS, sizes):
        yield Case(rows, cols, cols, kind.dtype, next(names), rows % 2 == 0, sorted=False, layout=layout)


@pytest.mark.requires("g++")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_answers_right(kind: Kind, sequences: Sequences) -> None:
    for seed, case in enumerate(cases(kind)):
        check(sequences, kind, case, case.input("cpu"), indices_only=seed % 4 == 3, seed=seed)


@pytest.mark.requires("g++")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_outputs_begin_anywhere(kind: Kind, sequences: Sequences) -> None:
    for skew, (rows, cols) in itertools.product((1, 2, 3, 15), ((1, 1), (2, 3), (40, 33), (1, 2 * kind.part))):
        case = Case(rows, cols, cols, kind.dtype, sorted=False, layout=LAYOUTS[skew % 3])
        check(sequences, kind, case, case.input("cpu"), skew=skew, seed=skew)
        check(sequences, kind, case, case.input("cpu"), skew=skew, seed=skew, indices_only=True)


@pytest.mark.requires("g++")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_blocks_go_on_to_the_next_part(kind: Kind, sequences: Sequences) -> None:
    case = Case(3, 2 * kind.part + 7, 2 * kind.part + 7, kind.dtype, sorted=False, layout="padded")
    for blocks in (1, 2, 9):
        check(sequences, kind, case, case.input("cpu"), blocks=blocks, seed=blocks)


@pytest.mark.requires("g++")
def test_rows_far_apart(sequences: Sequences) -> None:
    """Beyond what 32 bits count."""
    far = (1 << 32) + 16
    x = torch.empty(2 * far + 37, dtype=torch.int8).as_strided((3, 37), (far, 1))  # memory that nobody touches is free
    x.copy_(torch.arange(3 * 37).view(3, 37))
    check(sequences, Kind("int8", CONFIGS[0]), Case(3, 37, 37, "int8", sorted=False), x)


@pytest.mark.requires("g++")
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_answers_right_whatever_is_asked(sequences: Sequences, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([kind for kind in KINDS if kind.dtype == "float32"]))
    rows, cols = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 300))
    case = Case(rows, cols, cols, sorted=False, layout=data.draw(st.sampled_from(LAYOUTS)))
    x = draw_values(data, case.input("cpu"))
    skew, blocks, seed = (data.draw(st.integers(0, most)) for most in (3, 3, 1000))
    check(sequences, kind, case, x, indices_only=data.draw(st.booleans()), skew=skew, blocks=blocks, seed=seed)


def whole(rows: int, cols: int, dtype: str = "float32") -> Problem:
    return Problem.contiguous(rows, cols, cols, dtype, sorted=False)


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
@pytest.mark.parametrize(
    "size", [(1, 100_000_000), (65_536, 16), (65_536, 1), (1 << 20, 1 << 14), (3, 7), (1000, 4097)], ids=str
)
def test_blocks_follow_from_all_elements(size: tuple[int, int], dtype: str) -> None:
    """As many as there are parts, or some more; of one program for any number of rows."""
    problem, (rows, cols) = whole(*size, dtype), size
    for config in STRATEGY.lattice(problem, H100):
        program = STRATEGY.program(config, problem, H100)
        assert isinstance(program, KernelProgram)
        blocks, _, _ = program.launches[0].blocks(problem)
        parts = -(-rows * cols // Kind(dtype, config).part)
        assert parts <= blocks <= parts * 9 / 8 + 9
        assert program == STRATEGY.program(config, whole(2 * rows, cols, dtype), H100)


def test_parts_are_large_where_every_processor_has_one_and_few_have_many() -> None:
    ladder = [STRATEGY.ladder(whole(*size), H100) for size in ((16, 1000), (129, 5712), (4096, 8192))]
    assert [one[0].loads for one in ladder] == [1, 4, 1]
    assert ladder[0] == ladder[1][::-1] == ladder[2]


def test_serves_whole_rows_in_no_order_alone() -> None:
    problem = whole(64, 100)
    assert not STRATEGY.reasons_unable(problem, H100)
    assert not STRATEGY.reasons_unable(replace(problem, largest=False, stable=True), H100)
    assert not STRATEGY.reasons_unable(Problem.contiguous(64, 1, 1), H100)
    assert STRATEGY.reasons_unable(replace(problem, k=99), H100) == ["k=99 is not all of 100"]
    assert STRATEGY.reasons_unable(replace(problem, sorted=True), H100) == ["puts none of k=100 in order"]
    assert STRATEGY.reasons_unable(whole(1, 1 << 31), H100) == ["rows of 2147483648 are not shorter than 2147483648"]
    (reason,) = STRATEGY.reasons_unable(whole(1 << 20, 1 << 19), H100)
    assert reason == "1048576 rows of 524288 are more than 274877906944 elements"


@pytest.mark.requires("nvcc")
@pytest.mark.parametrize("arch", [80, 90])
def test_compiles_without_spills(arch: int) -> None:
    assert arch in ARCHS
    for source in STRATEGY.rungs(arch):
        kernel = source.compile(arch)
        assert kernel.spill_bytes == 0
        assert kernel.registers <= 48  # five blocks of 256 threads a processor
