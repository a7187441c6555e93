"""TileLang to CUDA source, nvcc to a cubin, and what happens where either is missing."""

import multiprocessing
import re
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from autotopk.compilers import nvcc
from autotopk.compilers.cuda import CudaText
from autotopk.compilers.device_code import device_digest
from autotopk.compilers.tilelang import TileLangSource, reasons_unbuildable
from autotopk.errors import BuildError
from autotopk.files import write_atomically
from autotopk.kernel import Kernel
from autotopk.tuning import compile_pool

ADD = TileLangSource("tests.compilers.small_kernels:add", (("amount", 1),))
CLUSTER_SUM = TileLangSource("tests.compilers.small_kernels:cluster_sum", (("blocks", 4), ("cells", 96)))


def with_constants(source: TileLangSource, **constants: int | bool | str) -> TileLangSource:
    return replace(source, constants=tuple((dict(source.constants) | constants).items()))


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "_places", lambda: iter(()))


def fake_nvcc(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in nvcc's place, found before any other."""
    path = folder / "toolkit" / "bin" / "nvcc"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(folder / "toolkit"))
    return path


# What TileLang generates


@pytest.mark.compile
@pytest.mark.tilelang
@pytest.mark.parametrize("source", [ADD, CLUSTER_SUM])
def test_parameters_stand_as_in_the_generated_source(source: TileLangSource) -> None:
    generated = source.generate(90)
    entry = re.search(rf"{generated.symbol}\(([^)]*)\)", generated.text)
    assert entry
    found = []
    for declaration in entry[1].split(","):
        words = declaration.replace("__restrict__", "").replace("const", "").split()
        kind = "pointer" if "*" in declaration else {"int": "int32", "int64_t": "int64"}[words[0]]
        found.append((words[-1], kind))
    assert found == [(parameter.name, parameter.kind) for parameter in generated.parameters]
    assert {"x", "values", "cols", "row_stride"} <= {name for name, _ in found}


@pytest.mark.compile
@pytest.mark.tilelang
def test_launch_shape_is_the_kernels() -> None:
    def shape(source: CudaText) -> tuple[int, int, int, bool]:
        return source.threads, source.cluster, source.shared_bytes, source.programmatic_launch

    assert shape(ADD.generate(80)) == (128, 1, 0, False)
    assert shape(with_constants(ADD, threads=64, early=True).generate(90)) == (64, 1, 0, True)
    assert shape(CLUSTER_SUM.generate(90)) == (128, 4, 96 * 4, False)


@pytest.mark.compile
@pytest.mark.tilelang
def test_a_parameter_that_no_launch_provides_is_a_build_error() -> None:
    with pytest.raises(BuildError, match=r"small_kernels:scale for sm_90: .*parameter weight \(float32\)"):
        TileLangSource("tests.compilers.small_kernels:scale", ()).generate(90)


@pytest.mark.compile
@pytest.mark.tilelang
@pytest.mark.parametrize("constants", [(), (("amount", 1), ("unknown", 2)), (("amount", 1), ("dtype", "float31"))])
def test_what_cannot_be_built_is_a_build_error(constants: tuple[tuple[str, int | str], ...]) -> None:
    with pytest.raises(BuildError, match="small_kernels:add for sm_90: "):
        replace(ADD, constants=constants).generate(90)


# What nvcc makes of it


@pytest.mark.compile
@pytest.mark.requires("nvcc", "g++")
@pytest.mark.tilelang
@pytest.mark.parametrize(("source", "arch"), [(ADD, 80), (ADD, 90), (ADD, 120), (CLUSTER_SUM, 90), (CLUSTER_SUM, 100)])
def test_compiles(source: TileLangSource, arch: int) -> None:
    compiled, generated = source.compile(arch), source.generate(arch)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert generated.symbol.encode() in compiled.cubin
    assert type(generated.text) is str  # TVM's own kind crashes the process when a record of it is copied deeply
    assert 0 < compiled.registers < 64
    assert compiled.spill_bytes == 0
    for name in ("symbol", "parameters", "threads", "shared_bytes", "cluster", "programmatic_launch", "cooperative"):
        assert getattr(compiled, name) == getattr(generated, name)
    assert Kernel.from_bytes(compiled.to_bytes()) == compiled


@pytest.mark.compile
@pytest.mark.requires("nvcc", "g++")
@pytest.mark.tilelang
def test_leaves_nothing_behind(temporary: Path) -> None:
    ADD.compile(90)
    with pytest.raises(BuildError):
        with_constants(CLUSTER_SUM, cuda="nonsense;\n").compile(90)
    assert list(temporary.iterdir()) == []


