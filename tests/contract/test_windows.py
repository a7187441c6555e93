"""Kernels that serve windows, in the emulator: every answer is the oracle's, in any form that is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autotopk import registry
from autotopk.asked import Asked, checked
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.oracle.selection import select
from autotopk.program import KernelProgram
from autotopk.runtime.selecting import view_of
from autotopk.strategies._lines import DTYPES
from autotopk.strategies.block_buckets import BlockBucketsConfig
from autotopk.strategies.cluster_lists import MOST_ALONE, ClusterListsConfig
from autotopk.strategies.load_maxima import MOST_HELD, LoadMaximaConfig
from autotopk.strategies.split_radix import HELD, SplitRadixConfig
from autotopk.strategy import Config, Strategy
from autotopk.told import ANY_ORDER, PLAIN, task_of, told
from tests.contract.emulated import PREEMPTIONS
from tests.emulator.sequences import Sequences
from tests.runtime.drawn_windows import dirty, int32, same, table_of, windows

pytestmark = pytest.mark.requires("g++")

CONFIGS: dict[str, list[Config]] = {
    "load_maxima": [
        LoadMaximaConfig(1, 64, 4, 128),
        LoadMaximaConfig(2, 32, 8, 64),
        LoadMaximaConfig(4, 64, 1, 128),
    ],
    "block_buckets": [BlockBucketsConfig(32, 8, 80), BlockBucketsConfig(64, 4, 160)],
    "cluster_lists": [
        ClusterListsConfig(1, 64, 4, 128),
        ClusterListsConfig(2, 32, 8, 128),
        ClusterListsConfig(4, 64, 1, 128),
        ClusterListsConfig(8, 256, 1, 2048),
    ],
    "split_radix": [SplitRadixConfig(1, 32, 1, 128), SplitRadixConfig(1, 64, 4, 256)],
}

MOST_LINES_ALONE = {"load_maxima": MOST_HELD, "cluster_lists": MOST_ALONE, "split_radix": HELD}
"""Of a thread, of windows that a block's registers hold whole."""


@dataclass(frozen=True)
class Which:
    """A kernel."""

    strategy: Strategy
    config: Config

    def __str__(self) -> str:
        return f"{self.strategy.name}-{'x'.join(map(str, vars(self.config).values()))}"


def holds_some(which: Which) -> bool:
    """Whether windows that are longer than a block holds are read another way."""
    return which.strategy.name == "split_radix" or getattr(which.config, "blocks", 1) > 1


WHICH = [Which(registry.get(name), config) for name, configs in CONFIGS.items() for config in configs]


def check(sequences: Sequences, which: Which, x: Tensor, k: int | Tensor, *, seed: int = 0, **asked: Any) -> None:
    """That results are the oracle's, all three or indices alone, in tensors that were garbage, perhaps in any order."""
    largest, in_order = asked.pop("largest", True), asked.pop("sorted", True)
    asked = {"return_raw": True, "return_values": True} | asked
    given = cast(Asked, asked)
    form = checked(x, k, -1, largest, in_order, given)
    task, view = task_of(x, k, form, given), view_of(x, form, largest)
    found = [one for one in (task.indices, task.positions, task.values) if one is not None]
    for one in found:
        one.fill_(77)
    assert view is not None
    problem = replace(view.problem, device_type="cuda")
    assert not which.strategy.reasons_unable(problem, H100)
    assert which.strategy.valid(which.config, problem, H100)
    program = which.strategy.program(which.config, problem, H100)
    assert isinstance(program, KernelProgram)
    preempt = PREEMPTIONS[seed % len(PREEMPTIONS)]
    given_to_kernel = told(x, task)
    flags = int(given_to_kernel["flags"])
    assert bool(flags & ANY_ORDER) is not in_order
    plain = len(found) == 1 and task.indices.dtype is torch.int32 and asked.get("page_table") is None
    assert bool(flags & PLAIN) is plain
    sequences.run(program, problem, {"x": x, **given_to_kernel}, seed=seed, preempt=preempt)
    expected = select(x, k, largest=largest, **asked)
    if not in_order:
        found, expected = by_positions(found), by_positions(expected)
    assert same(tuple(found), expected), (x.shape, k, in_order, asked)


