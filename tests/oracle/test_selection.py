"""The oracle of the selector accepts any choice among equals, and says what is wrong with anything else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from autotopk.oracle.selection import problems_with_selection, select
from tests.runtime.drawn_windows import int32

X = torch.tensor([[5.0, 1.0, 3.0, 3.0, torch.nan, 3.0], [5.0, 1.0, 3.0, 3.0, -0.0, 0.0]])
ASKED: dict[str, Any] = {"starts": int32(0, 2), "ends": int32(4, 6), "return_raw": True, "return_values": True}


def test_by_hand() -> None:
    indices, positions, values = select(X, 5, **ASKED)
    assert indices.tolist() == [[0, 2, 3, 1, -1], [2, 3, 4, 5, -1]]
    assert positions.tolist() == [[0, 2, 3, 1, -1], [0, 1, 2, 3, -1]]
    assert values.tolist() == [[5.0, 3.0, 3.0, 1.0, -torch.inf], [3.0, 3.0, 0.0, 0.0, -torch.inf]]
    assert [one.dtype for one in (indices, positions, values)] == [torch.int32, torch.int32, torch.float32]
    assert select(X, 2)[0].tolist() == [[4, 0], [0, 2]]
    assert select(X, 2, largest=False)[0].tolist() == [[1, 2], [4, 5]]
    [found, worst] = select(X, 7, largest=False, rows=int32(0, 7), return_values=True)
    assert found.tolist() == [[1, 2, 3, 5, 0, 4, -1], [-1] * 7]
    assert worst[0, 5].isnan()
    assert worst[1].tolist() == [torch.inf] * 7


def swapped(found: list[Tensor], one: int, other: int) -> list[Tensor]:
    order = torch.arange(found[0].shape[1])
    order[one], order[other] = other, one
    return [result[:, order] for result in found]


def changed(which: int, row: int, column: int, value: float) -> Callable[[list[Tensor]], list[Tensor]]:
    def change(found: list[Tensor]) -> list[Tensor]:
        found[which][row, column] = value
        return found

    return change


WRONG: dict[str, tuple[Callable[[list[Tensor]], list[Tensor]], str]] = {
    "dtype": (lambda found: [found[0].long(), *found[1:]], "indices are torch.int64 of (2, 5), not torch.int32"),
    "shape": (lambda found: [one[:1] for one in found], "indices are torch.int32 of (1, 5), not torch.int32 of (2, 5)"),
    "fill": (changed(0, 1, 4, -2), "answer 1: other padding behind 4"),
    "padding of values": (changed(2, 0, 4, 0.0), "answer 0: other padding behind 4"),
    "repeated": (changed(1, 0, 1, 3), "answer 0: positions [0, 3, 3, 1] repeat or leave [0, 4)"),
    "outside": (changed(1, 1, 1, 4), "answer 1: positions [0, 4, 2, 3] repeat or leave [2, 6)"),
    "another index": (changed(0, 1, 0, 3), "answer 1: indices [3, 3, 4, 5] are not those of positions [0, 1, 2, 3]"),
    "another value": (changed(2, 0, 3, 1.5), "answer 0: values [5.0, 3.0, 3.0, 1.5] have not the bits"),
    "sign of a zero": (changed(2, 1, 3, -0.0), "answer 1: values [3.0, 3.0, -0.0, -0.0] have not the bits"),
    "order": (lambda found: swapped(found, 0, 1), "answer 0: the elements at columns [2, 0, 3, 1] are not the best"),
}


@pytest.mark.parametrize("name", WRONG)
def test_says_what_is_wrong(name: str) -> None:
    change, message = WRONG[name]
    problems = problems_with_selection(X, 5, change(select(X, 5, **ASKED)), **ASKED)
    assert problems
    assert problems[0].startswith(message)


def test_not_the_best() -> None:
    found = [torch.tensor([[1]], dtype=torch.int32), torch.tensor([[1]], dtype=torch.int32), X[:1, 1:2]]
    [problem] = problems_with_selection(X[:1], 1, found, sorted=False)
    assert problem == "answer 0: the elements at columns [1] are not the best, or not in order"


def test_equals_may_change_places_and_any_order_may_be_asked_for() -> None:
    found = select(X, 5, **ASKED)
    assert not problems_with_selection(X[:1], 5, [one[:1] for one in swapped(found, 1, 2)], ends=int32(4))
    assert not problems_with_selection(X, 5, swapped(swapped(found, 0, 1), 2, 3), **ASKED, sorted=False)
    assert problems_with_selection(X, 5, swapped(found, 0, 4), **ASKED, sorted=False)