@pytest.mark.compile
@pytest.mark.requires("nvcc", "g++")
@pytest.mark.tilelang
def test_wrong_cuda_source_is_a_build_error_that_shows_it() -> None:
    wrong = "__device__ void remote_add(int *cell, int value, int rank) { *cell = undeclared; }\n"
    with pytest.raises(BuildError, match=r'small_kernels:cluster_sum: nvcc for sm_90a: .*"undeclared" is undefined'):
        with_constants(CLUSTER_SUM, cuda=wrong).compile(90)


FRAME = """
extern "C" __global__ void {name}(int *x, int n) {{
  int kept[{kept}];
  for (int i = 0; i < {kept}; i++) kept[i] = x[i];
  x[threadIdx.x] = kept[n];
}}
"""
"""An array in local memory without a register spilled."""

SPILL = """
extern "C" __global__ void __launch_bounds__(1024, 2) {name}(int *x, int n) {{
  int v[64];
  #pragma unroll
  for (int i = 0; i < 64; i++) v[i] = x[i * n];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 64; i++) x[v[63 - i]] = v[i] * v[(i + 3) % 64];
}}
"""
"""Sixty-four values in the thirty-two registers that 2048 threads leave each."""


@pytest.mark.compile
@pytest.mark.requires("nvcc", "g++")
def test_spills_are_told_from_arrays_and_from_other_kernels() -> None:
    text = FRAME.format(name="frame", kept=20) + SPILL.format(name="spill")
    frame, spill = nvcc.compile(text, 90, "frame"), nvcc.compile(text, 90, "spill")
    assert frame.cubin == spill.cubin
    assert frame.spill_bytes == 0
    assert 0 < frame.registers != spill.registers
    assert spill.registers == 32
    assert spill.spill_bytes > 100


@pytest.mark.compile
@pytest.mark.requires("nvcc", "g++")
@pytest.mark.tilelang
def test_processes_compile_at_once(cache_dir: Path) -> None:
    """As the tuner does: one kernel several times over, and another."""
    sources = [ADD, ADD, with_constants(ADD, amount=2), CLUSTER_SUM]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(compile_pool._compile, sources, [90] * len(sources)))
    assert [result.status for result in results] == ["ok"] * len(sources)
    assert all(result.stats["registers"] > 0 for result in results)
    files = list((cache_dir / "kernels").iterdir())
    assert {Kernel.from_bytes(file.read_bytes(), file.name).threads for file in files} == {128}
    assert len(files) == 3


# Where nvcc is looked for, and where it is not


