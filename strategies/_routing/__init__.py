"""Kernels that route, in Triton: top-k of short rows of logits together with the weights of the chosen.

This file is host code and imports no compiler. Every other file of the folder is device code, made of that of
`_short_rows`. The kernels are `logits.lane_route_rows`, whose choice is by the logits themselves, and
`choice.masked_route_rows`, which adds a bias to scores and leaves groups out.
"""

from autotopk.strategies._short_rows import MERGED_K

DEVICE_CODE = ("autotopk.strategies._short_rows",)
"""Packages of device code that kernels are made of beside this one."""

MOST_K = MERGED_K
"""Largest k."""
