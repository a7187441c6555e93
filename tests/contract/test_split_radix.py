"""split_radix with lists that overflow, parts shorter than k, and samples that mislead, in the emulator."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autotopk import registry
from autotopk.compilers.cuda import CudaSource
from autotopk.device import H100, Device
from autotopk.oracle import inputs
from autotopk.problem import ANSWERS, DTYPE_BYTES, Problem
from autotopk.program import MAX_SCRATCH_BYTES, KernelProgram
from autotopk.strategies import split_radix
from autotopk.strategies.split_radix import MAX_COLS, MIN_COLS, SplitRadixConfig
from tests.contract.cases import LAYOUTS, ORDERS, Case, best_columns
from tests.contract.drawn import draw_values
from tests.contract.emulated import Kind, answer, problems_of_all
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")


KINDS = [
    Kind("float32", SplitRadixConfig(3, 64, 1, 64)),
    Kind("float32", SplitRadixConfig(5, 32, 2, 128)),
    Kind("float64", SplitRadixConfig(2, 64, 4, 64)),
    Kind("bfloat16", SplitRadixConfig(4, 32, 4, 128)),
    Kind("float16", SplitRadixConfig(4, 32, 4, 128)),
    Kind("int8", SplitRadixConfig(3, 64, 2, 256)),
    Kind("uint8", SplitRadixConfig(3, 64, 2, 256)),
    Kind("int64", SplitRadixConfig(1, 64, 1, 64)),
]


def cases(kind: Kind) -> Iterator[Case]:
    layouts, orders = itertools.cycle(LAYOUTS), itertools.cycle(ORDERS)
    most = kind.config.capacity // 2
    for name in inputs.names_for(getattr(torch, kind.dtype)):
        for cols in (1, 37, 700, 3001):
            for k in sorted({1, min(cols, most // 2), min(cols, most)}):
                largest, order = next(orders)
                yield Case(2, cols, k, kind.dtype, name, largest, order, next(layouts))


ASKED = [pytest.param(one, marks=[pytest.mark.slow] if one.dtype in ("float16", "uint8") else []) for one in KINDS]
"""Those of their sizes show the same, and `test_emulated_cuda` asks every dtype."""


@pytest.mark.parametrize("kind", ASKED, ids=str)
def test_answers_right(kind: Kind, sequences: Sequences) -> None:
    strategy = registry.get("split_radix")
    for case, problems in problems_of_all(sequences, strategy, kind.config, cases(kind)):
        assert not problems, case


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
    expected = best_columns(x, 30)
    for seed in range(6):
        _, indices = answer(sequences, registry.get("split_radix"), kind.config, case, x, seed=seed)
        assert torch.equal(indices, expected)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_is_stable(kind: Kind, largest: bool, sequences: Sequences) -> None:
    """As the family declares, in any order that is asked for; zeros of both signs are equal, and all NaN."""
    strategy = registry.get("split_radix")
    assert kind.dtype in strategy.features.stable
    floats = getattr(torch, kind.dtype).is_floating_point
    names = (
        "ties",
        "ten_values",
        "all_equal",
        "extremes",
        "all_but_k_minus_1_equal",
        *["signed_zeros", "nan", "all_nan", "few_nan"] * floats,
    )
    for seed, name in enumerate(names):
        cols = 500 if name == "signed_zeros" else 2500  # so few that 1 and -1 are not all that is chosen
        case = Case(2, cols, 30, kind.dtype, name, largest, sorted=seed % 2 == 0)
        x = case.input("cpu")
        expected = best_columns(x, 30, largest=largest)
        _, indices = answer(sequences, strategy, kind.config, case, x, seed=seed)
        assert torch.equal(indices, expected), case


@pytest.mark.parametrize("step", [1000, -1000], ids=["fewer than k pass", "most pass"])
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_sample_that_misleads_costs_a_second_read(blocks: int, step: int, sequences: Sequences) -> None:
    """What is looked at is all of the largest, or of the smallest."""
    case = Case(1, 20_000, 30)
    x = case.input("cpu")
    x[:, seen_of(x, case.k, parts=blocks)] += step
    found = answer(sequences, registry.get("split_radix"), SplitRadixConfig(blocks, 64, 1, 128), case, x)
    assert not case.problems_with(x, found)


def test_of_equal_values_the_first_are_chosen_whichever_part_came_first(sequences: Sequences) -> None:
    """Where nothing is larger, and the sample saw none of them: parts hand on more than the list has room for."""
    case = Case(1, 20_000, 60)
    for seed in range(8):
        x = case.input("cpu")
        seen = seen_of(x, case.k, parts=5)
        kept = x[:, seen]
        x.fill_(torch.nan).index_copy_(1, seen, kept)  # in place: the sample looks elsewhere at another address
        expected = best_columns(x, case.k)
        _, indices = answer(sequences, registry.get("split_radix"), SplitRadixConfig(5, 32, 2, 128), case, x, seed=seed)
        assert torch.equal(indices, expected)


def assert_first_in_order(sequences: Sequences, kind: Kind, case: Case, x: torch.Tensor, seed: int) -> None:
    """What a stable sort puts first, in its order."""
    keys = torch.where(x.isnan(), torch.nan, x) if x.is_floating_point() else x
    expected = best_columns(keys, case.k, largest=case.largest)
    _, indices = answer(sequences, registry.get("split_radix"), kind.config, case, x, seed=seed)
    assert torch.equal(indices, expected), case


LONGER = [
    Kind("float32", SplitRadixConfig(1, 64, 1, 256)),
    Kind("float32", SplitRadixConfig(3, 64, 2, 512)),
    *KINDS[2:3],
]


@pytest.mark.parametrize("kind", LONGER, ids=str)
@pytest.mark.parametrize("layout", ["aligned", "padded"])
def test_reads_on_where_the_list_was_full(kind: Kind, layout: str, sequences: Sequences) -> None:
    """Everything passes, later elements are better, and the best are at the ends, where no whole load is."""
    for seed in range(6):
        case = Case(2, 2999, kind.config.capacity // 4, kind.dtype, "ascending", layout=layout)
        x = case.input("cpu")
        x[:, :2] = 7
        x[:, -2:] = 7
        x[:, 1500 + seed : 1500 + seed + case.k] = 3
        assert_first_in_order(sequences, kind, case, x, seed)


@pytest.mark.parametrize("kind", LONGER, ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_crowds_of_several_keys_are_put_in_order(kind: Kind, largest: bool, sequences: Sequences) -> None:
    """NaN, infinities, equals above the cut's, and ties of the cut: each has intervals of its own."""
    most = kind.config.capacity // 2
    for seed, k in enumerate(sorted({most // 8, most // 4, most // 2, most})):
        case = Case(2, 2500, k, kind.dtype, largest=largest)
        x = torch.ones_like(case.input("cpu"))
        sign, places = 1 if largest else -1, torch.randperm(2500, generator=torch.Generator().manual_seed(seed))
        x[:, places[: most // 3]] = 2.0 * sign
        x[:, places[most // 3 : most // 2]] = torch.inf * sign
        x[:, places[most // 2 : most // 2 + 9]] = torch.nan
        x[:, places[most // 2 + 9 : most // 2 + 20]] = 3.0 * sign + torch.arange(11, dtype=x.dtype) / 64
        assert_first_in_order(sequences, kind, case, x, seed)


@pytest.mark.parametrize("kind", LONGER, ids=str)
def test_keys_far_from_the_cut_are_told_apart(kind: Kind, sequences: Sequences) -> None:
    """Of all that passes, most is in one step, which is divided; and then what is equal there is not."""
    for seed, levels in enumerate((3, 50, 5000)):
        case = Case(2, 2500, kind.config.capacity // 4, kind.dtype)
        x = case.input("cpu")
        peaks = torch.randint(levels, x.shape, generator=torch.Generator().manual_seed(seed)).to(x.dtype) / 4096
        x = torch.where(torch.arange(x.shape[1]) % 3 == seed % 3, 60 + peaks, x)
        assert_first_in_order(sequences, kind, case, x, seed)


def assert_sampled_by(*lines: str) -> None:
    """That sample.cuh says what tests say in another language."""
    text = (Path(split_radix.__file__).parent / "sample.cuh").read_text()
    for line in lines:
        assert line in text


def seen_of(x: torch.Tensor, k: int, *, parts: int) -> torch.Tensor:
    """Columns that the sample of a tensor of one row looks at, where it lies; int64."""
    line = x.data_ptr() // 128 * 128
    skew = (x.data_ptr() - line) // x.element_size()
    return torch.tensor(sorted(looked_at(x.shape[1], k, x.dtype, skew, parts=parts, address=line)))


def looked_at(cols: int, k: int, dtype: torch.dtype, skew: int, *, parts: int, address: int = 0) -> set[int]:
    """Columns of the loads in `Places` of sample.cuh, for a row that begins so many elements behind a load.

    The line that it begins in has an address.
    """
    vector, mask = 16 // dtype.itemsize, (1 << 32) - 1
    first = -(-skew // vector)
    loads, most = (cols + skew) // vector - first, cols // (vector * k)
    if loads < 8:
        return set()
    load_bits = max(most.bit_length() - 1, 0) if most < 8 else 3
    time_bits = min((cols // (1 << 19) | 1).bit_length() - 1, 2)
    piece_bits = min(loads // 8, 128).bit_length() - 1
    together = min(load_bits, 2) if parts == 1 else 0
    bits, places, found = piece_bits + load_bits + time_bits - together, loads >> together, set()
    for time, number, piece in itertools.product(range(1 << time_bits), range(1 << load_bits), range(1 << piece_bits)):
        stretch = (((time << load_bits | number) >> together) << piece_bits) + piece
        bits_of = (stretch + 1 + (address >> 7)) * 0x9E3779B1 & mask
        bits_of = (bits_of ^ bits_of >> 15) * 0x2C1B3C6D & mask
        begin = (stretch << (32 - bits) & mask) * places >> 32
        place = begin + ((bits_of ^ bits_of >> 13) * (places >> bits) >> 32)
        position = first + (place << together) + (number & ((1 << together) - 1))
        found |= {position * vector + e - skew for e in range(vector)}
    return found


@pytest.mark.parametrize(("cols", "k"), [(31, 1), (257, 9), (1000, 3), (40_001, 700), (50_000, 5), (5_000_000, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_named_inputs_know_where_the_sample_looks(cols: int, k: int, dtype: torch.dtype) -> None:
    vector, rows = 16 // dtype.itemsize, 3 if cols < 100_000 else 1
    x = inputs.make("hashed_peaks", rows, cols, k, dtype, "cpu")
    for row in range(rows):
        expected = set[int]().union(*(looked_at(cols, k, dtype, row * cols % vector, parts=one) for one in (1, 2)))
        assert set((x[row] > 30).nonzero().flatten().tolist()) == expected


def test_where_the_sample_looks_is_as_before() -> None:
    """Else the named inputs are to follow it."""
    assert_sampled_by(
        "ROOM < 128 ? ROOM : 128;",
        "PIECE_BITS = 3;",
        "MOST_TIME_BITS = 2;",
        "SPARED = 1 << 19;",
        "unsigned hash = (stretch + seed) * 0x9E3779B1u;",
        "hash = (hash ^ hash >> 15) * 0x2C1B3C6Du;",
        "const unsigned place = __umulhi(stretch << (31 - bits) << 1, all) + __umulhi(hash ^ hash >> 13, all >> bits);",
    )


def gpus() -> list[Device]:
    """Of every size of shared memory there is."""
    kinds = [((8, 0), 163), ((8, 6), 99), ((8, 7), 163), ((8, 9), 99), ((9, 0), 227), ((10, 0), 227), ((12, 0), 99)]
    return [
        Device("cuda", f"GPU {capability}", capability, processors, 40 << 20, 80, shared_kib << 10)
        for capability, shared_kib in kinds
        for processors in (16, 132)
    ]


def problems(device: Device) -> Iterator[Problem]:
    """Corners of what is served, and some between."""
    rows, cols = (1, device.processors, 70_000, (1 << 31) - 1), (MIN_COLS, 1_000_001, MAX_COLS)
    corners = itertools.product(rows, cols, (1, 64, 1024, 2048, 2049, 4096, 8192), DTYPE_BYTES)
    rng = random.Random(device.arch)
    between = (
        (int(2 ** rng.uniform(0, 31)), int(2 ** rng.uniform(16, 31)), int(2 ** rng.uniform(0, 13.1)), dtype)
        for dtype in DTYPE_BYTES
        for _ in range(30)
    )
    for i, (one, n, k, dtype) in enumerate(itertools.chain(corners, between)):
        largest, order = ORDERS[i % 4]
        yield Problem.contiguous(one, n, k, dtype, largest=largest, sorted=order, answer=ANSWERS[i % 3 % 2])


@pytest.mark.parametrize("device", gpus(), ids=lambda device: f"{device.arch}-{device.processors}")
def test_the_ladder_serves_everything(device: Device) -> None:
    strategy = registry.get("split_radix")
    rungs, served = set(strategy.rungs(device.arch)), 0
    for problem in problems(device):
        if strategy.reasons_unable(problem, device):
            continue
        ladder = strategy.ladder(problem, device)
        assert ladder, problem
        assert len(set(ladder)) == len(ladder)
        assert strategy.heuristic(problem, device) in (None, ladder[0])
        for config in ladder:
            assert strategy.valid(config, problem, device), (problem, config)
            program = strategy.program(config, problem, device)
            assert {*program.sources} <= rungs, (problem, config)
            assert program.scratch_bytes(problem) <= MAX_SCRATCH_BYTES
        served += 1
    assert served > 200


def test_the_ladder_is_short() -> None:
    rungs = list(registry.get("split_radix").rungs(90))
    assert len(set(rungs)) == len(rungs) <= 34


def test_one_block_a_row_takes_no_scratch() -> None:
    strategy, problem = registry.get("split_radix"), Problem.contiguous(70_000, 100_000, 4096)
    program = strategy.program(SplitRadixConfig(1, 1024, 4, 8192), problem, H100)
    assert isinstance(program, KernelProgram)
    assert program.scratch_bytes(problem) == 0
    assert not any(one.zeroed for one in program.scratch)


@pytest.mark.requires("nvcc")
@pytest.mark.parametrize("arch", [80, 89, 90, 100, 120])
def test_compiles_without_spills(arch: int) -> None:
    strategy, problem = registry.get("split_radix"), Problem.contiguous(1, 10_000_000, 100)
    program = strategy.program(SplitRadixConfig(132, 1024, 4, 4096), problem, H100)
    assert isinstance(program, KernelProgram)
    for launch in program.launches:
        assert isinstance(launch.source, CudaSource)
        kernel = launch.source.compile(arch)
        assert kernel.registers <= 64
        assert kernel.spill_bytes <= 256, "more than what is rare needs (tests/compilers/test_spills.py)"
