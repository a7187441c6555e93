"""The counting scan of a block and of a cluster, over the threads before and over those behind."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autotopk.compilers.tilelang import TileLangSource
from autotopk.strategies import _collectives
from tests.emulator import generated
from tests.emulator.emulator import Emulator, EmulatorError

pytestmark = [pytest.mark.requires("g++"), pytest.mark.tilelang]

ORDERS = [(0, 0), (1, 1), (2, 20)]
"""(seed, accesses to shared memory after which another thread runs; 0 for threads that run until they must wait)."""

FAULTS = r"race on shared|nobody wrote|may exit|after that block exited|before any"


def scan_counts(threads: int, blocks: int) -> TileLangSource:
    constants = (("threads", threads), ("blocks", blocks))
    return TileLangSource(
        "tests.collectives.kernels:scan_counts", constants, code_dependencies=(_collectives.__name__,)
    )


def counts(threads: int) -> dict[str, Tensor]:
    """Named summands of so many threads, int32."""
    numbers = torch.arange(threads)
    generator = torch.Generator().manual_seed(threads)
    named = {
        "none": torch.zeros(threads),
        "ones": torch.ones(threads),
        "first": numbers == 0,
        "last": numbers == threads - 1,
        "any": torch.randint(-(1 << 20), 1 << 20, (threads,), generator=generator),
    }
    return {name: some.to(torch.int32) for name, some in named.items()}


def run(emulator: Emulator, x: Tensor, seed: int, preempt: int) -> Tensor:
    """What the kernel leaves in its (2, 3, 2, n) output."""
    values = torch.full((2, 3, 2, x.shape[1]), -7, dtype=torch.int32)
    emulator(emulator.source.cluster, {"x": x, "values": values}, seed=seed, preempt=preempt)
    return values


def run_in_every_order(emulator: Emulator, x: Tensor) -> list[Tensor]:
    return [run(emulator, x, seed, preempt) for seed, preempt in ORDERS]


def expected(x: Tensor) -> Tensor:
    """The same by torch: x is (2, n)."""

    def scan(row: Tensor) -> Tensor:
        """(2, n): sums over lower threads, and the total."""
        sums = row.cumsum(0, dtype=torch.int32)
        return torch.stack([sums - row, sums[-1:].expand_as(row)])

    rows = (x[0], x[1], x[0])
    forward = torch.stack([scan(row) for row in rows])
    backward = torch.stack([scan(row.flip(0)).flip(1) for row in rows])
    return torch.stack([forward, backward])


SIZES = [(32, 1), (96, 1), (1024, 1), (32, 2), (1024, 4), (256, 8), (256, 16)]
"""(threads, blocks): a warp, several and all that a block may have, in clusters of every size."""

OTHERS = [*((threads, 1) for threads in (64, 128, 256, 512)), *product((32, 256, 1024), (2, 4, 8, 16))]


@pytest.mark.parametrize(
    ("threads", "blocks"),
    [*SIZES, *(pytest.param(*size, marks=pytest.mark.slow) for size in OTHERS if size not in SIZES)],
)
def test_sums_over_the_threads_before_and_behind_and_over_all(
    threads: int, blocks: int, emulated_kernels: Path
) -> None:
    scan = generated.emulator(scan_counts(threads, blocks), emulated_kernels)
    assert scan.source.cluster == blocks
    named = counts(threads * blocks)
    for name, some in named.items():
        x = torch.stack([some, named["any"].flip(0)])
        assert all(torch.equal(found, expected(x)) for found in run_in_every_order(scan, x)), name


@pytest.mark.parametrize(
    ("statement", "blocks"), [("__syncthreads();", 1), ("__syncthreads();", 2), ("tl::cluster_sync();", 2)]
)
def test_every_barrier_is_needed(statement: str, blocks: int, emulated_kernels: Path) -> None:
    source = generated.generated(scan_counts(64, blocks), emulated_kernels)
    x = torch.stack([counts(64 * blocks)["any"]] * 2)
    places = [found.span() for found in re.finditer(re.escape(statement), source.text)]
    assert places
    for start, end in places:
        mutant = Emulator(replace(source, text=f"{source.text[:start]};{source.text[end:]}"), emulated_kernels)
        with pytest.raises(EmulatorError, match=FAULTS):
            run_in_every_order(mutant, x)
