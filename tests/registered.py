"""A strategy of a test's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import autotopk
from autotopk import registry
from autotopk.strategy import Strategy

S = TypeVar("S", bound=Strategy)


@contextmanager
def registered(strategy: S) -> Iterator[S]:
    """Registered within, and forgotten after."""
    registry.register(strategy)
    try:
        yield strategy
    finally:
        registry.unregister(strategy.name)
        autotopk.reload()
