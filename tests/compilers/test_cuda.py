"""CUDA C++ of a package to a cubin: what is included, what a cached kernel is named for, and what errors say."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotopk.compilers.cuda import CudaSource, text_digest
from autotopk.errors import BuildError
from autotopk.kernel import Kernel, Parameter

KERNEL = """\
#include "add.cuh"
#include <cuda_fp16.h>
#include "add.cuh"  // again
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const int* x, int* values, long long cols) {
  if (threadIdx.x < cols) values[threadIdx.x] = add(x[threadIdx.x]);
}
"""
HEADER = "__device__ int add(int value) { return FLAG ? value + AMOUNT : value; }\n"
SOURCE = CudaSource(
    file="cuda_of_test/add.cu",
    constants=(("AMOUNT", 3), ("THREADS", 64), ("FLAG", True)),
    parameters=(("x", "pointer"), ("values", "pointer"), ("cols", "int64")),
    threads=64,
    symbol="add_three",
    shared_bytes=1024,
)


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cuda_of_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError\n")
    (folder / "add.cu").write_text(KERNEL)
    (folder / "add.cuh").write_text(HEADER)
    monkeypatch.syspath_prepend(tmp_path)
    text_digest.cache_clear()
    return folder


def key(source: CudaSource = SOURCE) -> str:
    text_digest.cache_clear()
    return source.cache_key()


@pytest.mark.compile
@pytest.mark.requires("nvcc", "g++")
@pytest.mark.parametrize("arch", [80, 90])
def test_compiles(arch: int) -> None:
    compiled = SOURCE.compile(arch)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert b"add_three" in compiled.cubin
    assert (compiled.symbol, compiled.threads, compiled.shared_bytes, compiled.cluster) == ("add_three", 64, 1024, 1)
    assert compiled.parameters == (
        Parameter("x", "pointer"),
        Parameter("values", "pointer"),
        Parameter("cols", "int64"),
    )
    assert 0 < compiled.registers < 64
    assert Kernel.from_bytes(compiled.to_bytes()) == compiled


def test_headers_of_the_package_are_inlined_once_and_constants_defined() -> None:
    text = SOURCE.generate(90).text
    assert text.count(HEADER) == 1
    assert "#include <cuda_fp16.h>" in text
    assert '#include "' not in text
    for line in ("#define KERNEL add_three", "#define AMOUNT 3", "#define FLAG 1"):
        assert f"{line}\n" in text


def test_lines_are_those_of_the_files(package: Path) -> None:
    lines = SOURCE.generate(90).text.splitlines()
    assert lines[lines.index('#line 2 "add.cu"') + 1] == "#include <cuda_fp16.h>"
    assert lines[lines.index('#line 4 "add.cu"') + 1].startswith('extern "C"')


def test_edits_of_device_code_alone_change_the_name(package: Path) -> None:
    before = key()
    (package / "__init__.py").write_text("raise ImportError  # not\n")
    assert key() == before
    (package / "add.cuh").write_text(HEADER + "// a comment\n")
    assert key() != before
    before = key()
    (package / "other.cuh").write_text("")  # which nothing includes
    assert key() == before
    (package / "add.cu").write_text(KERNEL + '#include "other.cuh"\n')
    assert key() != before


def test_constants_and_the_compiler_are_in_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [
        SOURCE,
        replace(SOURCE, constants=(("AMOUNT", 4),)),
        replace(SOURCE, threads=32),
        replace(SOURCE, cluster=2),
    ]
    assert len({key(source) for source in sources}) == len(sources)
    before = key()
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    assert key() != before


def test_headers_of_other_packages_must_be_declared(package: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared_of_test"
    shared.mkdir()
    (shared / "__init__.py").write_text("")
    (shared / "common.cuh").write_text("// common\n")
    (package / "add.cuh").write_text('#include "common.cuh"\n' + HEADER)
    with pytest.raises(BuildError, match=r'add\.cuh includes "common\.cuh", which is not beside it'):
        SOURCE.generate(90)
    source = replace(SOURCE, code_dependencies=("shared_of_test",))
    assert "// common\n" in source.generate(90).text
    before = key(source)
    (shared / "common.cuh").write_text("// uncommon\n")
    assert key(source) != before


@pytest.mark.parametrize("name", ["absent.cuh", "../secret.cuh", "__init__.py"])
def test_an_include_that_is_not_hashed_is_refused(package: Path, name: str) -> None:
    (package.parent / "secret.cuh").write_text("")
    (package / "add.cuh").write_text(f'#include "{name}"\n')
    with pytest.raises(BuildError, match=r"cuda_of_test/add\.cu: add\.cuh includes "):
        SOURCE.compile(90)


@pytest.mark.parametrize("file", ["cuda_of_test/none.cu", "no_such_package/add.cu", "autotopk.errors/add.cu"])
def test_a_missing_file_is_a_build_error(file: str) -> None:
    with pytest.raises(BuildError, match=file):
        replace(SOURCE, file=file).compile(90)


@pytest.mark.compile
@pytest.mark.requires("nvcc", "g++")
def test_errors_name_the_file_and_the_line(package: Path) -> None:
    (package / "add.cuh").write_text("\n" + HEADER.replace("AMOUNT", "UNKNOWN"))
    with pytest.raises(BuildError, match=r'(?s)cuda_of_test/add\.cu: .*add\.cuh\(2\).*"UNKNOWN" is undefined'):
        SOURCE.compile(90)
