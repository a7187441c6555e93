"""Programs of several launches, in CUDA C++ by hand."""

from pathlib import Path

import pytest
import torch

from autotopk.compilers.cuda import CudaSource, text_digest
from autotopk.kernel import ParameterKind
from autotopk.problem import Problem
from autotopk.program import Extent, KernelProgram, Launch, Scratch
from tests.emulator.emulator import EmulatorError
from tests.emulator.sequences import GARBAGE, Sequences

SUMS = """\
struct State { unsigned total, last; };
template <int COUNT> struct Words {
  unsigned* data;
  template <class Function> __device__ __forceinline__ void each(Function function) {
    for (int i = threadIdx.x; i < COUNT; i += THREADS) function(data[i], i);
  }
};
__device__ __forceinline__ unsigned sum_of(uint4 four) { return four.x + four.y + four.z + four.w; }
"""

PARTS = """\
#include "sums.cuh"
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    KERNEL(const unsigned* __restrict__ x, unsigned* sums, unsigned* arrived, long long* indices, int rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ State state;
  Words<64> words = {reinterpret_cast<unsigned*>(memory)};
  const unsigned blocks = gridDim.x / rows;
  if (threadIdx.x == 0) state.total = 0;
  words.each([](unsigned& word, int i) { word = i; });
  __syncthreads();
  unsigned own = sum_of(__ldcs(reinterpret_cast<const uint4*>(x) + blockIdx.x * THREADS + threadIdx.x));
  own += words.data[63 - threadIdx.x] + words.data[threadIdx.x];
  unsigned votes = __ballot_sync(~0u, own % 2);
  if (__syncthreads_count(own % 2) < __popc(votes)) __trap();
  atomicAdd(&state.total, __reduce_add_sync(~0u, own) * (threadIdx.x % 32 == 0));
  __syncthreads();
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = state.total;
    __threadfence();
    state.last = atomicAdd(&arrived[blockIdx.x / blocks], 1u) == blocks - 1;
  }
  __syncthreads();
  if (!state.last || threadIdx.x) return;
  arrived[blockIdx.x / blocks] = LEFT;
  indices[blockIdx.x / blocks] = 0;
  for (unsigned i = 0; i < blocks; i++) indices[blockIdx.x / blocks] += __ldcg(sums + blockIdx.x / blocks * blocks + i);
}
"""

TWICE = """\
extern "C" __global__ void KERNEL(unsigned* sums, long long* indices) {
  indices[blockIdx.x] *= FACTOR;
  indices[blockIdx.x] += sums[gridDim.x * 3] == FILL;
}
"""

PROBLEM = Problem.contiguous(2, 3 * 4 * 32, 1, "int32")
X = torch.arange(2 * 3 * 4 * 32, dtype=torch.int32).view(2, -1)


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "programs_of_test"
    folder.mkdir()
    for name, text in (("__init__.py", ""), ("sums.cuh", SUMS), ("parts.cu", PARTS), ("twice.cu", TWICE)):
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    text_digest.cache_clear()


def source(name: str, parameters: tuple[tuple[str, ParameterKind], ...], **constants: int) -> CudaSource:
    return CudaSource(
        file=f"programs_of_test/{name}.cu",
        constants=(("THREADS", 32), *constants.items()),
        parameters=parameters,
        threads=32 if name == "parts" else 1,
        symbol=f"{name}_of_test",
        shared_bytes=256 if name == "parts" else 0,
    )


def program(left: int = 0, places: int = 7) -> KernelProgram:
    parts = source(
        "parts",
        (("x", "pointer"), ("sums", "pointer"), ("arrived", "pointer"), ("indices", "pointer"), ("rows", "int32")),
        LEFT=left,
    )
    fill = int.from_bytes([GARBAGE] * 4, "little")
    twice = source("twice", (("sums", "pointer"), ("indices", "pointer")), FACTOR=2, FILL=fill)
    rows = (("rows", 1),)
    return KernelProgram(
        launches=(Launch(parts, (Extent(3, rows),)), Launch(twice, (Extent(1, rows),))),
        scratch=(Scratch("sums", Extent(4 * places)), Scratch("arrived", Extent(4, rows), zeroed=True)),
    )


@pytest.mark.parametrize(("seed", "preempt"), [(0, 0), (1, 1), (2, 20)])
def test_launches_share_scratch(kernel_folder: Path, seed: int, preempt: int) -> None:
    indices = torch.zeros(2, 1, dtype=torch.int64)
    Sequences(kernel_folder).run(program(), PROBLEM, {"x": X, "indices": indices}, seed=seed, preempt=preempt)
    assert indices.flatten().tolist() == [2 * (int(row.sum()) + 3 * 32 * 63) + 1 for row in X]  # 1: garbage was there


def test_a_counter_that_is_not_left_zero_is_seen(kernel_folder: Path) -> None:
    indices = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(AssertionError, match="scratch arrived is not left zero"):
        Sequences(kernel_folder).run(program(left=1), PROBLEM, {"x": X, "indices": indices})


def test_scratch_has_bounds(kernel_folder: Path) -> None:
    indices = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(EmulatorError, match="reads 4 bytes at byte 24 of sums, which has 24 bytes"):
        Sequences(kernel_folder).run(program(places=6), PROBLEM, {"x": X, "indices": indices})


def test_extents_follow_from_the_scalars() -> None:
    given = {"rows": 5, "cols": 1000, "k": 3}
    assert Extent(7).of(given) == 7
    assert Extent(2, (("rows", 2), ("k", 1))).of(given) == 2 * 3 * 3
    assert Extent(1, (("cols", 512),)).of(given) == 2
