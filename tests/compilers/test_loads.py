"""Lines of a row that are on their way at once, by the machine code: if they wait for each other, times double."""

import re
import subprocess
from pathlib import Path

import pytest
import triton

from autotopk import registry
from autotopk.device import H100
from autotopk.kernel import KernelSource
from autotopk.problem import Problem
from autotopk.strategies.cluster_lists import ClusterListsConfig
from autotopk.strategies.load_maxima import LoadMaximaConfig
from autotopk.strategies.stream_maxima import StreamMaximaConfig
from autotopk.strategy import Config

pytestmark = [pytest.mark.compile, pytest.mark.requires("nvcc")]

NVDISASM = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"

LOAD = re.compile(r"\bLDG\S*\.NA\.128\S* R(\d+),")
REGISTER = re.compile(r"\bR(\d+)\b")
WRITTEN = re.compile(r"(?:@!?U?P\d+\s+)?[A-Z][\w.]*\s+R\d+,")
"""An instruction up to the register that it writes, where it writes one: comparisons and stores have none there."""


def together(source: KernelSource, folder: Path) -> list[int]:
    """How many loads past the L1 cache are asked for before what any of them brings is looked at, one after another."""
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(source.compile(90).cubin)
    text = subprocess.run([NVDISASM, "-c", cubin], capture_output=True, text=True, check=True).stdout
    found, waiting, count = list[int](), set[int](), 0
    for line in text.splitlines():
        if load := LOAD.search(line):
            first = int(load[1])
            waiting |= {first, first + 1, first + 2, first + 3}
            count += 1
        elif waiting.intersection(int(number) for number in REGISTER.findall(WRITTEN.sub("", line, count=1))):
            found.append(count)
            waiting, count = set(), 0
    return found


@pytest.mark.parametrize(
    ("family", "config", "dtype", "least"),
    [
        ("load_maxima", LoadMaximaConfig(1, 512, 32, 512), "float32", [8, 8, 8]),
        ("load_maxima", LoadMaximaConfig(1, 256, 16, 256), "bfloat16", [4, 4, 4]),
        ("cluster_lists", ClusterListsConfig(1, 512, 16, 512), "float32", [16]),
        ("stream_maxima", StreamMaximaConfig(1, 256, 256, 512), "float32", [16]),
    ],
    ids=lambda one: one if isinstance(one, str) else None,
)
def test_lines_are_asked_for_at_once(family: str, config: Config, dtype: str, least: list[int], tmp_path: Path) -> None:
    strategy = registry.get(family)
    problem = Problem.contiguous(64, 30_000, 64, dtype, "cuda")
    (source,) = strategy.program(config, problem, H100).sources
    found = together(source, tmp_path)
    assert len(found) >= len(least)
    assert all(its >= limit for its, limit in zip(found, least, strict=False)), found
