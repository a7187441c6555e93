"""Cases and values that hypothesis draws: any bits at all, few of them at a time, so that ties and rare bits meet."""

from hypothesis import strategies as st
from torch import Tensor

from autotopk.problem import DTYPE_BYTES
from tests.contract.cases import LAYOUTS, Case, fill


def draw_case(data: st.DataObject, *, rows: int, cols: int, k: int) -> Case:
    """Up to so many rows, columns and results."""
    length = data.draw(st.integers(1, cols))
    return Case(
        rows=data.draw(st.integers(1, rows)),
        cols=length,
        k=data.draw(st.integers(1, min(k, length))),
        dtype=data.draw(st.sampled_from(list(DTYPE_BYTES))),
        largest=data.draw(st.booleans()),
        sorted=data.draw(st.booleans()),
        layout=data.draw(st.sampled_from(LAYOUTS)),
    )


def draw_values(data: st.DataObject, x: Tensor) -> Tensor:
    """Overwrite `x` with up to eight bit patterns, and return it."""
    high = 1 << (8 * x.element_size() - 1)
    patterns = data.draw(st.lists(st.integers(-high, high - 1), min_size=1, max_size=8))
    return fill(x, patterns, data.draw(st.integers(0, 1000)))
