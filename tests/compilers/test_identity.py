"""What is measured is known by the code that runs, and not by its name, its comments or where it was compiled."""

import re
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from autotopk import registry
from autotopk.compilers.triton import SWITCHES, TritonSource
from autotopk.cubin import code_digest
from autotopk.device import H100
from autotopk.identity import python_digest
from autotopk.kernel import Kernel, Parameter
from autotopk.problem import Problem
from autotopk.program import Extent, HostProgram, KernelProgram
from tests.compilers.small_sources import KERNEL, CountingSource

SOURCE = '''
class C:
    """{docstring}"""

    def f(self, x: int = {default}) -> str:  # {comment}
        return f"{{x!r}} {{self}}"
'''


def elf(*sections: tuple[str, int, bytes]) -> bytes:
    """A file of 64 bits with sections of these names, flags and contents."""
    names, contents, headers = b"\0.shstrtab\0", b"", [struct.pack("<2I4Q2I2Q", *[0] * 10)]
    start = 64
    for name, flags, content in sections:
        at, names = len(names), names + name.encode() + b"\0"
        headers.append(struct.pack("<2I4Q2I2Q", at, 1, flags, 0, start + len(contents), len(content), 0, 0, 1, 0))
        contents += content
    headers.append(struct.pack("<2I4Q2I2Q", 1, 3, 0, 0, start + len(contents), len(names), 0, 0, 1, 0))
    table = start + len(contents) + len(names)
    header = struct.pack(
        "<16s2HI3QI6H", b"\x7fELF\x02", 2, 190, 1, 0, 0, table, 0, 64, 0, 0, 64, len(headers), len(headers) - 1
    )
    return header + contents + names + b"".join(headers)


LOADED = 2
CUBIN = elf((".text.rows", LOADED, b"code"), (".nv.info.rows", 0, b"launch"), (".debug_line", 0, b"lines"))


def test_names_and_debug_sections_do_not_count() -> None:
    renamed = elf((".debug_line", 0, b"other lines"), (".text.r", LOADED, b"code"), (".nv.info.r", 0, b"launch"))
    assert code_digest(renamed, "r") == code_digest(CUBIN, "rows")


@pytest.mark.parametrize(
    "other",
    [
        elf((".text.rows", LOADED, b"cODE"), (".nv.info.rows", 0, b"launch")),
        elf((".text.rows", LOADED, b"code"), (".nv.info.rows", 0, b"LAUNCH")),
        elf((".text.rows", LOADED, b"code"), (".nv.info.rows", 0, b"launch"), (".nv.constant0.rows", LOADED, b"\0")),
        CUBIN[:-1],
        b"",
        b"no cubin",
    ],
)
def test_other_code_is_told(other: bytes) -> None:
    assert code_digest(other, "rows") != code_digest(CUBIN, "rows")


def test_how_a_kernel_is_launched_is_part_of_its_code() -> None:
    changed: list[Kernel] = [
        replace(KERNEL, threads=128),
        replace(KERNEL, shared_bytes=0),
        replace(KERNEL, cluster=4),
        replace(KERNEL, programmatic_launch=False),
        replace(KERNEL, cooperative=False),
        replace(KERNEL, parameters=(*KERNEL.parameters, Parameter("k", "int32"))),
    ]
    assert len({kernel.code for kernel in [KERNEL, *changed]}) == len(changed) + 1
    assert replace(KERNEL, registers=1, spill_bytes=1).code == KERNEL.code


def test_the_grid_is_part_of_what_was_measured(tmp_path: Path) -> None:
    source = CountingSource(tmp_path / "log")
    problem = Problem.contiguous(5, 8, 2)
    one, other = (KernelProgram.of(source, Extent(blocks)).identity(problem, 90) for blocks in (1, 2))
    assert one.source != other.source
    assert one.code != other.code
    assert KernelProgram.of(source, Extent(per=(("rows", 5),))).identity(problem, 90) == one
    assert source.compilations == 1


def test_python_code_is_told_from_prose(tmp_path: Path) -> None:
    """The digits are the same under every Python: winners are tuned under one and served under another."""

    def digest(**parts: object) -> str:
        python_digest.cache_clear()
        (tmp_path / "operators.py").write_text(SOURCE.format(**parts))
        return python_digest(tmp_path / "operators.py")

    before = digest(docstring="One.", default=1, comment="one")
    assert before == "ab98030a1348bc521d1c13aeee06f8af"
    assert digest(docstring="Two.", default=1, comment="two") == before
    assert digest(docstring="One.", default=2, comment="one") != before


