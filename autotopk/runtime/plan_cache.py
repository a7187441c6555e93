"""How to run the layouts that were seen: looked up on every call, made on the first."""

from typing import Any, Generic, TypeVar

P = TypeVar("P")

MAX_PLANS = 1 << 14
"""Most plans; when shapes change without end, all are dropped and the live ones made again."""


class PlanCache(dict[Any, P], Generic[P]):
    """Plans of one operation, by everything of its arguments but the data."""

    def remember(self, key: Any, plan: P) -> P:
        """Keep a plan, and give it back."""
        if len(self) >= MAX_PLANS:
            self.clear()
        self[key] = plan
        return plan
