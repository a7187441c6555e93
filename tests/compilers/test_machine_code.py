"""What is packed of a real kernel: machine code for every GPU of a major number, and nothing beside it."""

from pathlib import Path

import pytest

from autotopk.cubin import without_debug
from autotopk.kernel import KernelSource
from tests.compilers.small_sources import pack
from tests.compilers.test_identity import masking_source
from tests.compilers.test_tilelang import ADD
from tests.packaging.processes import ROOT, run_python

pytestmark = pytest.mark.compile

SOURCES = [
    pytest.param(masking_source(), id="triton"),
    pytest.param(ADD, id="tilelang", marks=[pytest.mark.tilelang, pytest.mark.requires("nvcc", "g++")]),
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("arch", [90, 100])
def test_debug_sections_go_and_code_stays(source: KernelSource, arch: int) -> None:
    kernel = source.compile(arch)
    packed = without_debug(kernel.cubin)
    assert len(packed) == len(kernel.cubin)
    assert b".version" not in packed  # the text of PTX
    assert source.compile(arch).cubin == kernel.cubin  # else a pack would be another one every time
    assert (
        kernel.code == type(kernel)(packed, kernel.symbol, kernel.parameters, kernel.threads, kernel.shared_bytes).code
    )


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("arch", [100, 120])
def test_later_gpus_of_a_major_number_run_it(source: KernelSource, arch: int) -> None:
    """A cubin says what it was compiled for; sm_100a would be refused by 10.3."""
    cubin = source.compile(arch).cubin
    assert f"-arch sm_{arch} ".encode() in cubin


BARE = """
import importlib.metadata, sys

class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("triton", "tilelang", "tvm"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden)
found = importlib.metadata.version
def version(name):
    if name in ("triton", "tilelang"):
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)
importlib.metadata.version = version

from autotopk.compilers import triton
from tests.compilers.small_sources import pack
from tests.compilers.test_identity import masking_source
source = masking_source()
assert triton.reasons_unbuildable()
print(source.origin(90), source.known_as(90), source.load(90).code)
print(source.origin(80))
assert not {"triton", "tilelang"} & {*sys.modules}
"""


def test_a_bare_machine_runs_what_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = masking_source()
    monkeypatch.setenv("AUTOTOPK_PACKS", str(pack(tmp_path / "packs", [source], 90, 90)))
    code = source.known_as(90)
    told = run_python("-c", BARE, cwd=tmp_path, path=(ROOT,), PATH="", CUDA_HOME=str(tmp_path))
    assert told.stdout.split() == ["pack", code, code, "compiler"]
