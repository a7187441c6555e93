"""Kernels for rows that registers hold: by rounds of maximum and mask, and by merging the lists of lanes."""

from autotopk.problem import Problem

MERGED_DTYPES = ("float32", "bfloat16", "float16")
MERGED_COLS = 2048
MERGED_COLS_SIDE_BY_SIDE = 256
"""Longest row that is read with one element a load."""
MERGED_K = 64


def reasons_unmerged(problem: Problem) -> list[str]:
    """Why lanes cannot merge their lists for a problem; where they can, it is faster than masking."""
    reasons = []
    if problem.dtype not in MERGED_DTYPES:
        reasons.append(f"{problem.dtype} is not one of {', '.join(MERGED_DTYPES)}")
    longest = MERGED_COLS_SIDE_BY_SIDE if problem.side_by_side else MERGED_COLS
    if problem.cols > longest:
        reasons.append(f"rows of {problem.cols} are longer than {longest}")
    if problem.k > MERGED_K:
        reasons.append(f"k={problem.k} is above {MERGED_K}")
    return reasons
