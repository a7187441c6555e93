"""Of whole_rows, which copies."""

from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.strategies._costs import load, remote

INDEX_BYTES = {"pairs": 8, "indices": 4}
"""Of an answer, for each element."""


def copies(blocks: int, each: int, threads: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """A launch; bytes read and written; blocks of `each` so many elements, of the busiest processor and of a thread."""
    elements, busy = problem.rows * problem.cols, load(blocks, device)
    read = problem.itemsize if problem.answer == "pairs" else 0
    written = read + INDEX_BYTES[problem.answer]
    return (
        1.0,
        elements * read * 1e-6,
        elements * written * 1e-6,
        remote(problem, device),
        busy * min(each, elements) * written * 1e-3,
        min(each, elements) * written / threads,
    )
