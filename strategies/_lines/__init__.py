"""What families share that have a row as lines of 16 bytes; device code: reading, guessing a cut, ties, windows."""

from math import log2
from typing import Any

from autotopk.kernel import ParameterKind

DTYPES = frozenset({"float32", "float16", "bfloat16"})
"""Which the ladders have kernels for."""

OWN_BYTES = 1 << 10
"""Shared memory of a block beside what every list has, and a key of each thread: what blocks exchange."""

_POINTERS = ("positions", "starts", "ends", "ks", "selected", "offsets", "page_table", "row_to_batch", "page_starts")
_GROUPS = ("starts_group", "ends_group", "batch_group")
_NUMBERS = (*_GROUPS, "height", "width", "compress_ratio", "pages", "batches", "page_bits", "flags")
_STRIDES = ("table_stride", "fill", "values_stride", "indices_stride", "positions_stride")
_OF_WINDOWS: dict[str, ParameterKind] = {
    **dict.fromkeys(_POINTERS, "pointer"),
    **dict.fromkeys(_NUMBERS, "int32"),
    **dict.fromkeys(_STRIDES, "int64"),
}
"""What selector.cuh is given beside what all kernels are."""


def parameters(windows: bool) -> tuple[tuple[str, ParameterKind], ...]:
    """Of a kernel of a family, in the order of its signature."""
    kinds: dict[str, ParameterKind] = {
        **dict.fromkeys(("x", "values", "indices"), "pointer"),
        **(_OF_WINDOWS if windows else {}),
        "row_stride": "int64",
        **dict.fromkeys(("cols", "k", "smallest", "signed", "infinity"), "int32"),
    }
    return tuple(kinds.items())


def distance(rung: Any, usual: Any, first: str) -> float:
    """Between configurations, in doublings of room and capacity, those of the knob `first` before all others."""
    knobs = ((100, first), (1, "room"), (1, "capacity"))
    return sum(weight * abs(log2(getattr(rung, knob) / getattr(usual, knob))) for weight, knob in knobs)
