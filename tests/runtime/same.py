"""Asking torch.topk and autotopk.topk the same."""

import re
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk.oracle.reference import problems_with

unwarned = pytest.mark.filterwarnings("error::autotopk.AutotopkWarning", "ignore:nothing like:autotopk.AutotopkWarning")
"""No warning of ours but that nothing was tuned here."""


def check(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> None:
    """A right answer of torch's type."""
    result = autotopk.topk(x, k, dim, largest, sorted)
    assert type(result) is torch.return_types.topk
    values, indices = result
    assert result.values is values
    assert result.indices is indices
    assert not problems_with(x, values, indices, k, dim=dim, largest=largest, sorted=sorted)


def outcome(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[type, str]:
    """The type of the result; or of the exception, with its message up to how an argument was passed."""
    try:
        return type(function(*arguments, **named)), ""
    except Exception as error:
        return type(error), re.sub(r" \(position \d+\)", "", str(error))


def told(function: Callable[[], object]) -> list[str]:
    """The messages of all AutotopkWarnings but the one that nothing was tuned here."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    messages = [str(warning.message) for warning in caught if warning.category is autotopk.AutotopkWarning]
    return [message for message in messages if not message.startswith("nothing like")]


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after so long."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
