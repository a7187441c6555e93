"""Environment variables that make no sense cost one warning, and no answer."""

import os
import tempfile
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk import settings
from tests.cli.conftest import process
from tests.runtime.same import check, told


@pytest.fixture(autouse=True)
def unwarned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_warned", set(), raising=False)


def answered() -> None:
    """Three shapes by every door."""
    for cols in (9, 10, 11):
        x = torch.randn(4, cols)
        check(x, 3)
        indices = autotopk.topk_indices(x, 3)
        assert torch.equal(x.gather(1, indices.long()), torch.topk(x, 3).values)
        assert autotopk.explain(x, 3).choice.step == "torch"


def test_a_variable_is_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTOPK_STRATEGY", raising=False)
    assert settings.forced_strategy() is None
    os.environ["AUTOTOPK_STRATEGY"] = "one"
    assert settings.forced_strategy() == "one"
    os.environ["AUTOTOPK_STRATEGY"] = ""
    assert settings.forced_strategy() is None
    del os.environ["AUTOTOPK_STRATEGY"]
    assert settings.forced_strategy() is None


@pytest.mark.parametrize(
    ("variable", "text", "begins"),
    [
        ("AUTOTOPK_DB", "~nosuchuser/w.sqlite", "AUTOTOPK_DB cannot be used: ~nosuchuser/w.sqlite: No such file"),
        ("AUTOTOPK_DB", "\udcff\x1b[31m", "AUTOTOPK_DB cannot be used: "),
        ("AUTOTOPK_DB", "x" * 10_000, "AUTOTOPK_DB cannot be used: "),
        ("AUTOTOPK_CACHE_DIR", "~nosuchuser/cache", "AUTOTOPK_CACHE_DIR=~nosuchuser/cache names no home"),
        ("AUTOTOPK_MISSES", "~nosuchuser/misses", "misses cannot be written to ~nosuchuser/misses: No such file"),
        ("AUTOTOPK_MISSES", "/nosuchfolder/misses", "misses cannot be written to /nosuchfolder/misses: No such file"),
        ("AUTOTOPK_MISSES", "x" * 10_000, "misses cannot be written to xxx"),
        (
            "AUTOTOPK_SHIPPED",
            "perhaps",
            "AUTOTOPK_SHIPPED=perhaps is neither of 0, no, false, off nor of 1, yes, true, on",
        ),
    ],
)
def test_one_warning(variable: str, text: str, begins: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, text)
    autotopk.reload()
    [message] = told(answered)
    assert message.startswith(begins)
    assert len(message) < 1000
    assert message.isprintable()


def test_unset_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths of a folder that is gone."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for variable in ("AUTOTOPK_DB", "AUTOTOPK_CACHE_DIR", "AUTOTOPK_MISSES"):
        monkeypatch.setenv(variable, variable.lower())
    autotopk.reload()
    first, second = told(answered)
    assert first.startswith("AUTOTOPK_DB cannot be used: autotopk_db: No such file")
    assert second.startswith("misses cannot be written to autotopk_misses: No such file")


def test_without_a_home_nothing_is_named_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", str)  # what it does for a user without a home
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("AUTOTOPK_CACHE_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    [message] = told(answered)
    folder = settings.cache_dir()
    assert folder == tmp_path / f"autotopk-{os.getuid()}"
    assert message == f"no home is known here; {folder} is used, or what AUTOTOPK_CACHE_DIR names"


@pytest.mark.parametrize("word", ["0", "no", "NO", "false", "False", "off", " off "])
def test_shipped_winners_can_be_left_out(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_SHIPPED", word)
    assert settings.shipped_winners_path() is None
    monkeypatch.setenv("AUTOTOPK_PEERS", word)
    assert not settings.peers()


@pytest.mark.parametrize("word", ["1", "yes", "true", "ON", ""])
def test_shipped_winners_are_on(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_SHIPPED", word)
    assert told(settings.shipped_winners_path) == []
    path = settings.shipped_winners_path()
    assert path is not None
    assert path.exists()
    monkeypatch.setenv("AUTOTOPK_PEERS", word)
    assert settings.peers()


def test_commands_say_one_line(tmp_path: Path) -> None:
    run = process("doctor", cache=tmp_path, AUTOTOPK_CACHE_DIR="~nosuchuser/x", XDG_CACHE_HOME=str(tmp_path))
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines() == [
        f"warning: AUTOTOPK_CACHE_DIR=~nosuchuser/x names no home that is known here; {tmp_path}/autotopk is used"
    ]
    assert not Path("~nosuchuser").exists()