def by_positions(answers: Sequence[Tensor]) -> list[Tensor]:
    """Every row in the order of its columns, which are the indices where these are alone; padding is alike."""
    order = answers[min(1, len(answers) - 1)].argsort(dim=1, stable=True)
    return [one.gather(1, order) for one in answers]


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("which", WHICH, ids=str)
def test_windows(which: Which, dtype: str, largest: bool, sequences: Sequences) -> None:
    """Of every kind, amid what would win."""
    kind = getattr(torch, dtype)
    for seed, name in enumerate(inputs.names_for(kind)):
        for rows, cols, k in ((10, 40, 7), (10, 250, 33), (10, 9, 12)):
            starts, ends = windows(rows, cols, k, seed)
            x = dirty(inputs.make(name, rows, cols, min(k, cols), kind, "cpu", seed), starts, ends, largest)
            for in_order in (True, False):
                check(sequences, which, x, k, largest=largest, sorted=in_order, seed=seed, starts=starts, ends=ends)


@pytest.mark.parametrize("form", [{}, {"relative": True}, {"offsets": int32(*range(-5, 35, 4))}], ids=str)
@pytest.mark.parametrize("which", WHICH, ids=str)
def test_indices_alone(which: Which, form: dict[str, Any], sequences: Sequences) -> None:
    """Of 32 bits, which are written once."""
    for seed, (cols, k) in enumerate(((40, 7), (250, 33), (9, 12))):
        starts, ends = windows(10, cols, k, seed)
        x = torch.randn(10, cols, generator=torch.Generator().manual_seed(seed))
        for window in ({"starts": starts, "ends": ends}, {"ends": ends}):
            alone = {"return_raw": False, "return_values": False, **window, **form}
            for in_order in (True, False):
                check(sequences, which, x, k, seed=seed, sorted=in_order, **alone)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("which", [one for one in WHICH if holds_some(one)], ids=str)
def test_windows_as_long_as_a_block_holds(which: Which, dtype: str, sequences: Sequences) -> None:
    """A little shorter, and longer by less than two lines, wherever they begin: held whole, or read another way."""
    kind = getattr(torch, dtype)
    config = cast(LoadMaximaConfig | ClusterListsConfig | SplitRadixConfig, which.config)
    most = MOST_LINES_ALONE[which.strategy.name]
    lines = most if isinstance(config, SplitRadixConfig) else min(config.lines, most)
    held = config.threads * lines * 16 // kind.itemsize
    x = torch.randn(1, held + 24, generator=torch.Generator().manual_seed(0)).to(kind).expand(40, -1).contiguous()
    starts = torch.arange(40, dtype=torch.int32) % 8
    ends = starts + held - 4 + torch.arange(40, dtype=torch.int32) // 8 * 4
    check(sequences, which, x, 40, sorted=False, starts=starts, ends=ends)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("which", WHICH, ids=str)
