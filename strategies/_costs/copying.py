"""Of whole_rows, which copies."""

from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.program import answer_bytes
from autotopk.strategies._costs import remote


def copies(each: int, threads: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """A launch, bytes moved, how far the input is, and bytes of a thread, whose block has `each` so many elements."""
    elements = problem.rows * problem.cols
    read = elements * problem.itemsize if problem.answer == "pairs" else 0
    moved = answer_bytes(problem) + read
    return 1.0, moved * 1e-6, remote(problem, device), min(each, elements) * (moved // elements) / threads
