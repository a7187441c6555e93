"""What only a GPU can show: streams, graphs, threads without a context, memory beyond 31 bits."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.compilers.cuda import CudaSource
from autotopk.device import device_of
from autotopk.kernel import ParameterKind
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from autotopk.problem import Problem
from autotopk.program import Extent, KernelProgram
from autotopk.runtime import launch
from tests.runtime.conftest import Planted
from tests.runtime.same import check, told, unwarned
from tests.runtime.test_failures import PROGRAMS
from tests.runtime.winners import FIRST_CALLS, environment, python

pytestmark = [pytest.mark.gpu, unwarned]

ORDERS = list(itertools.product((True, False), (True, False)))


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache_dir(shared_cache: Path) -> Path:
    """One folder for all tests here: kernels are compiled once."""
    return shared_cache


@pytest.fixture(autouse=True)
def _free_memory() -> Iterator[None]:
    yield
    torch.cuda.empty_cache()


def rows(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return inputs.make("random", shape[0], shape[1], 1, dtype, "cuda")


def needs_memory(gib: int) -> None:
    if torch.cuda.mem_get_info()[0] < gib << 30:
        pytest.skip(f"needs {gib} GiB of free GPU memory")


def test_a_kernel_of_ours_answers() -> None:
    """Else nothing here would test it."""
    choice = autotopk.explain(rows(64, 128), 5).choice
    assert (choice.step, choice.strategy.name) == ("heuristic", "lane_merge")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (9,), (3, 7), (2, 3, 7), (0, 3), (3, 0)], ids=str)
def test_every_dim_and_k(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = (torch.randn(shape, device="cuda") * 50).to(dtype)
    for dim in range(-max(1, len(shape)), max(1, len(shape))):
        size = shape[dim] if shape else 1
        ks = (
            sorted({0, min(1, size), min(3, size), size}) if shape else [1]
        )  # of 0-d, torch returns one element for k = 0
        for k, (largest, order) in itertools.product(ks, ORDERS):
            check(x, k, dim, largest, order)


def test_misaligned_views() -> None:
    """Every offset within the widest load, for every width of element and rows that keep or lose alignment."""
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.float64):
        memory = rows(1, 8192, dtype=dtype).flatten()
        for offset, cols in itertools.product(range(17), (64, 66, 65)):
            check(memory[offset : offset + 20 * cols].view(20, cols), 7)


def test_strided_rows() -> None:
    memory = rows(40, 200)
    for view in (
        memory[:, :100],
        memory[:, 3:100],
        memory[::3, :64],
        memory.t(),
        memory[:, ::2],
        memory[:1].expand(33, -1),
        memory.flatten().unfold(0, 50, 1)[:300],
        memory.view(4, 10, 200)[:, :5, :60],
        memory.view(4, 10, 200).transpose(0, 1),
    ):
        for dim, (largest, order) in itertools.product(range(view.dim()), ORDERS):
            check(view, 4, dim, largest, order)


@pytest.mark.parametrize("shape", [(65_535, 32), (65_536, 32), (1_000_003, 9)], ids=str)
def test_many_rows(shape: tuple[int, int]) -> None:
    check(rows(*shape), 3)
    check(rows(*shape).t(), 3, dim=0)


def test_more_than_31_bits_of_elements() -> None:
    needs_memory(24)
    x = torch.empty((1 << 21) + 3, 1024, dtype=torch.bfloat16, device="cuda").normal_()
    assert x.numel() > 1 << 31
    values, indices = autotopk.topk(x, 2)
    for part in (slice(0, 1000), slice(-1000, None), slice((1 << 21) - 500, (1 << 21) + 3)):
        found = problems_with(x[part], values[part], indices[part], 2)
        assert found == []
    assert torch.equal(values[:, :1], x.max(1, keepdim=True).values)


def test_rows_further_apart_than_31_bits() -> None:
    needs_memory(8)
    distance = (1 << 31) // 2 + 5
    memory = torch.zeros(3 * distance, dtype=torch.int8, device="cuda")
    x = memory.as_strided((3, 100), (distance, 1))
    x.copy_(rows(3, 100, dtype=torch.int8))
    check(x, 5)


def test_runs_on_the_current_stream() -> None:
    """The input is written by the same stream, long after the call was made."""
    x = torch.zeros(64, 128, device="cuda")
    autotopk.topk(x, 5)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.copy_(rows(64, 128))
        values, indices = autotopk.topk(x, 5)
        assert not stream.query(), "the call did not wait for the GPU"
    stream.synchronize()
    assert not problems_with(x, values, indices, 5)


def test_never_synchronises() -> None:
    x = rows(64, 128)
    autotopk.topk(x, 5)
    torch.cuda.set_sync_debug_mode("error")
    try:
        autotopk.topk(x, 5)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_many_streams_at_once() -> None:
    streams = [torch.cuda.Stream() for _ in range(8)]
    tensors = [rows(500, 100 + number) for number in range(8)]
    torch.cuda.synchronize()
    answers = []
    for _ in range(20):
        for stream, x in zip(streams, tensors, strict=True):
            with torch.cuda.stream(stream):
                answers.append((x, *autotopk.topk(x, 7)))
    torch.cuda.synchronize()
    for x, values, indices in answers:
        assert not problems_with(x, values, indices, 7)


@pytest.mark.parametrize("called_before", [False, True])
def test_graph(called_before: bool) -> None:
    """A capture of the first call too, which torch.topk answers."""
    x = rows(37, 90 + called_before)
    if called_before:
        autotopk.topk(x, 6)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        values, indices = autotopk.topk(x, 6)
    for seed in range(5):
        x.copy_(inputs.make("ties", x.shape[0], x.shape[1], 6, x.dtype, "cuda", seed))
        graph.replay()
        torch.cuda.synchronize()
        assert not problems_with(x, values, indices, 6)


def test_two_graphs_share_nothing() -> None:
    tensors = [rows(300, 200), rows(300, 200).neg()]
    autotopk.topk(tensors[0], 9)
    captured = []
    for x in tensors:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = autotopk.topk(x, 9)
        captured.append((graph, torch.cuda.Stream(), x, answer))
    torch.cuda.synchronize()
    for _ in range(50):
        for graph, stream, _, _ in captured:
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for _, _, x, (values, indices) in captured:
        assert not problems_with(x, values, indices, 9)


def test_first_use_of_a_thread() -> None:
    """A thread that has not touched the GPU has no context of its own yet."""
    x = rows(64, 128)
    autotopk.topk(x, 5)
    found: list[object] = ["never ran"]

    def work() -> None:
        found[:] = autotopk.topk(x, 5)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    values, indices = found
    assert isinstance(values, Tensor)
    assert isinstance(indices, Tensor)
    assert not problems_with(x, values, indices, 5)


def test_threads() -> None:
    """First calls of the same and of other layouts, each thread on a stream of its own."""

    def work(number: int) -> list[str]:
        found: list[str] = []
        with torch.cuda.stream(torch.cuda.Stream()):
            for cols in range(30, 60):
                x = torch.randn(50, cols + number % 2, device="cuda")
                values, indices = autotopk.topk(x, 5)
                found += problems_with(x, values, indices, 5)
        return found

    with ThreadPoolExecutor(8) as pool:
        assert [problem for problems in pool.map(work, range(8)) for problem in problems] == []


def test_another_device_than_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    x = rows(64, 128).to("cuda:1")
    check(x, 5)
    assert torch.cuda.current_device() == 0


def test_gradients() -> None:
    x = rows(64, 128).requires_grad_()
    assert not autotopk.topk(x.detach(), 5).values.requires_grad
    (gradient,) = torch.autograd.grad(autotopk.topk(x, 5).values.sum(), x)
    assert (gradient.sum(1) == 5).all()
    tangent = torch.func.jvp(lambda x: autotopk.topk(x, 5).values, (x.detach(),), (torch.ones_like(x),))[1]
    assert (tangent == 1).all()


def outputs(rows: int, k: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(rows, k, device="cuda"), torch.zeros(rows, k, dtype=torch.int64, device="cuda")


def test_out() -> None:
    """Plain outputs are written by the kernel itself: nothing is allocated."""
    x, out = rows(64, 128), outputs(64, 5)
    autotopk.topk(x, 5, out=out)
    assert not problems_with(x, *out, 5)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    autotopk.topk(x.neg_(), 5, out=out)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    assert not problems_with(x, *out, 5)


def test_out_of_every_kind() -> None:
    """Misaligned, strided, along another dimension, inside the input."""
    x = rows(64, 128)
    values, indices = torch.zeros(70, 9, device="cuda"), torch.zeros(70, 9, dtype=torch.int64, device="cuda")
    for out in (
        (values.view(-1)[1:321].view(64, 5), indices.view(-1)[1:321].view(64, 5)),
        (values[3:67, 2:7], indices[3:67, 2:7]),
    ):
        autotopk.topk(x, 5, out=out)
        assert not problems_with(x, out[0].contiguous(), out[1].contiguous(), 5)
    across = outputs(5, 128)
    autotopk.topk(x, 5, 0, out=across)
    assert not problems_with(x, *across, 5, dim=0)
    overwritten = x.clone()
    inside = overwritten.view(-1)[8:328].view(64, 5), outputs(64, 5)[1]
    autotopk.topk(overwritten, 5, out=inside)
    assert not problems_with(x, *inside, 5)


def test_out_in_a_graph() -> None:
    x, out = rows(37, 90), outputs(37, 6)
    autotopk.topk(x, 6, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        autotopk.topk(x, 6, out=out)
    for seed in range(3):
        x.copy_(inputs.make("ties", 37, 90, 6, x.dtype, "cuda", seed))
        graph.replay()
        torch.cuda.synchronize()
        assert not problems_with(x, *out, 6)


def test_a_trace_holds_at_every_size() -> None:
    traced = torch.jit.trace(lambda x: tuple(autotopk.topk(x, 5)), rows(64, 128))
    for shape in ((64, 128), (3, 9), (2, 5000)):
        x = rows(*shape)
        values, indices = traced(x)
        assert not problems_with(x, values, indices, 5)


def test_special_values() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64):
        for name, (largest, order) in itertools.product(inputs.names_for(dtype), ORDERS):
            check(inputs.make(name, 33, 257, 9, dtype, "cuda"), 9, -1, largest, order)


def test_results_are_fresh_memory() -> None:
    x = rows(64, 128)
    first = autotopk.topk(x, 5)
    kept = first.values.clone(), first.indices.clone()
    for _ in range(10):
        autotopk.topk(x.neg(), 5)
    assert torch.equal(first.values, kept[0])
    assert torch.equal(first.indices, kept[1])


@pytest.mark.parametrize("kind", PROGRAMS)
def test_failing_strategy(kind: str, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning, and the next candidate's answer."""
    monkeypatch.setattr(planted, "program", lambda *_: PROGRAMS[kind]())
    x = rows(64, 128)
    [message] = told(lambda: check(x, 5))
    assert message.startswith('planted {"knob":0} failed and is left out: ')
    assert told(lambda: check(x, 5)) == []
    assert autotopk.explain(x, 5).choice.strategy.name == "lane_merge"