def test_windows_that_end_before_what_is_read_ahead(which: Which, dtype: str, sequences: Sequences) -> None:
    """Without `starts` and `rows` lines of a row are asked for before it is known where the window ends."""
    kind = getattr(torch, dtype)
    config = cast(BlockBucketsConfig | LoadMaximaConfig | ClusterListsConfig | SplitRadixConfig, which.config)
    of_threads = config.threads * 16 // kind.itemsize  # elements of a line of every thread
    cols = min(getattr(config, "room", 4 * of_threads * 16) // kind.itemsize, 4 * of_threads) - 5
    near = [edge + step for edge in (0, of_threads, 2 * of_threads, cols) for step in (-9, -1, 0, 1, 5)]
    ends, starts = int32(7, 33, 34, *near), torch.zeros(3 + len(near), dtype=torch.int32)
    for seed, (name, k) in enumerate((("random", 33), ("ties", 7), ("few_nan", 40), ("signed_zeros", 21))):
        largest = seed % 2 == 0
        values = inputs.make(name, len(ends), cols, k, kind, "cpu", seed)
        x = torch.full((len(ends), cols + 3), torch.nan if largest else -torch.inf, dtype=kind)
        x[:, seed : cols + seed] = dirty(values, starts, ends, largest)
        for in_order in (True, False):
            check(sequences, which, x[:, seed : cols + seed], k, seed=seed, largest=largest, sorted=in_order, ends=ends)


@pytest.mark.parametrize("in_order", [True, False], ids=["in_order", "any_order"])
@pytest.mark.parametrize("which", WHICH, ids=str)
def test_windows_near_zero(which: Which, in_order: bool, sequences: Sequences) -> None:
    """Whose k-th is about zero, below it, or the last but few, where intervals are those of numbers."""
    for seed, dtype in enumerate((torch.float32, torch.bfloat16, torch.float16)):
        x = torch.randn(6, 230, generator=torch.Generator().manual_seed(seed))
        x[3] *= 1e-3
        x[4, ::2] = 0.0
        x[5, 7], x[5, 9] = torch.inf, -torch.inf
        for k in (50, 40):
            ends = int32(2 * k + 3, 2 * k - 1, k + 2, k + 30, 230, 3 * k)
            check(sequences, which, x.to(dtype), k, seed=seed, largest=seed != 1, sorted=in_order, ends=ends)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("which", [one for one in WHICH if one.strategy.name == "split_radix"], ids=str)
def test_windows_long_enough_for_a_sample(which: Which, dtype: str, sequences: Sequences) -> None:
    """Of few among thousands, where a sample tells what may be among the best, or misleads."""
    kind = getattr(torch, dtype)
    for seed, name in enumerate(inputs.names_for(kind)):
        x = inputs.make(name, 4, 6000, 9, kind, "cpu", seed)
        starts, ends = int32(0, 3, 1000, 5), int32(6000, 5999, 5000, 6)
        dirtied = dirty(x, starts, ends, largest=True)
        check(sequences, which, dirtied, 9, sorted=bool(seed % 2), seed=seed, starts=starts, ends=ends)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_form(sequences: Sequences, data: st.DataObject) -> None:
    which = data.draw(st.sampled_from(WHICH))
    height, cols, next_n = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 250)), data.draw(st.integers(1, 3))
    groups = data.draw(st.integers(1, 3))
    count = groups * next_n

    def numbers(size: int, least: int, most: int) -> Tensor:
        return int32(*data.draw(st.lists(st.integers(least, most), min_size=size, max_size=size)))

    def maybe(name: str, draw: Any) -> None:
        if data.draw(st.booleans(), label=name):
            asked[name] = draw()

    asked: dict[str, Any] = {
        "rows": numbers(count, -1, height),
        "next_n": next_n,
        "largest": data.draw(st.booleans()),
        "sorted": data.draw(st.booleans()),
        "index_dtype": data.draw(st.sampled_from([torch.int32, torch.int64])),
        "fill": data.draw(st.sampled_from([-1, 0, 99])),
    }
    sizes = st.sampled_from([groups, count])
    maybe("starts", lambda: numbers(data.draw(sizes), -5, cols + 5))
    ends = data.draw(st.sampled_from(["ends", "lengths", ""]))
    if ends:
        asked[ends] = numbers(data.draw(sizes), -5, 3 * cols)
    if ends == "lengths":
        asked["compress_ratio"] = data.draw(st.integers(1, 3))
    maybe("relative", lambda: True)
    if data.draw(st.booleans()):
        batch, pages = data.draw(sizes), data.draw(st.integers(1, 9))
        asked["page_table"] = table_of(batch, pages, 0)
        asked["page_size"] = data.draw(st.sampled_from([1, 16, 64]))
        maybe("row_to_batch", lambda: numbers(count, -1, batch))
        maybe("page_table_starts", lambda: numbers(count, -2, pages))
    else:
        maybe("offsets", lambda: numbers(count, -1000, 1000))
    k: int | Tensor = data.draw(st.integers(1, 40))
    if data.draw(st.booleans()):
        k, asked["max_k"] = numbers(count, -1, 45), k
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    x = torch.randn(height, cols + 3).mul(3).to(dtype)[:, data.draw(st.integers(0, 3)) :][:, :cols]
    check(sequences, which, x, k, seed=data.draw(st.integers(0, 99)), **asked)
