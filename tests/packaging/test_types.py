"""What a type checker knows of the public functions, in a user's program: both of mypy and pyright, strictly."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.processes import ROOT

RIGHT = """
import torch
from torch import Tensor

import autotopk
from autotopk import AutotopkWarning, Explanation, Problem, WarmupReport


def select(x: Tensor) -> Tensor:
    values, indices = autotopk.topk(x, 3, largest=False, stable=True)
    narrow: Tensor = autotopk.topk_indices(x, 3)
    weights, experts = autotopk.topk_softmax(x, 2, scoring="sigmoid", index_dtype=torch.int32)
    mask: Tensor = autotopk.topk_mask(x, 2)
    middle: Tensor = autotopk.kth_value(x, 2).values
    with autotopk.patch():
        return values + x.gather(-1, indices) + weights.sum() + narrow.sum() + experts.sum() + mask.sum() + middle.sum()


def ahead() -> tuple[WarmupReport, Explanation]:
    problem: Problem = Problem.contiguous(4, 8, 2)
    return autotopk.warmup([problem, (4, 8, 2)]), autotopk.explain(torch.ones(4, 8), 2)


category: type[Warning] = AutotopkWarning
"""

WRONG = """
import torch
import autotopk

x = torch.ones(4, 8)
autotopk.tokp(x, 2)  # 6
autotopk.topk(x, "2")  # 7
autotopk.topk_softmax(x, 2, scoring="relu")  # 8
length: int = autotopk.topk(x, 2).values  # 9
explained: str = autotopk.explain(x, 2)  # 10
"""
WRONG_LINES = {6, 7, 8, 9, 10}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two programs, and nothing but autotopk on the path."""
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs" / "autotopk").symlink_to(ROOT / "autotopk")
    return tmp_path


def run(*command: str | Path, folder: Path) -> str:
    process = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=folder,
        env={"MYPYPATH": str(folder / "stubs"), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return process.stdout + process.stderr


def test_mypy(folder: Path) -> None:
    cache = ROOT / ".mypy_cache" / "users"
    settings = ("--strict", "--config-file=", f"--cache-dir={cache}", "--follow-imports=silent", "--no-error-summary")
    told = run("mypy", *settings, "right.py", "wrong.py", folder=folder).splitlines()
    errors = [line for line in told if ": error:" in line]
    assert not [line for line in errors if line.startswith("right.py")], told
    assert {int(line.split(":")[1]) for line in errors if line.startswith("wrong.py")} == WRONG_LINES, told


def test_pyright(folder: Path) -> None:
    pytest.importorskip("pyright")
    config = {"include": ["right.py", "wrong.py"], "extraPaths": ["stubs"], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    told = run("pyright", "--outputjson", "--pythonpath", sys.executable, folder=folder)
    errors = [
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in json.loads(told[told.index("{") :])["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    assert {line for name, line in errors if name == "right.py"} == set(), told
    assert {line for name, line in errors if name == "wrong.py"} == WRONG_LINES, told
