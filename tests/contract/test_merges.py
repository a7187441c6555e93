"""The kernel that merges lists, in the emulator and on a GPU, against a stable sort of all shards."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autotopk import packs, registry
from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaSource
from autotopk.device import H100, Device, cuda_device
from autotopk.lists import GIVEN, LISTED, Lists, listed, lists_of
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES, MERGED, Problem
from autotopk.program import KernelProgram
from autotopk.runtime import dispatch, launch
from autotopk.runtime.check_cases import cases
from autotopk.runtime.list_merges import ListMerges
from autotopk.runtime.state import Runtime
from autotopk.strategies.merge_lists import MOST_LISTS
from autotopk.strategies.torch_fallback.merged import lists_in_order, merge_by_torch
from autotopk.strategies.torch_fallback.stable import stable_topk
from tests.contract.cases import answer_amid_guards, at
from tests.emulator.sequences import Sequences

STRATEGY = registry.get("merge_lists")
SHARDS = ((300,), (70, 1), (40, 0, 90), (5, 0, 0, 7, 200, 33, 1, 60), (3,) * 20)
"""Columns of each, up to more shards than a kernel is told the sizes of."""

Merge = Callable[[Tensor, Lists, torch.dtype, bool], tuple[Tensor, Tensor]]


def problem_of(lists: Lists, dtype: torch.dtype, largest: bool) -> Problem:
    name = str(dtype).removeprefix("torch.")
    return Problem.contiguous(lists.rows, sum(lists.counts), lists.k, name, largest=largest, answer=MERGED)


def check(merge: Merge, x: Tensor, k: int, sizes: Sequence[int], largest: bool) -> None:
    """Every bit of a merge of shards."""
    memory, lists = lists_in_order(x, k, sizes, largest)
    values, indices = merge(memory, lists, x.dtype, largest)
    expected = stable_topk(x, k, 1, largest, True)
    assert torch.equal(indices, expected.indices)
    bits = torch.uint8
    assert torch.equal(values.view(bits), at(x, indices).view(bits))


@pytest.fixture(scope="module", params=["one memory", "addresses"])
def emulated(emulated_kernels: Path, request: pytest.FixtureRequest) -> Merge:
    sequences, seeds, apart = Sequences(emulated_kernels), iter(range(1 << 30)), request.param == "addresses"

    def merge(memory: Tensor, lists: Lists, dtype: torch.dtype, largest: bool) -> tuple[Tensor, Tensor]:
        problem, numbers = problem_of(lists, dtype, largest), listed(lists, 16 if apart else None)
        if apart:  # the last part first, behind the addresses
            parts = memory.view(len(lists.sizes), -1)
            head = torch.zeros(len(parts) + len(parts) % 2, dtype=torch.int64)
            memory = torch.cat([head, parts.flip(0).view(-1)])
            behind = range(len(head), len(memory), parts.shape[1])
            memory[: len(parts)] = torch.tensor([memory.data_ptr() + 8 * word - 16 for word in reversed(behind)])
        (config,) = STRATEGY.shortlist(problem, H100)
        assert not STRATEGY.reasons_unable(problem, H100)
        program = STRATEGY.program(config, problem, H100)
        assert isinstance(program, KernelProgram)
        assert numbers is not None
        told = dict(zip(LISTED, numbers, strict=True))

        def run(values: Tensor, indices: Tensor) -> None:
            tensors: dict[str, Tensor | int] = {"x": memory, "values": values, "indices": indices, **told}
            sequences.run(program, problem, tensors, seed=next(seeds), preempt=30)

        return answer_amid_guards(problem, dtype, torch.int64, run)

    return merge


@pytest.mark.requires("g++")
@pytest.mark.parametrize("sizes", SHARDS, ids=str)
@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_answers_right(emulated: Merge, dtype: str, sizes: Sequence[int]) -> None:
    cols = sum(sizes)
    for turn, name in enumerate(inputs.names_for(getattr(torch, dtype))):
        k = (1, min(cols, 37), cols)[turn % 3]
        x = inputs.make(name, 2, cols, k, getattr(torch, dtype), "cpu", turn)
        check(emulated, x, k, sizes, turn % 2 == 0)


@pytest.mark.requires("g++")
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_answers_right_whatever_is_asked(emulated: Merge, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any))
    rows, k = data.draw(st.integers(1, 3)), data.draw(st.integers(1, sum(sizes)))
    special = st.sampled_from([float("nan"), -0.0, 0.0, float("inf"), -float("inf"), 1.0])
    row = st.lists(special, min_size=sum(sizes), max_size=sum(sizes))
    x = torch.tensor(data.draw(st.lists(row, min_size=rows, max_size=rows)))
    check(emulated, x, k, sizes, data.draw(st.booleans()))


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
@pytest.mark.parametrize("sizes", SHARDS, ids=str)
def test_operators_of_torch_answer_alike(sizes: Sequence[int]) -> None:
    x = torch.randint(0, 9, (3, sum(sizes))).to(torch.bfloat16)
    for k in (1, sum(sizes)):
        check(merge_by_torch, x, k, sizes, True)
        check(ListMerges("tried", runtime=Runtime()), x, k, sizes, False)


def test_sizes_that_a_kernel_cannot_be_told() -> None:
    assert listed(lists_of(2, 3, [5, 4, *[7] * 40], 4)) is not None
    assert listed(lists_of(2, 3, [*[7] * GIVEN, 6], 4)) is None


def test_it_alone_is_asked_of_merges() -> None:
    problem = Problem.contiguous(4, 200, 50, answer=MERGED)
    choice = dispatch.choose(problem, H100, force="load_maxima", ready=lambda *_: "")
    assert (choice.step, choice.strategy) == ("heuristic", STRATEGY)
    many = Problem.contiguous(4, MOST_LISTS * 2 + 1, 2, answer=MERGED)
    (reason,) = STRATEGY.reasons_unable(many, H100)
    assert reason == "cols=513 are of more than 256 lists of k=2"
    assert dispatch.choose(many, H100, ready=lambda *_: "").strategy.name == "torch_fallback"


def test_every_kernel_has_a_case_to_be_checked_by() -> None:
    names = {packs.name_of(source, 90) for source in STRATEGY.rungs(90)}
    found = cases(H100, names, 90)
    assert {name for case in found for name in case.kernels} == names
    assert all(len(case.variants(H100)) == 2 for case in found)


@pytest.mark.requires("nvcc")
@pytest.mark.parametrize("source", [*STRATEGY.rungs(90)], ids=lambda source: source.symbol)
def test_compiles(source: CudaSource) -> None:
    assert nvcc.find()
    kernel = source.compile(90)
    assert kernel.spill_bytes == 0
    assert kernel.registers <= 64


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_on_a_gpu(dtype: str) -> None:
    """As torch's operators answer, from a program that is bound as calls bind it."""
    device: Device = cuda_device(0)

    def merge(memory: Tensor, lists: Lists, dtype: torch.dtype, largest: bool) -> tuple[Tensor, Tensor]:
        problem = problem_of(lists, dtype, largest)
        (config,) = STRATEGY.shortlist(problem, device)
        found: tuple[Tensor, Tensor] = launch.bind(STRATEGY.program(config, problem, device), problem, device)(
            memory, lists
        )
        return found

    for turn, name in enumerate(inputs.names_for(getattr(torch, dtype))):
        for sizes, k in (((5000, 5000), 2048), ((900, 0, 33, 4000), 1000), ((100,) * 20, 60)):
            x = inputs.make(name, 5, sum(sizes), k, getattr(torch, dtype), "cuda", turn)
            check(merge, x, k, sizes, turn % 2 == 0)
            check(ListMerges("tried", runtime=Runtime()), x, k, sizes, turn % 2 == 0)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
def test_in_a_graph_that_follows_its_memory() -> None:
    merge, sizes = ListMerges("captured", runtime=Runtime()), [3000, 200, 5000]
    memory, lists = lists_in_order(torch.randn(4, 8200, device="cuda"), 700, sizes, True)
    merge(memory, lists, torch.float32, True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        values, indices = merge(memory, lists, torch.float32, True)
    for _ in range(3):
        x = torch.randn(4, 8200, device="cuda").round(decimals=1)
        memory.copy_(lists_in_order(x, 700, sizes, True)[0])
        graph.replay()
        expected = stable_topk(x, 700, 1, True, True)
        assert torch.equal(values, expected.values)
        assert torch.equal(indices, expected.indices)
