"""Text that TileLang generates runs as it is, answers right, and no longer does with one barrier taken out."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from autotopk.compilers.cuda import CudaText
from autotopk.compilers.tilelang import TileLangSource
from tests.emulator.emulator import Emulator, EmulatorError
from tests.emulator.generated import generated
from tests.emulator.programs import Programs

pytestmark = pytest.mark.tilelang

ORDERS = [(0, 0), (1, 1), (2, 7)]
"""(seed, preempt)."""
FAULTS = r"race on shared|nobody wrote|may exit|after that block exited|before any"
ROWS, COLS = 3, 777


@pytest.fixture(scope="module")
def histogram(kernel_folder: Path) -> CudaText:
    return generated(TileLangSource("tests.emulator.kernels:histogram", (("threads", 64),)), kernel_folder)


@pytest.fixture(scope="module")
def cluster_sums(kernel_folder: Path) -> CudaText:
    constants = (("threads", 64), ("cluster", 4))
    return generated(TileLangSource("tests.emulator.kernels:cluster_sums", constants), kernel_folder)


def run_histogram(emulator: Emulator, seed: int, preempt: int, *, races: bool = True) -> tuple[Tensor, Tensor]:
    """(found, expected), each (ROWS, 256)."""
    x = torch.randn(ROWS, COLS + 5, generator=torch.manual_seed(seed))[:, :COLS]
    values = torch.zeros(ROWS, 256, dtype=torch.int32)
    arguments: dict[str, Tensor | int] = {"x": x, "values": values, "rows": ROWS, "cols": COLS, "row_stride": COLS + 5}
    emulator(ROWS, arguments, seed=seed, preempt=preempt, races=races)
    upper = x.numpy().view(np.uint32) >> 24
    expected = np.stack([np.bincount(row, minlength=256).cumsum() for row in upper])
    return values, torch.from_numpy(expected).int()


def run_cluster_sums(emulator: Emulator, seed: int, preempt: int, *, races: bool = True) -> tuple[Tensor, Tensor]:
    """(found, expected), each (ROWS, 64)."""
    x = torch.randint(0, 1000, (ROWS, COLS), dtype=torch.int32, generator=torch.manual_seed(seed))
    values = torch.zeros(ROWS, 64, dtype=torch.int32)
    arguments: dict[str, Tensor | int] = {"x": x, "values": values, "rows": ROWS, "cols": COLS, "row_stride": COLS}
    emulator(ROWS * 4, arguments, seed=seed, preempt=preempt, races=races)
    expected = np.stack([np.bincount(row % 64, minlength=64) for row in x.numpy()])
    return values, torch.from_numpy(expected).int()


@pytest.mark.parametrize(("seed", "preempt"), ORDERS)
def test_histogram(programs: Programs, histogram: CudaText, seed: int, preempt: int) -> None:
    found, expected = run_histogram(Emulator(histogram, programs.folder), seed, preempt)
    assert torch.equal(found, expected)


@pytest.mark.parametrize(("seed", "preempt"), ORDERS)
def test_cluster_sums(programs: Programs, cluster_sums: CudaText, seed: int, preempt: int) -> None:
    found, expected = run_cluster_sums(Emulator(cluster_sums, programs.folder), seed, preempt)
    assert torch.equal(found, expected)


def mutants(source: CudaText, statement: str) -> list[CudaText]:
    """The source with one occurrence of a statement taken out, for each."""
    places = [found.span() for found in re.finditer(re.escape(statement), source.text)]
    return [replace(source, text=source.text[:start] + ";" + source.text[end:]) for start, end in places]


@pytest.mark.parametrize(
    ("name", "statement", "run"),
    [
        ("histogram", "__syncthreads();", run_histogram),
        ("cluster_sums", "__syncthreads();", run_cluster_sums),
        ("cluster_sums", "tl::cluster_sync();", run_cluster_sums),
    ],
)
def test_every_barrier_is_needed(
    programs: Programs,
    request: pytest.FixtureRequest,
    name: str,
    statement: str,
    run: Callable[..., tuple[Tensor, Tensor]],
) -> None:
    source: CudaText = request.getfixturevalue(name)
    broken = mutants(source, statement)
    assert broken
    for mutant in broken:
        emulator = Emulator(mutant, programs.folder)
        for seed, preempt in ORDERS:
            with pytest.raises(EmulatorError, match=FAULTS):
                run(emulator, seed, preempt)


def test_a_missing_barrier_gives_wrong_numbers(programs: Programs, histogram: CudaText) -> None:
    emulator = Emulator(mutants(histogram, "__syncthreads();")[1], programs.folder)
    answers = [run_histogram(emulator, seed, 3, races=False) for seed in range(3)]
    assert not all(torch.equal(found, expected) for found, expected in answers)


def test_an_output_that_is_too_small(programs: Programs, histogram: CudaText) -> None:
    emulator = Emulator(histogram, programs.folder)
    x, values = torch.randn(2, 64), torch.zeros(2 * 256, dtype=torch.int32)[:-1]
    with pytest.raises(
        EmulatorError, match=r"thread 63 of block 1 writes 4 bytes at byte 2044 of values, which has 2044"
    ):
        emulator(2, {"x": x, "values": values, "rows": 2, "cols": 64, "row_stride": 64})
