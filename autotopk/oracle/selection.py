"""The oracle of the selector: one answer after the other, in plain Python, and what is wrong with a result.

What is asked for has the names of `topk_indices`; see docs/selector.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Window:
    """What one answer is about."""

    row: int
    """Of x."""
    begin: int
    end: int
    k: int
    """How many are found: those asked for, or all there are."""


def windows(x: Tensor, k: int | Tensor, asked: dict[str, Any]) -> list[Window]:
    """Of every answer."""
    asked, (height, cols) = _given(asked), x.shape
    rows = asked["rows"].tolist() if "rows" in asked else list(range(height))
    found = []
    for i, row in enumerate(rows):
        begin = _of("starts", i, len(rows), asked, 0)
        end = cols
        if "ends" in asked:
            end = _last("ends", i, len(rows), asked)
        if "lengths" in asked:
            end = begin + _last("lengths", i, len(rows), asked) // asked.get("compress_ratio", 1)
        begin, end = min(max(begin, 0), cols), min(max(end, 0), cols)
        if end < begin or not 0 <= row < height:
            end = begin
        wanted = min(max(int(k[i]), 0), asked["max_k"]) if isinstance(k, Tensor) else k
        found.append(Window(row, begin, end, min(wanted, end - begin)))
    return found


def select(x: Tensor, k: int | Tensor, *, largest: bool = True, **asked: Any) -> list[Tensor]:
    """The stable result: indices, with `return_raw` positions, with `return_values` values, (rows, k) each."""
    asked = _given(asked)
    width = asked["max_k"] if isinstance(k, Tensor) else k
    fill, asks = asked.get("fill", -1), windows(x, k, asked)
    indices, raw, values = [], [], []
    for i, one in enumerate(asks):
        numbers = x[one.row].tolist() if one.begin < one.end else []
        columns = sorted(range(one.begin, one.end), key=lambda column: _place(numbers[column], largest))[: one.k]
        missing = [fill] * (width - one.k)
        positions = [column - one.begin for column in columns]
        indices.append([_index(column, one, i, len(asks), asked) for column in columns] + missing)
        raw.append(positions + missing)
        row = x[one.row] if columns else x.new_empty(x.shape[1])
        worst = torch.full((len(missing),), _worst(x.dtype, largest), dtype=x.dtype)
        values.append(torch.cat((row[torch.tensor(columns, dtype=torch.int64)], worst)))
    dtype = asked.get("index_dtype", torch.int32)
    results = [torch.tensor(indices, dtype=dtype).reshape(len(asks), width)]
    if asked.get("return_raw"):
        results.append(torch.tensor(raw, dtype=dtype).reshape(len(asks), width))
    if asked.get("return_values"):
        results.append(torch.stack(values) if values else x.new_empty(0, width))
    return results


def problems_with_selection(
    x: Tensor, k: int | Tensor, found: Sequence[Tensor], *, largest: bool = True, sorted: bool = True, **asked: Any
) -> list[str]:
    """What is wrong with indices, positions and values, (rows, k) each, in any choice among equals; empty where right.

    `found` has all three, as `return_raw` and `return_values` give them. Without `sorted`, the padding is still last.
    """
    asked = {**_given(asked), "return_raw": True, "return_values": True}
    expected, asks = select(x, k, largest=largest, **asked), windows(x, k, asked)
    for name, result, right in zip(("indices", "positions", "values"), found, expected, strict=True):
        if result.dtype != right.dtype or result.shape != right.shape:
            return [f"{name} are {result.dtype} of {tuple(result.shape)}, not {right.dtype} of {tuple(right.shape)}"]
    problems = []
    for i, one in enumerate(asks):
        indices, positions, values = (result[i, : one.k] for result in found)
        columns = [position + one.begin for position in positions.tolist()]
        if any(not torch.equal(a[i, one.k :], b[i, one.k :]) for a, b in zip(found, expected, strict=True)):
            problems.append(f"answer {i}: other padding behind {one.k}")
        if len(set(columns)) < one.k or any(not one.begin <= column < one.end for column in columns):
            problems.append(f"answer {i}: positions {positions.tolist()} repeat or leave [{one.begin}, {one.end})")
            continue
        if indices.tolist() != [_index(column, one, i, len(asks), asked) for column in columns]:
            problems.append(f"answer {i}: indices {indices.tolist()} are not those of positions {positions.tolist()}")
        elements = x[one.row, columns] if columns else values
        if not torch.equal(_bits(values), _bits(elements)):
            problems.append(f"answer {i}: values {values.tolist()} have not the bits of those at columns {columns}")
        order = [_place(number, largest) for number in elements.tolist()]
        wanted = [_place(number, largest) for number in expected[2][i, : one.k].tolist()]
        if (order if sorted else _in_order(order)) != wanted:
            problems.append(f"answer {i}: the elements at columns {columns} are not the best, or not in order")
    return problems


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)


def _given(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in asked.items() if one is not None}


def _place(number: float, largest: bool) -> tuple[bool, float]:
    """What orders numbers, the best the least: NaN above everything, -0 and +0 alike."""
    if number != number:
        return (False, 0) if largest else (True, 0)
    return (True, -number) if largest else (False, number)


def _in_order(places: list[tuple[bool, float]]) -> list[tuple[bool, float]]:
    return sorted(places)


def _of(name: str, i: int, count: int, asked: dict[str, Any], otherwise: int) -> int:
    """The number for an answer, or for its group."""
    if name not in asked:
        return otherwise
    numbers = asked[name].tolist()
    return int(numbers[i * len(numbers) // count])


def _last(name: str, i: int, count: int, asked: dict[str, Any]) -> int:
    """Where a window ends: of groups, each answer one further than the one before it, the last at the number given."""
    next_n = asked.get("next_n", 1)
    grouped = len(asked[name]) < count
    return _of(name, i, count, asked, 0) - (next_n - 1 - i % next_n if grouped else 0)


def _index(column: int, window: Window, i: int, count: int, asked: dict[str, Any]) -> int:
    """The column in the form that is asked for."""
    position = column - window.begin
    if "page_table" not in asked:
        return (position if asked.get("relative") else column) + _of("offsets", i, count, asked, 0)
    table, size = asked["page_table"].tolist(), asked.get("page_size", 1)
    batch = int(asked["row_to_batch"][i]) if "row_to_batch" in asked else i * len(table) // count
    page = _of("page_table_starts", i, count, asked, 0) + position // size
    if not (0 <= batch < len(table) and 0 <= page < len(table[batch])):
        return int(asked.get("fill", -1))
    return int(table[batch][page] * size + position % size)


def _worst(dtype: torch.dtype, largest: bool) -> float:
    if dtype.is_floating_point:
        return float("-inf") if largest else float("inf")
    return torch.iinfo(dtype).min if largest else torch.iinfo(dtype).max
