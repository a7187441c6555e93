"""What only a GPU can show of kernels that are compiled beside: first calls, swaps, captures, warm-ups."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from autotopk.runtime import launch
from autotopk.runtime.state import default
from tests.runtime.laddered import settled
from tests.runtime.same import check, unwarned

pytestmark = [pytest.mark.gpu, unwarned]

K = 5


@pytest.fixture(autouse=True)
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache that holds nothing, and nothing loaded; as users have it."""
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(tmp_path / "cold"))
    monkeypatch.delenv("AUTOTOPK_BUILD")
    monkeypatch.setattr(launch, "_functions", {})
    monkeypatch.setattr(launch, "_recorded", {})
    monkeypatch.setenv("AUTOTOPK_STRATEGY", "lane_merge")
    autotopk.reload()
    yield
    default.builds.stop()


def rows(cols: int) -> Tensor:
    return inputs.make("random", 64, cols, 1, torch.float32, "cuda")


def captured(x: Tensor, k: int = K) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        values, indices = autotopk.topk(x, k)
    return graph, values, indices


def replayed(x: Tensor, graph: torch.cuda.CUDAGraph, values: Tensor, indices: Tensor, k: int = K) -> None:
    for seed in range(3):
        x.copy_(inputs.make("ties", x.shape[0], x.shape[1], k, x.dtype, "cuda", seed))
        graph.replay()
        torch.cuda.synchronize()
        assert not problems_with(x, values, indices, k)


def test_a_first_call_waits_for_nobody() -> None:
    """And the calls after the compilation run the kernel."""
    x = rows(128)
    torch.topk(x, K)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    check(x, K)
    taken = time.perf_counter() - begun
    settled(60)
    check(x, K)
    [plan] = default.plans("topk").values()
    assert plan is not None
    assert plan.choice.strategy.name == "lane_merge"
    assert taken < 1.0, taken


def test_a_capture_loads_nothing() -> None:
    """A kernel that is compiled and not loaded is not used; once it is loaded it is."""
    x = rows(128)
    autotopk.warmup((64, 128, K), load=False)
    loaded = len(launch._functions)
    graph = captured(x)
    assert len(launch._functions) == loaded
    assert len(default.plans("topk")) == 0
    replayed(x, *graph)
    check(x, K)
    assert len(launch._functions) == loaded + 1
    autotopk.reload()  # the plan goes, the kernel stays loaded
    graph = captured(x)
    assert len(default.plans("topk")) == 0
    replayed(x, *graph)


def test_a_swap_before_a_capture() -> None:
    """As in a server that calls a few times, then captures, while a kernel was finished between."""
    x = rows(256)
    check(x, K)
    settled(60)
    graph = captured(x)
    replayed(x, *graph)
    check(x, K)


def test_a_capture_after_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is better than what answered that call, where nothing was tuned, is loaded when calls pause."""
    for one in ("AUTOTOPK_STRATEGY", "AUTOTOPK_SHIPPED", "AUTOTOPK_PACKS"):  # with all that comes along
        monkeypatch.delenv(one)
    autotopk.reload()
    x = inputs.make("random", 256, 131_072, 2_048, torch.bfloat16, "cuda")
    autotopk.topk(x, 2_048)
    settled(60)
    best = autotopk.explain(x, 2_048)
    assert launch.is_loaded(best.choice.program(best.problem, best.device), best.device, x.device.index)
    replayed(x, *captured(x, 2_048), k=2_048)


def test_a_kernel_is_loaded_while_another_thread_captures() -> None:
    """As what was weighed may be: the capture goes on."""
    x, other = rows(128), rows(300)
    autotopk.warmup((64, 128, K))
    autotopk.warmup((64, 300, K), load=False)
    its = autotopk.explain(other, K)
    program = its.choice.program(its.problem, its.device)
    assert not launch.is_loaded(program, its.device, x.device.index)
    torch.cuda.synchronize()
    graph, load = torch.cuda.CUDAGraph(), partial(launch.bind, index=x.device.index, build=False)
    with ThreadPoolExecutor(1) as thread, torch.cuda.graph(graph):
        values, indices = autotopk.topk(x, K)
        thread.submit(load, program, its.problem, its.device).result()
    assert launch.is_loaded(program, its.device, x.device.index)
    replayed(x, graph, values, indices)
    check(other, K)


def test_a_warm_call_loads_nothing() -> None:
    [row] = autotopk.warmup((64, 200, K)).rows
    assert row.origin in ("built", "pack")
    loaded = dict(launch._functions)
    assert loaded
    check(rows(200), K)
    assert launch._functions == loaded
