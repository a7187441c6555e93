"""Of torch's operators, whose kernels nobody here chooses."""

from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.strategies._costs import load, remote, sorting


def terms(method: str, chunk: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """Those of topk, of the two of chunks, of a sort, whichever are not asked for zero; how far the input is."""
    whole, first, second, sort = NONE, NONE, NONE, NONE[:3]
    if method == "topk":
        whole = topk(problem.rows, problem.cols, problem.k, problem, device)
    elif method == "chunked":
        chunks = -(-problem.cols // chunk)
        first = topk(problem.rows * chunks, chunk, problem.k, problem, device)
        second = topk(problem.rows, chunks * problem.k, problem.k, problem, device)
    else:
        sort = full_sort(problem)
    return whole + first + second + sort + (remote(problem, device),)


IN_MEMORY = 2048
"""Most that are sorted in the memory of a block."""

NONE: tuple[float, ...] = (0.0,) * 15


def topk(rows: int, cols: int, k: int, problem: Problem, device: Device) -> tuple[float, ...]:
    """Launches, bytes, rows one after the other, and k in order."""
    busy = load(rows, device)
    bytes_ = rows * cols * problem.itemsize * 1e-6
    beyond = float(problem.sorted and k > IN_MEMORY)
    return (
        1.0,
        bytes_,
        float(min(cols, 1 << 18)) * 1e-3,
        busy,
        busy * cols * 1e-3,
        busy * k * 1e-3,
        busy * sorting(k) * 1e-3 if problem.sorted else 0.0,
        sorting(k) * 1e-3 if problem.sorted else 0.0,
        float(k) * 1e-3,
        beyond,
        beyond * rows * k * 1e-3,
        problem.sorted * rows * k * problem.itemsize * 1e-6,
        float(problem.sorted),
        busy * problem.sorted,
        busy * cols * problem.itemsize * 1e-3,
    )


def full_sort(problem: Problem) -> tuple[float, ...]:
    """Bytes, again and again."""
    elements = problem.rows * problem.cols
    return (1.0, elements * problem.itemsize * 1e-6, elements * problem.itemsize**2 * 1e-6)