def test_nvcc_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plant(*parts: str) -> Path:
        path = tmp_path.joinpath(*parts)
        path.parent.mkdir(parents=True)
        path.touch(0o755)
        return path

    home, path = plant("home", "bin", "nvcc"), plant("path", "nvcc")
    older, newer = plant("site", "nvidia", "cu13", "bin", "nvcc"), plant("site", "nvidia", "cu14", "bin", "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    order = []
    for expected in (home, path, newer, older):
        order.append(nvcc.find())
        expected.chmod(0o644)  # not a program any more
    assert order == [home, path, newer, older]
    assert nvcc.find() not in order
    assert "nvidia" not in sys.modules


@pytest.mark.tilelang
@pytest.mark.usefixtures("no_nvcc")
def test_without_nvcc_the_error_says_how_to_get_it() -> None:
    with pytest.raises(BuildError, match=r"small_kernels:add cannot .*nvcc is not found \(pip install "):
        ADD.load(90)
    assert ADD.generate(90).text  # the half that needs none


def test_without_a_host_compiler_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvcc(tmp_path, "exit 0", monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"install g\+\+"):
        nvcc.compile("", 90, "add")
    monkeypatch.setenv("NVCC_CCBIN", "/opt/compiler")
    assert nvcc.reasons_missing() == []


@pytest.mark.compile
@pytest.mark.requires("nvcc", "g++")
def test_a_host_compiler_that_does_not_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_CCBIN", str(tmp_path / "absent"))
    with pytest.raises(BuildError, match="host compiler does not run"):
        nvcc.compile('extern "C" __global__ void f() {}', 90, "f")


def test_an_endless_nvcc_is_stopped_with_its_children(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvcc(tmp_path, f"sh -c 'sleep 1; touch {tmp_path}/survived' & wait", monkeypatch)
    monkeypatch.setenv("NVCC_CCBIN", "any")
    monkeypatch.setattr(nvcc, "TIMEOUT_S", 0.2)
    with pytest.raises(BuildError, match=r"longer than 0\.2 s"):
        nvcc.compile("", 90, "add")
    assert list(temporary.iterdir()) == []
    subprocess.run(["sleep", "1.2"], check=True)
    assert not (tmp_path / "survived").exists()


@pytest.mark.parametrize("script", ["exit 3", "echo nonsense >&2; exit 3", "kill -SEGV $$"])
def test_a_failing_nvcc_is_a_build_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    fake_nvcc(tmp_path, script, monkeypatch)
    monkeypatch.setenv("NVCC_CCBIN", "any")
    with pytest.raises(BuildError, match=r"nvcc for sm_90a: (exit status 3|nonsense|exit status -11)"):
        nvcc.compile("", 90, "add")


# Kept kernels

CACHED = """
import sys
from importlib.metadata import PackageNotFoundError
from autotopk import kernel
from autotopk.compilers import nvcc
from autotopk.compilers.tilelang import TileLangSource, reasons_unbuildable
installed = sys.argv[1] == "installed"
if not installed:  # nothing to import, no distribution, no compiler, no process
    sys.modules["tilelang"] = sys.modules["tvm"] = None
    import importlib.metadata
    version = importlib.metadata.version
    def absent(name):
        if name == "tilelang":
            raise PackageNotFoundError(name)
        return version(name)
    importlib.metadata.version = absent
    nvcc._places = lambda: iter(())
    def refuse(event, arguments):
        if event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork"):
            raise RuntimeError(event)
    sys.addaudithook(refuse)
source = TileLangSource("tests.compilers.small_kernels:add", (("amount", int(sys.argv[2])),))
compiled = source.load(90)
print(compiled.symbol, len(compiled.cubin), sys.modules.get("tilelang") is not None, bool(reasons_unbuildable()))
"""


@pytest.mark.compile
@pytest.mark.requires("nvcc", "g++")
@pytest.mark.tilelang
def test_kept_kernel_is_served_where_no_compiler_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc/no-home")  # TileLang alone cannot be imported without one

    def load(machine: str, amount: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CACHED, machine, str(amount)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])

    first = load("installed", 1)
    symbol, size, imported, unbuildable = first.stdout.split()
    assert (symbol, imported, unbuildable, first.stderr) == ("add_to_rows_kernel", "True", "False", "")
    again = load("installed", 1)
    assert (again.stdout.split(), again.stderr) == ([symbol, size, "False", "False"], "")
    elsewhere = load("bare", 1)
    assert (elsewhere.stdout.split(), elsewhere.stderr) == ([symbol, size, "False", "True"], "")
    missing = load("bare", 2)
    assert missing.returncode
    assert (
        'tilelang is not installed (pip install "tilelang>=0.1.15"); nvcc is not found (pip install' in missing.stderr
    )


def test_another_tilelang_keeps_its_own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def path(version: str) -> Path:
        monkeypatch.setattr("autotopk.compilers.tilelang.distribution_version", lambda name: version)
        return ADD.cache_path(90)

    write_atomically(path("0.1.15"), b"kept")
    assert path("0.1.15") != path("0.1.16")
    assert path("absent") == path("0.1.15")
    assert path("0.1.15") != ADD.cache_path(80)


def test_tilelang_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotopk.compilers.tilelang.distribution_version", lambda name: "absent")
    assert reasons_unbuildable()[0] == 'tilelang is not installed (pip install "tilelang>=0.1.15")'


def test_identity_holds_the_constants() -> None:
    sources = [ADD, with_constants(ADD, amount=2), with_constants(ADD, threads=64), CLUSTER_SUM]
    assert len({source.cache_key() for source in sources}) == len(sources)
    assert with_constants(ADD, amount=1).cache_key() == ADD.cache_key()


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that cannot be imported, outside every builder's folder."""
    folder = tmp_path / "shared_by_test"
    shutil.copytree(Path(nvcc.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "__init__.py").write_text("raise ImportError\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_shared_code_is_part_of_the_cache_key(shared: Path) -> None:
    """Byte by byte, but for the package's `__init__.py`, which is host code."""
    source = replace(ADD, code_dependencies=("shared_by_test",))

    def key() -> str:
        device_digest.cache_clear()
        return source.cache_key()

    before = key()
    assert before != ADD.cache_key()
    (shared / "__init__.py").write_text("raise ImportError  # not\n")
    assert key() == before
    with (shared / "nvcc.py").open("a") as file:
        file.write("# a comment\n")
    assert key() != before
    before = key()
    (shared / "header.cuh").write_text("// of any suffix\n")
    assert key() != before


@pytest.mark.parametrize("name", ["not_there", "autotopk.not_there", "not_there.at_all"])
def test_shared_code_that_is_not_there_is_a_build_error(name: str) -> None:
    with pytest.raises(BuildError, match=f"{name} has no source file"):
        replace(ADD, code_dependencies=(name,)).cache_key()
