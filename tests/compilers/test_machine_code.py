"""What is packed of a real kernel: machine code for every GPU of a major number, and nothing beside it."""

import pytest

from autotopk.cubin import without_debug
from autotopk.kernel import KernelSource
from tests.compilers.test_identity import masking_source
from tests.compilers.test_tilelang import ADD

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
