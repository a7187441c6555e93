"""A model on the CPU, compiled, and run without Python: the whole way but for the kernels."""

import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autotopk import export
from autotopk.errors import BuildError
from autotopk.export import native
from scripts import aot
from tests.export.models import exported, package, run

pytestmark = [pytest.mark.requires("c++"), pytest.mark.filterwarnings("ignore")]


def several(x: Tensor, y: Tensor) -> list[Tensor]:
    answers = torch.topk(x, 5), torch.topk(y, k=2, dim=1, largest=False), torch.topk(x[:0], 3), torch.topk(y, 0, 0)
    return [one for pair in answers for one in pair]


def test_a_package_answers_as_eager_calls(tmp_path: Path) -> None:
    x, y = torch.randn(64, 128), torch.randn(3, 7, 4).half()
    x[3, 5], x[4, 6], y[0, 0, 0] = float("nan"), float("inf"), float("-inf")
    as_exported = package(exported(several, x, y), tmp_path / "torch.pt2")
    program = exported(several, x, y)
    found = export.replace_topk(program, always=True)
    assert all(site.by == "the library, by torch.topk" for site in found.sites), found
    ours = package(program, tmp_path / "ours.pt2", **found.inductor_configs)
    assert (aot.asks_torch(as_exported), aot.asks_torch(ours)) == (True, False)

    ran = run([(as_exported, [x, y]), (ours, [x, y])], tmp_path, rounds=1)
    for outputs in ran.outputs:
        for output, expected in zip(outputs, several(x, y), strict=True):
            assert output.dtype == expected.dtype
            assert torch.equal(output.nan_to_num(), expected.nan_to_num())
    assert [Path(line["model"]).stem for line in ran.times] == ["torch", "ours"]
    assert all(line["call_us"] > 0 for line in ran.times)
    loaded = torch._inductor.aoti_load_package(str(ours))
    assert torch.equal(loaded(x, y)[1], torch.topk(x, 5).indices)


def test_the_runner_says_what_is_wrong() -> None:
    runner = native.runner()
    for arguments, told in (
        ((), "usage: run_model"),
        (("--speed", "2", "a", "b", "c"), "unknown option --speed"),
        (("--library", "/none.so", "a", "b", "c"), "/none.so"),
        (("--device", "gpu", "a", "b", "c"), "--device gpu is neither cuda nor cpu"),
        (("--rounds", "many", "a", "b", "c"), '--rounds "many" is no whole number'),
        (("--device", "cpu", "/none.pt2", "x", "-"), "none.pt2"),
    ):
        found = subprocess.run([runner, *arguments], capture_output=True, text=True, check=False)
        assert found.returncode == 1
        assert told in found.stderr


def test_what_cannot_be_compiled_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(BuildError, match=r"libautotopk_aot\.so cannot be compiled"):
        native.library()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match="no C\\+\\+ compiler is on the path"):
        native.runner()
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_a_compiler_that_links_its_own_cxx_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The library has no second std::locale in it, which torch's std::regex would meet where it is loaded globally."""
    compiler = tmp_path / "static"
    compiler.write_text('#!/bin/sh\nexec c++ "$@" -static-libstdc++ -static-libgcc\n')
    compiler.chmod(0o755)
    alone = ["-shared", "-fPIC", "-x", "c++", "-", "-o", str(tmp_path / "alone.so")]
    source = "#include <regex>\nbool f(const char* x) { return std::regex_match(x, std::regex(x)); }"
    if subprocess.run([str(compiler), *alone], input=source, text=True, capture_output=True, check=False).returncode:
        pytest.skip("the compiler has no static C++ library")
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", str(compiler))

    def locales(file: Path) -> int:
        told = subprocess.run(["nm", "-D", "--defined-only", file], capture_output=True, text=True, check=True)
        return told.stdout.count("St6locale")

    assert locales(tmp_path / "alone.so") > 100
    assert locales(native.library()) == 0


def test_plans_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.plans").write_text("odd")
    with pytest.raises(BuildError, match=r"odd\.plans cannot be used"):
        export.load(tmp_path / "odd.plans")