def test_operators_are_known_by_their_file() -> None:
    fallback = registry.get("torch_fallback")
    problem = Problem.contiguous(4, 4096, 5, device_type="cpu")
    programs = {
        method: fallback.program(fallback.config_type(method, chunk), problem, H100)
        for method, chunk in (("topk", 0), ("sort", 0), ("chunked", 512))
    }
    codes = {method: program.identity(problem, 0).code for method, program in programs.items()}
    assert codes["sort"] == codes["chunked"] != codes["topk"]

    def here(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x

    assert HostProgram(here).identity(problem, 0) == HostProgram(partial(here)).identity(problem, 0)
    assert HostProgram(here).identity(problem, 0).code == python_digest(Path(__file__))
    assert HostProgram(torch.sort).identity(problem, 0).code != codes["topk"]


def masking_source() -> TritonSource:
    """A kernel of masked_argmax."""
    strategy, problem = registry.get("masked_argmax"), Problem.contiguous(64, 128, 5)
    program = strategy.program(strategy.shortlist(problem, H100)[0], problem, H100)
    assert isinstance(program, KernelProgram)
    assert isinstance(program.sources[0], TritonSource)
    return program.sources[0]


def masking(**changes: Any) -> str:
    """The cache key of that kernel, with another of its source's fields."""
    return replace(masking_source(), **changes).cache_key()


def test_cached_kernels_are_named_for_their_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    before = masking()
    assert masking(stages=2) != before
    assert masking(warps=8) != before
    assert masking(symbol="other") != before
    keys = {before}
    for switch in SWITCHES:
        with monkeypatch.context() as patch:
            patch.setenv(switch, "1")
            keys.add(masking())
    assert len(keys) == len(SWITCHES) + 1
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    assert masking() == before


HARMLESS = (
    r"AMDGCN_.*|TRITON_HIP_.*|TRITON_LIBHIP_PATH",  # for GPUs of another make
    r".*DUMP.*|TRITON_FRONT_END_DEBUGGING|TRITON_PRINT_AUTOTUNING|TRITON_PROTON_.*|TRITON_PROFILE_.*",  # reports
    r"TRITON_(HOME|CACHE_.*|REDIS_.*|REMOTE_CACHE_BACKEND|STORE_BINARY_ONLY|ALWAYS_COMPILE)",  # its own cache
    r"CC|TRITON_CUDA(CRT|RT)_PATH|TRITON_LIBCUDA_PATH|TRITON_(CUOBJDUMP|NVDISASM)_PATH",  # programs beside the compiler
    r"TRITON_BUILD_.*|TRITON_INTERPRET|TRITON_ALLOW_NON_CONSTEXPR_GLOBALS|TRITON_DEBUG",  # not for `triton.compile`
    r"TRITON_ENABLE_(NVTX|HW_TRACE|LLVM_DEBUG|PYTHON_STACKTRACE)|USE_IR_LOC",  # names and line numbers
)


@pytest.mark.compile
def test_every_switch_of_triton_is_known() -> None:
    """A later Triton's further variables fail here: each decides about machine code, or does not."""
    text = (Path(pytest.importorskip("triton").__file__).parent / "knobs.py").read_text()
    found = set(re.findall(r'env_\w+(?:\[[^\]]*\])?\("([A-Z][A-Z0-9_]*)"', text))
    found |= {f"TRITON_{tool.upper().replace('-', '_')}_PATH" for tool in re.findall(r'env_nvidia_tool\("(.*?)"', text)}
    assert {"TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "DISABLE_PTXAS_OPT"} <= found
    assert {name for name in found - set(SWITCHES) if not any(re.fullmatch(one, name) for one in HARMLESS)} == set()


@pytest.mark.compile
@pytest.mark.parametrize("switch", ["DISABLE_PTXAS_OPT", "TRITON_DISABLE_LINE_INFO"])
def test_a_switch_that_makes_other_code_makes_another_name(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = masking_source()
    name, code = before.cache_path(90), before.compile(90).code
    monkeypatch.setenv(switch, "1")
    assert before.compile(90).code != code
    assert before.cache_path(90) != name
