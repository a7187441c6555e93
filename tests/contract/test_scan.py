"""The counting scan that every radix kernel selects, places and sorts with."""

from pathlib import Path

import pytest
import torch

from autotopk.compilers.tilelang import TileLangSource
from tests.emulator.emulator import Emulator

pytestmark = [pytest.mark.requires("g++"), pytest.mark.tilelang]


@pytest.mark.parametrize("threads", [32, 64, 512, 1024])
def test_sums_over_lower_threads_and_over_all(threads: int, emulated_kernels: Path) -> None:
    source = TileLangSource("tests.contract.scan_kernels:scan_counts", (("threads", threads),))
    scan = Emulator(source.generate(90), emulated_kernels)
    counts = {
        "none": torch.zeros(threads),
        "ones": torch.ones(threads),
        "first": torch.arange(threads) == 0,
        "last": torch.arange(threads) == threads - 1,
        "any": torch.randint(0, 1 << 20, (threads,), generator=torch.Generator().manual_seed(threads)),
    }
    for name, some in counts.items():
        x = some.to(torch.int32)
        expected = torch.cat([torch.zeros(1, dtype=torch.int32), x.cumsum(0, dtype=torch.int32)])
        for seed in range(3):
            values = torch.full((threads + 1,), -7, dtype=torch.int32)
            scan(1, {"x": x, "values": values}, seed=seed, preempt=20)
            assert torch.equal(values[:-1], expected[:-1]), name
            assert values[-1] == expected[-1], name
