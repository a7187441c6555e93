"""`topk` and `topk_indices` answer rightly whatever the kernel cache holds; a GPU and its driver are played here."""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import autotopk
from autotopk.device import H100
from autotopk.kernel import Kernel, Parameter
from autotopk.program import Extent, KernelProgram
from autotopk.runtime import launch
from tests.compilers.mutations import mutants
from tests.compilers.small_sources import CountingSource
from tests.runtime.conftest import Planted
from tests.runtime.same import check, told

X = torch.randn(16, 40)
K = 5
COMPILED = Kernel(
    cubin=b"\x7fELF of this one",
    symbol="rows",
    parameters=(Parameter("x", "pointer"), Parameter("values", "pointer"), Parameter("indices", "pointer")),
    threads=64,
)
OTHER = Kernel(b"\x7fELF of another", "others", (Parameter("values", "pointer"),), 1024, cluster=16)


@pytest.fixture
def source(tmp_path: Path, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> CountingSource:
    """Behind `topk` a kernel that comes from the cache, loaded and launched as far as that goes without a GPU."""
    source = CountingSource(tmp_path / "log", kernel=COMPILED)
    monkeypatch.setattr(planted, "program", lambda *_: KernelProgram.of(source, Extent(per=(("rows", 1),))))
    for room in ("operations", "planning"):
        monkeypatch.setattr(f"autotopk.runtime.{room}.device_of", lambda _: H100)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(launch, "_current_device", lambda: 0)
    monkeypatch.setattr(launch, "_current_stream", lambda _: 0)
    monkeypatch.setattr(launch, "_empty", lambda size, _, dtype: torch.empty(size, dtype=dtype))
    monkeypatch.setattr(launch, "_function", lambda kernel, index: 77)
    monkeypatch.setattr(launch, "_prepare", lambda: played)
    return source


def played(launches: Sequence[tuple[Any, ...]], addresses: int, numbers: Mapping[str, int]) -> Callable[..., int]:
    """The launcher, and a GPU that runs one kernel whatever it is called and given, if a GPU can be given that."""
    [(function, grid, threads, shared_bytes, cluster, cooperative, programmatic, slots)] = launches
    assert (function, [Extent(*axis).of(numbers) for axis in grid], addresses) == (77, [16, 1, 1], 3)
    assert type(threads) is type(shared_bytes) is type(cluster) is int
    assert type(cooperative) is type(programmatic) is bool
    assert 1 <= threads <= 1024
    assert 0 <= shared_bytes <= 227 << 10
    assert 1 <= cluster <= 16
    assert len(slots) <= 24
    assert all(one in numbers if isinstance(one, str) else -1 <= one[0] < addresses for one in slots)

    def run(stream: int, x: int, values: int, indices: int) -> int:
        rows = torch.frombuffer(bytearray(ctypes.string_at(x, X.numel() * 4)), dtype=torch.float32).view(X.shape)
        for result, address in zip(torch.topk(rows, K), (values, indices), strict=True):
            ctypes.memmove(address, result.data_ptr(), result.numel() * result.element_size())
        return 0

    return run


def ask() -> None:
    check(X, K)
    indices = autotopk.topk_indices(X, K)
    assert indices.dtype is torch.int32
    assert torch.equal(indices.long(), torch.topk(X, K).indices)


def survive(source: CountingSource, count: int, seed: int) -> Iterator[list[str]]:
    """The warnings of every file's answers."""
    path = source.cache_path(90)
    for mutant in mutants(source.load(90), path.name, OTHER, count, seed):
        path.write_bytes(mutant.data)
        before = source.compilations
        autotopk.reload()
        warned = told(ask)
        assert source.compilations - before in ((0, 1) if mutant.is_forged else (1,)), mutant
        assert all("no launch provides the parameter" in message for message in warned), warned
        yield warned


def test_answers_come_from_the_kernel(source: CountingSource) -> None:
    assert told(ask) == []
    assert autotopk.explain(X, K).choice.strategy.name == "planted"
    assert source.compilations == 1


def test_hundreds_of_files(source: CountingSource) -> None:
    warned = list(survive(source, 200, 5))
    assert len(warned) > 190
    assert sum(map(bool, warned)) < 10


@pytest.mark.slow
def test_thousands_of_files(source: CountingSource) -> None:
    assert len(list(survive(source, 1000, 6))) > 950
