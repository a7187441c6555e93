"""The three kernels of docs/first_strategy.md: all are compiled for GPUs, and two run in the emulator."""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from autotopk.device import H100
from autotopk.problem import Problem
from tests.emulator.emulator import Emulator
from tests.packaging.processes import ROOT

PACKAGE = "autotopk_rowmax"
PAGE = (ROOT / "docs/first_strategy.md").read_text()
LANGUAGES = (
    "triton",
    pytest.param("tilelang", marks=[pytest.mark.tilelang, pytest.mark.requires("nvcc", "g++")]),
    pytest.param("cuda", marks=pytest.mark.requires("nvcc", "g++")),
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What the page shows, as a package of its own."""
    folder = tmp_path / PACKAGE
    folder.mkdir()
    blocks = re.findall(r"^```\w+\n(?:#|//) (\w+\.(?:py|cu))\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for name, text in blocks:
        if name != "autotopk_max.py":
            (folder / name).write_text(text)
    assert len([*folder.iterdir()]) == 4
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module(PACKAGE)
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.mark.compile
@pytest.mark.parametrize("language", LANGUAGES)
def test_is_compiled(package: Any, language: str) -> None:
    problem = Problem.contiguous(4, 100, 1, "int32")
    config = package.Config(language)
    assert package.strategy.reasons_unable(problem, H100) == []
    assert config in package.strategy.shortlist(problem, H100)
    [launch] = package.strategy.program(config, problem, H100).launches
    kernel = launch.source.compile(90)
    assert kernel.cubin.startswith(b"\x7fELF")
    assert kernel.spill_bytes == 0
    assert launch.blocks(problem) == (4, 1, 1)


def tensors() -> dict[str, Any]:
    """Rows with many equals, one of the least and one of the greatest integers; results are to be written."""
    rows, cols, stride = 5, 77, 80
    data = torch.randint(-9, 9, (rows, stride), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    data[0], data[1] = -(2**31), 2**31 - 1
    values, indices = torch.full((rows, 1), 5, dtype=torch.int32), torch.full((rows, 1), -1)
    sizes = {"rows": rows, "cols": cols, "row_stride": stride}
    return {"x": data[:, :cols], "values": values, "indices": indices, **sizes}


def check(x: torch.Tensor, values: torch.Tensor, indices: torch.Tensor, **_: int) -> None:
    assert torch.equal(values, x.max(1, keepdim=True).values)
    first = (x == values).int().argmax(1, keepdim=True)
    assert torch.equal(indices, first)


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_is_right(package: Any, language: str, emulated_kernels: Path) -> None:
    arguments = tensors()
    Emulator(package.source_of(language).generate(90), emulated_kernels)((5, 1, 1), arguments)
    check(**arguments)


@pytest.mark.interpret
def test_triton_is_right(package: Any) -> None:
    arguments = tensors()
    kernel = import_module(f"{PACKAGE}.triton_max").max_rows
    kernel[(5,)](*(arguments[name] for name in ("x", "values", "indices", "cols", "row_stride")), BLOCK=128)
    check(**arguments)


def test_refuses_what_it_does_not_serve(package: Any) -> None:
    strategy = package.strategy
    for problem, reason in (
        (Problem.contiguous(4, 100, 2, "int32"), "k=2 is above 1"),
        (Problem.contiguous(4, 5000, 1, "int32"), "cols=5000 is above 4096"),
        (Problem.contiguous(4, 100, 1, "float32"), "float32 is not one of int32"),
    ):
        assert reason in strategy.reasons_unable(problem, H100)
