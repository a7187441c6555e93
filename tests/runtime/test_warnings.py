"""Warnings point at the line of the program that called, whatever of ours was between."""

import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.errors import LaunchError, warn
from autotopk.program import HostProgram
from tests.runtime.conftest import Planted

X = torch.randn(3, 50)

CALLS: dict[str, Callable[[], Any]] = {
    "topk": lambda: autotopk.topk(X, 2),
    "topk, out": lambda: autotopk.topk(X, 2, out=(torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.int64))),
    "topk, dim": lambda: autotopk.topk(X.t(), 2, 0),
    "topk_indices": lambda: autotopk.topk_indices(X, 2),
    "explain": lambda: autotopk.explain(X, 2),
}


def places(call: Callable[[], Any]) -> Iterator[tuple[str, int]]:
    """Where every warning points, but the one that nothing was tuned here."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    for warning in caught:
        if warning.category is autotopk.AutotopkWarning and not str(warning.message).startswith("nothing like"):
            yield warning.filename, warning.lineno


def place(call: Callable[[], Any]) -> tuple[str, int]:
    """Of a lambda of one line."""
    return __file__, inspect.getsourcelines(call)[1]


def raising(*_: Any) -> Any:
    raise LaunchError("refused")


@pytest.mark.parametrize("how", CALLS)
def test_an_unknown_strategy(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_STRATEGY", "no_such")
    assert list(places(CALLS[how])) == [place(CALLS[how])]


@pytest.mark.parametrize("how", CALLS)
@pytest.mark.parametrize("question", ["reasons_unsupported", "heuristic"])
def test_a_strategy_that_raises(how: str, question: str, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted, question, raising)
    assert list(places(CALLS[how])) == [place(CALLS[how])]


@pytest.mark.parametrize("how", [how for how in CALLS if how != "explain"])
@pytest.mark.parametrize("known", [False, True])
def test_a_program_that_fails(how: str, known: bool, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the first call, or on a later one that has a plan."""
    failing = [not known]

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        return raising() if failing[0] else tuple(torch.topk(x, 2))  # type: ignore[return-value]

    monkeypatch.setattr(planted, "program", lambda *_: HostProgram(run))
    if known:
        assert list(places(CALLS[how])) == []
        failing[0] = True
    assert list(places(CALLS[how])) == [place(CALLS[how])]


def test_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTOPK_STRATEGY", "no_such")
    call = lambda: autotopk.topk(X, 2)  # noqa: E731

    def elsewhere() -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    assert list(places(elsewhere)) == [place(call)]


def test_without_any_line_outside() -> None:
    """As when a process ends."""
    code = compile("warn('at the end')", autotopk.__file__, "exec")
    thread = threading.Thread(target=exec, args=(code, {"warn": warn}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread.start()
        thread.join()
    assert [str(warning.message) for warning in caught] == ["at the end"]
