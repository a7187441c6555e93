"""The kernels of families that AOTInductor can embed, in the form in which it embeds them.

This file is host code and imports no compiler. `kernels` is device code.
"""

from importlib import import_module
from typing import Any

WRAPPERS = {
    "autotopk.strategies._short_rows.lanes:lane_merge_rows": "lane_merge",
    "autotopk.strategies._short_rows.masking:masked_argmax_rows": "masked_argmax",
}
"""By a kernel's function: what takes the tensors as they are in its place, see `kernels`."""


def wrapper(function: str) -> Any:
    """The Triton function for the one of a `TritonSource`. Imports Triton."""
    return getattr(import_module("autotopk.strategies._embedded.kernels"), WRAPPERS[function])
