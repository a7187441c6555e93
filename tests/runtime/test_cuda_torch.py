"""torch's compilers, graphs, streams, devices and gradients on a GPU: right, and by our kernels."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._C._autograd import DeviceType
from torch._inductor import config
from torch.profiler import ProfilerActivity, profile

import autotopk
from autotopk.oracle.reference import problems_with
from tests.runtime.same import unwarned

pytestmark = [
    pytest.mark.gpu,
    unwarned,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

SHAPES = ((64, 128, 5), (33, 4096, 64), (2, 131_072, 1000))
"""Rows, columns, k: of short rows, of a block, of a cluster."""

TopK = Callable[..., Any]
TOPK: dict[str, TopK] = {"ours": autotopk.topk, "patched": torch.topk}


@pytest.fixture(autouse=True)
def _shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels and winners that users have."""
    monkeypatch.delenv("AUTOTOPK_PACKS")
    monkeypatch.delenv("AUTOTOPK_SHIPPED")
    autotopk.reload()
    torch.compiler.reset()


@pytest.fixture(params=TOPK)
def topk(request: pytest.FixtureRequest) -> Iterator[TopK]:
    with autotopk.patch() if request.param == "patched" else nullcontext():
        yield TOPK[request.param]


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))


def kernels_of(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The result, and the names of the GPU kernels that made it."""
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        result = run()
        torch.cuda.synchronize()
    return result, [event.name for event in profiler.events() if event.device_type == DeviceType.CUDA]


def by_ours(names: list[str]) -> bool:
    """Whether our kernels ran, and none of torch's top-k."""
    return any("autotopk" in name for name in names) and not any("TopK" in name or "topk::" in name for name in names)


def model_of(topk: TopK, k: int) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    def model(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x * 2
        values, indices = topk(x, k)
        return x, values + 0, indices

    return model


MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}),
    "dynamic": ({"dynamic": True}, {}),
    "reduce-overhead": ({"mode": "reduce-overhead"}, {}),
    "max-autotune": ({"mode": "max-autotune"}, {}),
    "cpp_wrapper": ({}, {"cpp_wrapper": True}),
    "aot_eager": ({"backend": "aot_eager"}, {}),
}


@pytest.mark.parametrize("mode", MODES)
def test_compiled(mode: str, topk: TopK) -> None:
    """New data, and where sizes are free new sizes, with our kernels in every run."""
    options, patches = MODES[mode]
    if mode == "aot_eager" and topk is torch.topk:
        pytest.skip("no pass runs there, and the kernel is overridden as in eager calls")
    with config.patch(patches):
        for count, cols, k in SHAPES:
            torch.compiler.reset()
            compiled = torch.compile(model_of(topk, k), fullgraph=True, **options)
            for seed in range(4):  # a graph is recorded in the second run
                x = rows(count + seed * (mode == "dynamic"), cols, seed=seed)
                torch.compiler.cudagraph_mark_step_begin()
                (doubled, values, indices), names = kernels_of(partial(compiled, x))
                assert not problems_with(doubled, values, indices, k)
                assert by_ours(names), names


def test_compiled_training(topk: TopK) -> None:
    x = rows(64, 4096).requires_grad_()
    compiled = torch.compile(lambda x: (topk(x, 64)[0] ** 2).sum(), fullgraph=True)
    (gradient,), names = kernels_of(lambda: torch.autograd.grad(compiled(x), x))
    found = torch.topk(x.detach(), 64)
    assert torch.equal(gradient, torch.zeros_like(x).scatter(1, found.indices, 2 * found.values))
    assert by_ours(names), names


def test_eager_training(topk: TopK) -> None:
    x = rows(64, 4096).requires_grad_()
    (gradient,), names = kernels_of(lambda: torch.autograd.grad((topk(x, 64)[0] ** 2).sum(), x))
    found = torch.topk(x.detach(), 64)
    assert torch.equal(gradient, torch.zeros_like(x).scatter(1, found.indices, 2 * found.values))
    assert by_ours(names), names


@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict: bool, topk: TopK) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return model_of(topk, 7)(x)

    count = torch.export.Dim("count", min=2, max=100)
    exported = torch.export.export(Model(), (rows(5, 1000),), dynamic_shapes=({0: count},), strict=strict)
    (doubled, values, indices), names = kernels_of(lambda: exported.module()(rows(64, 1000)))
    assert not problems_with(doubled, values, indices, 7)
    assert by_ours(names), names


def test_autocast_and_deterministic_mode(topk: TopK) -> None:
    a, b = rows(64, 32), rows(32, 4096)
    torch.use_deterministic_algorithms(True, warn_only=False)
    try:
        with torch.autocast("cuda", torch.bfloat16):
            (values, indices), names = kernels_of(lambda: tuple(topk(a @ b, 64)))
            x = a @ b
    finally:
        torch.use_deterministic_algorithms(False)
    assert values.dtype == torch.bfloat16
    assert not problems_with(x, values, indices, 64)
    assert by_ours(names), names


def test_captured_after_warmup(topk: TopK) -> None:
    """Several graphs on several streams, replayed at once with new data."""
    for shape in SHAPES:
        autotopk.warmup([shape])
    graphs = []
    for seed, (count, cols, k) in enumerate([*SHAPES, *SHAPES]):
        x, stream, graph = rows(count, cols, seed=seed), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
            values, indices = topk(x, k)
        graphs.append((x, stream, graph, values, indices, k))
    for seed in range(5):
        for x, *_ in graphs:
            x.copy_(rows(*x.shape, seed=100 + seed))
        torch.cuda.synchronize()
        for _, stream, graph, *_ in graphs:
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        for x, _, _, values, indices, k in graphs:
            assert not problems_with(x, values, indices, k)


def test_threads_and_streams_at_once(topk: TopK) -> None:
    def ask(seed: int) -> list[str]:
        count, cols, k = SHAPES[seed % 3]
        with torch.cuda.stream(torch.cuda.Stream()):
            x = rows(count, cols, seed=seed)
            values, indices = topk(x, k)
            torch.cuda.current_stream().synchronize()
        return problems_with(x, values, indices, k)

    with ThreadPoolExecutor(6) as pool:
        assert not any(pool.map(ask, range(60)))


def test_every_device(topk: TopK) -> None:
    """A call runs where its tensor is, whichever device is current."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    for index in range(torch.cuda.device_count()):
        for count, cols, k in SHAPES:
            x = rows(count, cols).to(f"cuda:{index}")
            out = torch.empty(count, k, device=x.device), torch.empty(count, k, dtype=torch.int64, device=x.device)
            for values, indices in (topk(x, k), topk(x, k, out=out)):
                assert values.device == indices.device == x.device
                torch.cuda.synchronize(index)
                assert not problems_with(x, values, indices, k)
            leaf = x.clone().requires_grad_()
            topk(leaf, k)[0].sum().backward()
            assert leaf.grad is not None
            assert leaf.grad.sum() == count * k
        assert torch.cuda.current_device() == 0
