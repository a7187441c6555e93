"""Compiled kernels are kept on disk, served without a compiler, and never trusted when damaged."""

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autotopk import registry
from autotopk.compilers.triton import TritonSource
from autotopk.device import H100
from autotopk.errors import BuildError
from autotopk.kernel import Kernel, KernelSource, Parameter
from autotopk.problem import Problem
from autotopk.program import KernelProgram

KERNEL = Kernel(
    cubin=b"\x7fELF\n\x00\xff",
    symbol="select_rows",
    parameters=(Parameter("x", "pointer"), Parameter("rows", "int32")),
    threads=64,
    shared_bytes=1024,
    cluster=2,
    cooperative=True,
    programmatic_launch=True,
    registers=40,
    spill_bytes=8,
)


@dataclass(frozen=True)
class CountingSource(KernelSource):
    """Counts compilations in a file."""

    log: Path
    code: str = "a"

    def cache_key(self) -> str:
        return self.code

    def compile(self, arch: int) -> Kernel:
        with self.log.open("a") as file:
            file.write("x")
        return replace(KERNEL, symbol=f"{self.code}_{arch}")

    @property
    def compilations(self) -> int:
        return len(self.log.read_text())


@pytest.fixture
def source(tmp_path: Path) -> CountingSource:
    return CountingSource(tmp_path / "log")


def test_kernel_survives_its_bytes() -> None:
    assert Kernel.from_bytes(KERNEL.to_bytes()) == KERNEL


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[]\ncubin",
        b"not json\ncubin",
        KERNEL.to_bytes()[:-1],
        KERNEL.to_bytes() + b"x",
        KERNEL.to_bytes().replace(b'"format": 1', b'"format": 99'),
        KERNEL.to_bytes().replace(b'"threads"', b'"strands"'),
        KERNEL.to_bytes().replace(b'"kind": "pointer", ', b""),
        b"\xff\xfe" + KERNEL.to_bytes(),
    ],
)
def test_damaged_bytes_are_refused(damaged: bytes) -> None:
    with pytest.raises(BuildError, match="not a cached kernel"):
        Kernel.from_bytes(damaged)


def test_compiles_once(source: CountingSource) -> None:
    first, second = source.load(90), source.load(90)
    assert first == second
    assert source.compilations == 1


def test_keeps_architectures_and_code_apart(source: CountingSource) -> None:
    kernels = [source.load(90), source.load(80), replace(source, code="b").load(90)]
    assert [kernel.symbol for kernel in kernels] == ["a_90", "a_80", "b_90"]
    assert source.compilations == 3


@pytest.mark.parametrize("content", [b"", b"garbage", b"{}\n", KERNEL.to_bytes()[:-3]])
def test_compiles_again_over_a_damaged_file(source: CountingSource, content: bytes) -> None:
    kernel = source.load(90)
    source.cache_path(90).write_bytes(content)
    assert source.load(90) == kernel
    assert source.compilations == 2
    assert source.load(90) == kernel
    assert source.compilations == 2


def test_an_unusable_folder_costs_a_compile_each_time(source: CountingSource) -> None:
    folder = source.cache_path(90).parent
    folder.parent.mkdir(parents=True)
    folder.write_text("a file where the folder should be")
    assert source.load(90) == source.load(90)
    assert source.compilations == 2


def test_leaves_no_temporary_files(source: CountingSource) -> None:
    source.load(90)
    assert [file.name for file in source.cache_path(90).parent.iterdir()] == [source.cache_path(90).name]


LOAD = """
import sys
from autotopk import registry
from autotopk.device import H100
from autotopk.problem import Problem
strategy, problem = registry.get("masked_argmax"), Problem.contiguous(64, 128, 5)
source = strategy.program(strategy.heuristic(problem, H100), problem, H100).sources[0]
kernel = source.load(90)
print(kernel.symbol, "triton" in sys.modules, source.cache_path(90))
"""


@pytest.mark.compile
def test_second_process_needs_no_compiler() -> None:
    def load() -> list[str]:
        run = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
        return run.stdout.split()

    symbol, imported, path = load()
    assert (symbol, imported) == ("autotopk_masked_argmax_topk_float32_largest_sorted", "True")
    assert load() == [symbol, "False", path]
    Path(path).write_bytes(Path(path).read_bytes()[:100])
    assert load() == [symbol, "True", path]


@pytest.mark.compile
def test_what_cannot_be_compiled_is_a_build_error() -> None:
    strategy, problem = registry.get("masked_argmax"), Problem.contiguous(64, 128, 5)
    program = strategy.program(strategy.shortlist(problem, H100)[0], problem, H100)
    assert isinstance(program, KernelProgram)
    assert isinstance(program.sources[0], TritonSource)
    broken = dict(program.sources[0].constants) | {"BLOCK_COLS": 100}  # no power of two
    with pytest.raises(BuildError, match=r"(?s)masked_argmax_rows for sm_90: .*power of 2"):
        replace(program.sources[0], constants=tuple(broken.items())).compile(90)
