"""Kernels for rows that registers hold, in Triton: by rounds of maximum and mask, and by merging the lists of lanes.

This file is host code and imports no compiler. Every other file of the folder is device code: it imports nothing but
Triton and other device code of the folder. The kernels are `masking.masked_argmax_rows` and `lanes.lane_merge_rows`.
"""

from typing import Literal

from autotopk.problem import VECTOR_BYTES, Problem

MERGED_DTYPES = ("float32", "bfloat16", "float16")
MERGED_COLS = 2048
"""Longest row that lanes share."""
MERGED_COLS_SIDE_BY_SIDE = 256
"""Longest row that is read with one element a load."""
MERGED_K = 64
"""Largest k that is merged."""

Reading = Literal["aligned", "ragged", "single", "beside"]
"""How elements are loaded: 16 bytes at a time, from rows that begin at a multiple of that or not; one by one; one by
one from rows side by side."""


def reading_of(lanes: int, problem: Problem) -> Reading:
    """How a problem is read by so many lanes: ragged rows only where each has two loads, which it pays for."""
    layout, widest = problem.layout, VECTOR_BYTES // problem.itemsize
    if layout.vector == widest:
        return "aligned"
    if layout.side_by_side:
        return "beside"
    return "ragged" if layout.aligned and problem.cols >= 2 * lanes * widest else "single"


def width_of(reading: Reading, itemsize: int) -> int:
    """Elements of a load."""
    return VECTOR_BYTES // itemsize if reading in ("aligned", "ragged") else 1


def reasons_unlaunchable(problem: Problem) -> list[str]:
    """Why none of the kernels can be launched for a problem."""
    return [f"{problem.rows} rows are more than 32 bits count"] if problem.rows >= 1 << 31 else []


def reasons_unmerged(problem: Problem) -> list[str]:
    """Why lanes cannot merge their lists for a problem; where they can, it is faster than masking."""
    reasons = []
    if problem.dtype not in MERGED_DTYPES:
        reasons.append(f"{problem.dtype} is not one of {', '.join(MERGED_DTYPES)}")
    longest = MERGED_COLS_SIDE_BY_SIDE if problem.layout.side_by_side else MERGED_COLS
    if problem.cols > longest:
        reasons.append(f"rows of {problem.cols} are longer than {longest}")
    if problem.k > MERGED_K:
        reasons.append(f"k={problem.k} is above {MERGED_K}")
    return reasons
