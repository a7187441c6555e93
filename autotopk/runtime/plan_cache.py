"""How to run the layouts that were seen: looked up on every call, made on the first."""

from typing import Any, Generic, TypeVar

P = TypeVar("P")

MAX_PLANS = 1 << 14
"""Plans kept; when shapes change without end, all are dropped and the live ones made again."""


class Plans(dict[Any, P], Generic[P]):
    """Plans of one function, by everything of its arguments but the data."""

    def __init__(self) -> None:
        super().__init__()
        _tables.append(self)

    def remember(self, key: Any, plan: P) -> P:
        """Keep a plan, and give it back."""
        if len(self) >= MAX_PLANS:
            self.clear()
        self[key] = plan
        return plan


_tables: list[Plans[Any]] = []


def forget() -> None:
    """Drop the plans of all functions."""
    for table in _tables:
        table.clear()
