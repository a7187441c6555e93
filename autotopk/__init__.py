"""torch.topk with the kernel measured fastest for this device, dtype, shape and k."""

from typing import TYPE_CHECKING, Any

from autotopk.errors import AutotopkError, AutotopkWarning
from autotopk.problem import Problem
from autotopk.runtime.api import reload, topk, topk_indices
from autotopk.runtime.explain import Explanation, explain, explain_problem

if TYPE_CHECKING:
    from autotopk.tuning.tuner import tune

__all__ = [
    "AutotopkError",
    "AutotopkWarning",
    "Explanation",
    "Problem",
    "explain",
    "explain_problem",
    "reload",
    "topk",
    "topk_indices",
    "tune",
]


def __getattr__(name: str) -> Any:
    """`tune` and `__version__` on first use: they import what run time does without."""
    if name == "tune":
        from autotopk.tuning.tuner import tune

        return tune
    if name == "__version__":
        from autotopk.kernel import distribution_version

        return distribution_version("autotopk")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
