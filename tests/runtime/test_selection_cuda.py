"""The selector on a GPU: captured in graphs that follow new windows and k, on two streams, and without waiting."""

from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.oracle.selection import problems_with_selection
from tests.runtime.drawn_windows import dirty, table_of, windows
from tests.runtime.same import unwarned

pytestmark = [unwarned, pytest.mark.gpu]

ROWS, COLS, K = 12, 400, 24
ALL: dict[str, Any] = {"return_raw": True, "return_values": True}


def of(seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Scores, windows, a k and a batch for every row; on the CPU."""
    starts, ends = windows(ROWS, COLS, K, seed)
    generator = torch.Generator().manual_seed(seed)
    return {
        "input": dirty(torch.randn(ROWS, COLS, generator=generator).to(dtype), starts, ends),
        "starts": starts,
        "ends": ends,
        "k": torch.randint(-1, K + 3, (ROWS,), generator=generator, dtype=torch.int32),
        "row_to_batch": torch.randint(0, 3, (ROWS,), generator=generator, dtype=torch.int32),
    }


def wrong(asked: dict[str, Any], table: Tensor, found: Any) -> list[str]:
    more = {**asked, "page_table": table, "page_size": 16, "max_k": K}
    return problems_with_selection(more.pop("input"), more.pop("k"), [one.cpu() for one in found], **more)


def ask(asked: dict[str, Any], table: Tensor) -> Any:
    return autotopk.topk_indices(**asked, page_table=table, page_size=16, max_k=K, **ALL)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32])
def test_graphs_follow_windows_and_k(dtype: torch.dtype) -> None:
    """Each replay is about what its inputs hold then."""
    table = table_of(3, COLS // 16 + 1, 0)
    memory = {name: one.cuda() for name, one in of(0, dtype).items()}
    on_device = table.cuda()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        ask(memory, on_device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = ask(memory, on_device)
    for seed in range(1, 8):
        asked = of(seed, dtype)
        for name, one in asked.items():
            memory[name].copy_(one)
        graph.replay()
        torch.cuda.synchronize()
        assert not wrong(asked, table, found), seed


def test_two_streams_at_once() -> None:
    table = table_of(3, COLS // 16 + 1, 0)
    streams, asks = [torch.cuda.Stream(), torch.cuda.Stream()], [of(seed, torch.float32) for seed in range(20)]
    on_device, moved = table.cuda(), [{name: one.cuda() for name, one in asked.items()} for asked in asks]
    torch.cuda.synchronize()
    found = []
    for turn, asked in enumerate(moved):
        with torch.cuda.stream(streams[turn % 2]):
            found.append(ask(asked, on_device))
    torch.cuda.synchronize()
    for asked, one in zip(asks, found, strict=True):
        assert not wrong(asked, table, one)


def test_nothing_waits_for_the_device() -> None:
    asked, table = {name: one.cuda() for name, one in of(0, torch.float32).items()}, table_of(3, 26, 0).cuda()
    ask(asked, table)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for stable in (True, False):
            ask(asked, table)
            autotopk.topk(asked["input"], 5, stable=stable)
            autotopk.topk_indices(asked["input"], 5, stable=stable, index_dtype=torch.int64)
            autotopk.topk_mask(asked["input"], 5, 0.0, stable=stable)
        autotopk.kth_value(asked["input"], 5)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_stable_as_on_a_cpu(dtype: torch.dtype) -> None:
    x = torch.randint(-3, 3, (5, 70_000)).to(dtype)
    if dtype.is_floating_point:
        x[:, ::7] = torch.nan
        x[:, ::11] *= -0.0
    for largest in (True, False):
        for k in (1, 100, 3000):
            found, expected = (autotopk.topk(one, k, largest=largest, stable=True) for one in (x.cuda(), x))
            assert torch.equal(found.indices.cpu(), expected.indices)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 7, 4096, 30_000, 69_990, 70_000])
def test_kth_value_as_on_a_cpu(k: int, largest: bool) -> None:
    x = torch.randn(3, 70_000)
    x[1, ::3] = torch.nan
    found, expected = autotopk.kth_value(x.cuda(), k, largest=largest), autotopk.kth_value(x, k, largest=largest)
    torch.testing.assert_close(found.values.cpu(), expected.values, rtol=0, atol=0, equal_nan=True)
    named = x.gather(1, found.indices.cpu()[:, None])[:, 0]
    torch.testing.assert_close(named, expected.values, rtol=0, atol=0, equal_nan=True)
