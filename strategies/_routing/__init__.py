"""Kernels that route, in Triton: top-k of short rows of logits together with the weights of the chosen.

This file is host code and imports no compiler. Every other file of the folder is device code, made of that of
`_short_rows`. The kernels are `logits.lane_route_rows`, whose choice is by the logits themselves, and
`lists.lane_choice_rows` and `choice.masked_route_rows`, which add a bias to scores and leave groups out.
"""

from autotopk.problem import WEIGHTS
from autotopk.routing import LOGITS
from autotopk.strategies._short_rows import MERGED_K
from autotopk.strategy import Features

FEATURES = Features(
    dtypes=frozenset(LOGITS), answers=frozenset(WEIGHTS), device_types=frozenset({"cuda"}), capability=(8, 0)
)
"""What all these families serve."""

DEVICE_CODE = ("autotopk.strategies._short_rows",)
"""Packages of device code that kernels are made of beside this one."""

MOST_K = MERGED_K
"""Largest k."""
