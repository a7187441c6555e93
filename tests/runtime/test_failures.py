"""What goes wrong behind `topk` costs a warning and speed, never an answer."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.device import Device
from autotopk.errors import BuildError, LaunchError
from autotopk.kernel import Kernel, KernelSource
from autotopk.problem import Problem
from autotopk.program import Extent, HostProgram, KernelProgram, Program
from autotopk.tuning_db import artifact
from tests.runtime.conftest import Planted, PlantedConfig
from tests.runtime.same import check, told, unwarned
from tests.runtime.winners import CHUNKED, environment, python, winner

X = torch.randn(64, 4096)


def raising(error: Exception) -> Callable[..., Any]:
    def run(*_: Any) -> Any:
        raise error

    return run


@dataclass(frozen=True)
class BrokenSource(KernelSource):
    """Compiles to an error, or to bytes that no driver loads."""

    error: str = ""

    def cache_key(self) -> str:
        return f"broken {self.error}"

    def compile(self, arch: int) -> Kernel:
        if self.error:
            raise BuildError(self.error)
        return Kernel(b"no cubin", "none", (), 32)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "does not compile": lambda: KernelProgram.of(BrokenSource("syntax error"), Extent()),
    "does not load": lambda: KernelProgram.of(BrokenSource(), Extent()),
    "does not launch": lambda: HostProgram(raising(LaunchError("CUDA_ERROR_INVALID_VALUE"))),
    "runs out of resources": lambda: HostProgram(raising(RuntimeError("CUDA error: out of resources"))),
}


@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("how", ["heuristic", "forced"])
def test_failing_strategy(kind: str, how: str, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning, torch's answer, and no second try."""
    tries = []

    def program(config: PlantedConfig, problem: Problem, device: Device) -> Program:
        tries.append(problem)
        return PROGRAMS[kind]()

    monkeypatch.setattr(planted, "program", program)
    if how == "forced":
        monkeypatch.setenv("AUTOTOPK_STRATEGY", "planted")
    [message] = told(lambda: check(X, 128))
    assert message.startswith('planted {"knob":0} failed and is left out: ')
    assert told(lambda: (check(X, 128), check(X[:5], 7))) == []  # type: ignore[func-returns-value]
    assert len(tries) == 1
    assert autotopk.explain(X, 128).choice.step == "torch"


@pytest.mark.parametrize("question", ["reasons_unsupported", "heuristic", "program"])
def test_strategy_that_raises_when_asked(question: str, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted, question, raising(ZeroDivisionError("of a third party")))
    [message] = told(lambda: check(X, 128))
    assert "of a third party" in message


@unwarned
def test_failing_once_it_has_answered(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter((True, False))

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        if next(answers):
            return tuple(torch.topk(x, 9))  # type: ignore[return-value]
        raise LaunchError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")

    monkeypatch.setattr(planted, "program", lambda *_: HostProgram(run))
    autotopk.topk(X, 9)
    with pytest.warns(autotopk.AutotopkWarning, match="OUT_OF_RESOURCES"):
        check(X, 9)
    check(X, 9)


def test_plugin_that_does_not_import(cache_dir: Path, tmp_path: Path) -> None:
    """It is found through its entry point, costs a warning, and nothing else."""
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[autotopk.strategies]\nbroken = broken_plugin:strategy\n")
    (tmp_path / "broken_plugin.py").write_text("raise OSError('a library is missing')\n")
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import torch, autotopk, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = torch.randn(4, 9)
    assert torch.equal(autotopk.topk(x, 3).values, torch.topk(x, 3).values)
    autotopk.topk(torch.randn(4, 10), 3)
print([str(warning.message) for warning in caught if "nothing like" not in str(warning.message)])
"""
    said = python(code, environment(cache_dir))
    assert said == "[\"strategy 'broken' is left out: OSError: a library is missing\"]\n"


def a_file(path: Path) -> None:
    artifact.publish([winner(64, 4096, 128, CHUNKED)], path)


def with_sql(statement: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        a_file(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
            connection.commit()

    return damage


def truncated(path: Path) -> None:
    a_file(path)
    path.write_bytes(path.read_bytes()[:1500])


def scribbled(path: Path) -> None:
    a_file(path)
    data = bytearray(path.read_bytes())
    data[4096 : 4096 + 4000] = bytes(range(250)) * 16
    path.write_bytes(data)


BAD: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "a folder": Path.mkdir,
    "empty": Path.touch,
    "no database": lambda path: path.write_text("winners\n" * 1000),
    "foreign": lambda path: sqlite3.connect(path).execute("CREATE TABLE t (x)").connection.close(),
    "newer": with_sql("PRAGMA user_version = 999"),
    "without its table": with_sql("DROP TABLE winner"),
    "changed by hand": with_sql("UPDATE winner SET time_us = 1"),
    "truncated": truncated,
    "scribbled over": scribbled,
    "a broken link": lambda path: path.symlink_to(path.with_name("nowhere")),
}


LAYERS = [(layer, kind) for layer in ("AUTOTOPK_DB", "the user's winners") for kind in BAD]
LAYERS = [pair for pair in LAYERS if pair[0] == "AUTOTOPK_DB" or pair[1] not in ("missing", "a broken link")]
"""No user's winners are no mistake."""


@pytest.mark.parametrize(("layer", "kind"), LAYERS)
def test_bad_winners(layer: str, kind: str, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning that names the file, and an answer."""
    cache_dir.mkdir()
    path = tmp_path / "bad.sqlite" if layer == "AUTOTOPK_DB" else cache_dir / "winners.sqlite"
    BAD[kind](path)
    if layer == "AUTOTOPK_DB":
        monkeypatch.setenv("AUTOTOPK_DB", str(path))
    autotopk.reload()
    [message] = told(lambda: (check(X, 128), check(X, 12)))  # type: ignore[func-returns-value]
    assert message.startswith(f"{layer} cannot be used: ")
    assert str(path) in message
    assert autotopk.explain(X, 128).choice.step == "torch"


def test_bad_layer_hides_no_other(tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_file(cache_dir / "winners.sqlite")
    monkeypatch.setenv("AUTOTOPK_DB", str(tmp_path / "missing.sqlite"))
    autotopk.reload()
    with pytest.warns(autotopk.AutotopkWarning, match="AUTOTOPK_DB cannot be used"):
        assert autotopk.explain(X, 128).choice.step == "exact"


def test_read_only_winners_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deployed"
    a_file(folder / "winners.sqlite")
    for file in (*folder.iterdir(), folder):
        file.chmod(file.stat().st_mode & ~0o222)
    monkeypatch.setenv("AUTOTOPK_DB", str(folder / "winners.sqlite"))
    autotopk.reload()
    try:
        assert autotopk.explain(X, 128).choice.step == "exact"
        check(X, 128)
    finally:
        folder.chmod(0o755)
