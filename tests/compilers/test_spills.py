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
SPILL_OR_WRITE = re.compile(f"{SPILL.pattern}|{WRITE.pattern}")
AWAY = re.compile(r"@!?P\d BRA `\((\S+)\)")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8"])
def test_nothing_is_spilled_where_most_rows_pass(dtype: str, tmp_path: Path) -> None:
    """Up to the answer: two votes of the block, on full lists and on crowds, and one of two ways to a write."""
    problem = Problem.contiguous(1, 10_000_000, 100, dtype, "cuda")
    (source,) = registry.get("split_radix").program(SplitRadixConfig(132, 1024, 4, 8192), problem, H100).sources
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(source.compile(90).cubin)
    lines = subprocess.run([NVDISASM, "-c", cubin], capture_output=True, text=True, check=True).stdout.splitlines()
    votes = [number for number, line in enumerate(lines) if VOTE.search(line)]
    assert not any(map(SPILL.search, lines[: votes[1]]))
    away = next(found[1] for line in lines[votes[1] :] if (found := AWAY.search(line)))
    ways = lines[votes[1] :], lines[lines.index(f"{away}:") :]
    first = [next(line for line in way if SPILL_OR_WRITE.search(line)) for way in ways]
    assert any(map(WRITE.search, first))