SECOND = """
import sys, torch, autotopk
x = torch.randn(64, 96, device="cuda")
assert torch.equal(autotopk.topk(x, 5).values, torch.topk(x, 5).values)
print("triton" in sys.modules)
"""


ALONE = {"AUTOTOPK_PACKS": "0", "AUTOTOPK_BUILD": "wait"}
"""Without what is shipped compiled, and compiled in the call."""


def test_second_process_compiles_nothing(tmp_path: Path) -> None:
    assert [python(SECOND, environment(tmp_path, **ALONE)) for _ in range(2)] == ["True\n", "False\n"]


def test_first_process_compiles_nothing_that_is_shipped(tmp_path: Path) -> None:
    assert python(SECOND, environment(tmp_path)) == "False\n"


def test_sixteen_first_calls_at_once(tmp_path: Path) -> None:
    """No error, no warning but the documented one, and one kernel in the cache."""
    said = python(FIRST_CALLS, environment(tmp_path, **ALONE, DEVICE="cuda"))
    assert said.splitlines() == ["['AutotopkWarning: nothing like']"] * 16
    assert len(list((tmp_path / "kernels").iterdir())) == 1


SHARED = """
extern "C" __global__ void KERNEL(const float* x, float* values, long long* indices, int cols) {
  extern __shared__ float dynamic[];
  __shared__ float fixed[1024];
  int i = threadIdx.x;
  fixed[i] = x[i], dynamic[12287 - i] = x[i];
  __syncthreads();
  values[cols - 1 - i] = fixed[i], indices[cols - 1 - i] = dynamic[12287 - i] == fixed[i];
}
"""


def test_fixed_and_dynamic_shared_memory_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is more than a block has without asking."""
    package = tmp_path / "shared_of_test"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "reverse.cu").write_text(SHARED)
    monkeypatch.syspath_prepend(tmp_path)
    pointers: list[tuple[str, ParameterKind]] = [(name, "pointer") for name in ("x", "values", "indices")]
    source = CudaSource("shared_of_test/reverse.cu", (), (*pointers, ("cols", "int32")), 64, "reverse", 48 << 10)
    problem, x = Problem.contiguous(1, 64, 64), torch.randn(1, 64, device="cuda")
    run = launch.bind(KernelProgram.of(source, Extent()), problem, device_of(x.device))
    values, indices = run(x)
    assert torch.equal(values, x.flip(1))
    assert indices.all()
