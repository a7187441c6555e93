"""torch.topk with the kernel measured fastest for this device, dtype, shape and k."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from autotopk.errors import AutotopkError, AutotopkWarning
from autotopk.problem import Problem

if TYPE_CHECKING:
    from autotopk.runtime.api import kth_value, reload, topk, topk_indices, topk_mask, topk_softmax
    from autotopk.runtime.counters import Stats
    from autotopk.runtime.explain import Explanation, explain, explain_problem
    from autotopk.runtime.insight import stats, watch
    from autotopk.runtime.merging import merge_topk
    from autotopk.runtime.patching import Patch, patch
    from autotopk.runtime.same_winners import sync_winners
    from autotopk.runtime.warmup import WarmupReport, warmup
    from autotopk.tuning.tuner import tune

__version__ = "0.2.0.dev0"

__all__ = [
    "AutotopkError",
    "AutotopkWarning",
    "Explanation",
    "Patch",
    "Problem",
    "Stats",
    "WarmupReport",
    "explain",
    "explain_problem",
    "kth_value",
    "merge_topk",
    "patch",
    "reload",
    "sync_winners",
    "stats",
    "topk",
    "topk_indices",
    "topk_mask",
    "topk_softmax",
    "tune",
    "warmup",
    "watch",
]

_HOMES = {
    "Explanation": "autotopk.runtime.explain",
    "Patch": "autotopk.runtime.patching",
    "WarmupReport": "autotopk.runtime.warmup",
    "Stats": "autotopk.runtime.counters",
    "explain": "autotopk.runtime.explain",
    "explain_problem": "autotopk.runtime.explain",
    "kth_value": "autotopk.runtime.api",
    "merge_topk": "autotopk.runtime.merging",
    "patch": "autotopk.runtime.patching",
    "reload": "autotopk.runtime.api",
    "sync_winners": "autotopk.runtime.same_winners",
    "stats": "autotopk.runtime.insight",
    "topk": "autotopk.runtime.api",
    "topk_indices": "autotopk.runtime.api",
    "topk_mask": "autotopk.runtime.api",
    "topk_softmax": "autotopk.runtime.api",
    "tune": "autotopk.tuning.tuner",
    "warmup": "autotopk.runtime.warmup",
    "watch": "autotopk.runtime.insight",
}
"""Modules that import torch, which the command line's help does without."""


if not TYPE_CHECKING:  # type checkers would take any name for an attribute

    def __getattr__(name: str) -> Any:
        """What imports torch, on first use; from then on it is an ordinary attribute."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


if "torch" in sys.modules:  # where torch does not do it, because autotopk is not installed
    import_module("autotopk.autoload").offer_operators()
