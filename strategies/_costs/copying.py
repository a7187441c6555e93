"""Of whole_rows, which copies."""

from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.strategies._costs import remote

INDEX_BYTES = {"pairs": 8, "indices": 4}
"""Of an answer, for each element."""


def copies(each: int, threads: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """A launch, bytes moved, how far the input is, and bytes of a thread, whose block has `each` so many elements."""
    elements = problem.rows * problem.cols
    of_element = INDEX_BYTES[problem.answer] + (2 * problem.itemsize if problem.answer == "pairs" else 0)
    return 1.0, elements * of_element * 1e-6, remote(problem, device), min(each, elements) * of_element / threads
