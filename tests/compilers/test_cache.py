"""Compiled kernels are kept on disk, served without a compiler, and never trusted when damaged."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotopk import kernel_cache, registry
from autotopk.compilers.triton import TritonSource
from autotopk.device import H100
from autotopk.errors import BuildError, DamagedKernelError
from autotopk.kernel import FORMAT, Kernel, Parameter
from autotopk.problem import Problem
from autotopk.program import KernelProgram
from tests.compilers.small_sources import KERNEL, CountingSource, forged, header, sealed


@pytest.fixture
def source(tmp_path: Path) -> CountingSource:
    return CountingSource(tmp_path / "log")


def test_kernel_survives_its_bytes() -> None:
    assert Kernel.from_bytes(KERNEL.to_bytes()) == KERNEL


def refused(data: bytes) -> bool:
    try:
        Kernel.from_bytes(data)
    except DamagedKernelError as error:
        return str(error).startswith("not a cached kernel: ")
    return False


def test_every_flipped_bit_is_refused() -> None:
    data = KERNEL.to_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert refused(bytes(flipped)), bit


CONTENTS = [
    b"",
    b"\n",
    b"5",
    b"5\n",
    b"{}\n",
    b"[]\ncubin",
    b"not json\ncubin",
    b"\xff\xfe\x00\ncubin",
    b"[" * 100_000,
    b"[" * 8_000 + b"\ncubin",
    b'{"threads":' * 1_400 + b"\ncubin",
    b'{"threads": ' + b"9" * 10_000 + b"}\ncubin",
    b" " * (20 << 10) + KERNEL.to_bytes()[len(sealed(b"")) :],
    json.dumps(header(KERNEL)).encode(),  # without a cubin
]


@pytest.mark.parametrize("content", CONTENTS, ids=[str(number) for number in range(len(CONTENTS))])
def test_whatever_a_file_holds_is_refused(content: bytes) -> None:
    assert refused(content)
    assert refused(sealed(content))


@pytest.mark.parametrize(
    "damaged",
    [
        KERNEL.to_bytes()[:-1],
        KERNEL.to_bytes() + b"x",
        KERNEL.to_bytes().replace(f"kernel {FORMAT}".encode(), b"kernel 99"),
        sealed(KERNEL.to_bytes()),
        sealed(KERNEL.to_bytes() + bytes(kernel_cache.MAX_BYTES)),
    ],
    ids=["short", "long", "newer", "twice", "huge"],
)
def test_damaged_bytes_are_refused(damaged: bytes) -> None:
    assert refused(damaged)


ODD = (None, True, -1, 1.0, "64", [64], {"a": 1}, 10**30)
ODD_FIELDS: dict[str, Sequence[Any]] = {
    "threads": (*ODD, 0, 1025),
    "shared_bytes": (*ODD, 232_449),
    "cluster": (*ODD, 0, 17),
    "registers": (*ODD, 256),
    "spill_bytes": (*ODD, (1 << 20) + 1),
    "cooperative": (None, 0, 1, "true", []),
    "programmatic_launch": (None, 0, 1, "true", []),
    "symbol": (None, 5, "", "1a", "a b", "a\n", "ä", "\ud800", "a" * 257, ["a"]),
    "parameters": (
        None,
        5,
        "x",
        {"name": "x", "kind": "pointer"},
        ["x"],
        [[]],
        [{}],
        [{"name": "x"}],
        [{"name": "x", "kind": "int8"}],
        [{"name": "x", "kind": ["pointer"]}],
        [{"name": "x y", "kind": "pointer"}],
        [{"name": 5, "kind": "pointer"}],
        [{"name": "x", "kind": "pointer", "more": 1}],
        [{"name": "x", "kind": "pointer"}] * 41,
    ),
    "cubin": ("abc",),
    "unknown": (1,),
}


@pytest.mark.parametrize("field", ODD_FIELDS)
def test_a_right_digest_makes_no_field_valid(field: str) -> None:
    assert Kernel.from_bytes(forged(KERNEL)) == KERNEL
    for value in ODD_FIELDS[field]:
        assert refused(forged(KERNEL, **{field: value})), value


@pytest.mark.parametrize("field", ["symbol", "parameters", "threads"])
def test_a_right_digest_makes_no_missing_field_good(field: str) -> None:
    fields = header(KERNEL)
    del fields[field]
    assert refused(sealed(json.dumps(fields).encode() + b"\n"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("threads", 2048, "threads 2048 of a kernel is no integer from 1 to 1024"),
        ("shared_bytes", 1 << 20, "shared_bytes 1048576 of a kernel is no integer from 0 to 232448"),
        ("cooperative", 1, "cooperative 1 of a kernel is no boolean"),
        ("parameters", (Parameter("x", "pointer"),) * 41, "at most 40 parameters"),
        ("symbol", "", "'' is no name of a kernel or a parameter"),
    ],
)
def test_a_compiler_that_makes_no_kernel_is_a_build_error(field: str, value: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        replace(KERNEL, **{field: value})


def test_compiles_once(source: CountingSource) -> None:
    first, second = source.load(90), source.load(90)
    assert first == second
    assert source.compilations == 1


def test_keeps_architectures_and_code_apart(source: CountingSource) -> None:
    kernels = [source.load(90), source.load(80), replace(source, code="b").load(90)]
    assert [kernel.symbol for kernel in kernels] == ["a_90", "a_80", "b_90"]
    assert source.compilations == 3


@pytest.mark.parametrize("content", [b"", b"garbage", b"5", b"[" * 100_000, KERNEL.to_bytes()[:-3]])
def test_compiles_again_over_a_damaged_file(source: CountingSource, content: bytes) -> None:
    kernel = source.load(90)
    source.cache_path(90).write_bytes(content)
    assert source.load(90) == kernel
    assert source.compilations == 2
    assert source.load(90) == kernel
    assert source.compilations == 2


def in_place_of_a_file(kind: str, path: Path) -> None:
    path.parent.mkdir(parents=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to nowhere":
        path.symlink_to("nowhere")
    elif kind == "endless device":
        path.symlink_to("/dev/zero")
    elif kind == "unreadable":
        path.touch(0o000)


@pytest.mark.parametrize("kind", ["FIFO", "folder", "link to nowhere", "endless device", "unreadable"])
@pytest.mark.parametrize("where", ["file", "lock"])
@pytest.mark.filterwarnings("error")
def test_what_is_no_file_costs_a_compile(source: CountingSource, kind: str, where: str) -> None:
    path = source.cache_path(90)
    in_place_of_a_file(kind, path if where == "file" else path.with_suffix(".lock"))
    assert source.cached(90) is None
    assert not source.is_cached(90) or kind == "unreadable"  # which root can read
    assert source.load(90) == source.load(90)
    assert source.compilations == 1
    assert path.is_file() or kind == "folder"
    assert source.is_cached(90)


@pytest.mark.parametrize("where", ["cache", "cache/kernels"])
@pytest.mark.parametrize("kind", ["a file", "FIFO"])
def test_an_unusable_folder_costs_a_process_one_compile(
    source: CountingSource, where: str, kind: str, tmp_path: Path
) -> None:
    place = tmp_path / where
    place.parent.mkdir(exist_ok=True)
    os.mkfifo(place) if kind == "FIFO" else place.write_text("a file where the folder should be")
    assert source.load(90) == source.load(90) == source.cached(90)
    assert source.compilations == 1


def test_a_good_file_in_the_place_of_another_is_refused(source: CountingSource) -> None:
    other = replace(source, code="b")
    other.load(90)
    other.cache_path(90).rename(source.cache_path(90))
    assert source.load(90).symbol == "a_90"


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
    assert (symbol, imported) == ("autotopk_masked_argmax_float32", "True")
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
