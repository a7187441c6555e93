"""Small kernels by hand: `const int* x, int* values, int n` and a body."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from autotopk.compilers.cuda import CudaText
from autotopk.kernel import Parameter
from tests.emulator.emulator import Emulator

PARAMETERS = (Parameter("x", "pointer"), Parameter("values", "pointer"), Parameter("n", "int32"))
SIGNALS = "#define BLOCKS 4\n" + Path("strategies/cluster_lists/signals.cuh").read_text()
"""Text ahead of kernels that send."""


@dataclass(frozen=True)
class Programs:
    """Compiles and runs bodies of kernels."""

    folder: Path

    def emulator(
        self,
        body: str,
        *,
        before: str = "",
        threads: int = 32,
        shared: int = 0,
        cluster: int = 1,
        programmatic_launch: bool = False,
        cooperative: bool = False,
    ) -> Emulator:
        """A kernel; `before` is text ahead of it, such as functions."""
        head = 'extern "C" __global__ void kernel(const int* __restrict__ x, int* __restrict__ values, int n)'
        text = f"{before}{head} {{\n{body}\n}}\n"
        source = CudaText(
            text, "kernel", PARAMETERS, threads, shared, cluster, programmatic_launch, cooperative=cooperative
        )
        return Emulator(source, self.folder)


def launch(
    emulator: Emulator,
    x: Tensor | int = 0,
    *,
    size: int = 32,
    grid: int | tuple[int, ...] = 1,
    n: int = 0,
    seed: int = 0,
    preempt: int = 0,
    races: bool = True,
    step_limit: int = 10_000_000,
) -> list[int]:
    """The `size` integers that a kernel of `Programs` leaves in `values`, which starts as -1."""
    storage = torch.full((size + 32,), -1, dtype=torch.int32)
    values = storage[16 : 16 + size]
    emulator(
        grid,
        {"x": x, "values": values, "n": n},
        seed=seed,
        preempt=preempt,
        races=races,
        step_limit=step_limit,
    )
    assert (storage[:16] == -1).all()
    assert (storage[16 + size :] == -1).all()
    answer: list[int] = values.tolist()
    return answer
