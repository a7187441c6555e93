"""What kernels put away where most rows pass, by the machine code: it comes back from DRAM once a row was streamed."""

import re
import subprocess
from pathlib import Path

import pytest
import triton

from autotopk import registry
from autotopk.device import H100
from autotopk.problem import Problem
from autotopk.strategies.split_radix import SplitRadixConfig

pytestmark = [pytest.mark.compile, pytest.mark.requires("nvcc")]

NVDISASM = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
SPILL = re.compile(r"\b(?:STL|LDL)\b")
VOTE = re.compile(r"\bBAR\.RED\b")
WRITE = re.compile(r"\bSTG\b")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8"])
def test_nothing_is_spilled_where_most_rows_pass(dtype: str, tmp_path: Path) -> None:
    """Up to the answer: two votes of the block, on lists that are full and on crowds, and then a write."""
    problem = Problem.contiguous(1, 10_000_000, 100, dtype, "cuda")
    (source,) = registry.get("split_radix").program(SplitRadixConfig(132, 1024, 4, 8192), problem, H100).sources
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(source.compile(90).cubin)
    lines = subprocess.run([NVDISASM, "-c", cubin], capture_output=True, text=True, check=True).stdout.splitlines()
    votes = [number for number, line in enumerate(lines) if VOTE.search(line)]
    written = next(number for number, line in enumerate(lines) if number > votes[1] and WRITE.search(line))
    assert not any(SPILL.search(line) for line in lines[:written])
