"""The selector that engines call: top-k of windows of rows, as columns or slots of a paged cache; see docs/selector.md.

A kernel that serves windows answers on a GPU; else operators of torch around top-k do. What tensors hold is never read
by the host.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from autotopk.asked import Asked, Checked, checked
from autotopk.strategies.torch_fallback.stable import best_places, elements_at
from autotopk.strategies.torch_fallback.windows import Windows, each, windows_of
from autotopk.told import Task
from autotopk.torch_topk import torch_topk

Indices = Callable[[Tensor, int, int, bool, bool], Tensor]
"""With the arguments of torch.topk: indices alone."""

Kernels = Callable[[Tensor, int | Tensor, Checked, bool, Asked], tuple[Tensor, ...] | None]
"""As `selecting.WindowKernels`."""


class Selector:
    """Finds the best k of every window, and says where they are in the form that is asked for."""

    def __init__(self, indices: Indices, stable: Indices, kernels: Kernels) -> None:
        """`indices` answers for whole rows and for ranks, `stable` for whole rows with the lowest index first.

        `kernels` answers whole calls where it can.
        """
        self._indices, self._stable, self._kernels = indices, stable, kernels

    def __call__(
        self, x: Tensor, k: int | Tensor, dim: int, largest: bool, sorted: bool, stable: bool, asked: Asked
    ) -> Any:
        """A tensor, or a tuple of those asked for; see `api.topk_indices`. Raises TypeError, ValueError and others."""
        form = checked(x, k, dim, largest, sorted, asked)
        results, out = self._kernels(x, k, form, largest, asked), asked.get("out")
        if results is not None:
            return out if out is not None else results if len(results) > 1 else results[0]
        windows = windows_of(form.count, x.shape[1], x.device, asked)
        data, windows = _rows(x, windows, asked)
        counts = windows.lengths.clamp(max=form.width)
        if isinstance(k, Tensor):
            counts = torch.minimum(counts, k.to(torch.int64).clamp(0, form.width).unsqueeze(1))
        in_order = sorted or isinstance(k, Tensor)  # of which the first few may be asked for
        places = self._places(data, form, windows, largest, in_order, stable)
        found = torch.arange(form.width, device=x.device) < counts  # (rows, width)
        positions = places - windows.begin
        answers = [_answers(places, positions, found, form, asked)]
        if asked.get("return_raw", False):
            answers.append(positions.masked_fill(~found, form.fill))
        answers = [one.to(form.index_dtype) for one in answers]
        if asked.get("return_values", False):
            values = elements_at(data, 1, places) if data.numel() else data.new_zeros(places.shape)
            answers.append(values.masked_fill(~found, loser(x.dtype, largest)))
        return _handed_over(answers, out)

    def _places(
        self, data: Tensor, form: Checked, windows: Windows, largest: bool, sorted: bool, stable: bool
    ) -> Tensor:
        """Columns of the best, int64 (rows, width); behind those that a window has, any columns of the row."""
        width, cols = form.width, data.shape[1]
        if not data.numel() or not width:
            return windows.begin.new_zeros(form.count, width)
        k, rows, inside = min(width, cols), data.detach(), windows.inside(cols)
        if inside is None:
            places = (self._stable if stable else self._indices)(rows, k, 1, largest, sorted)
        else:
            places = best_places(rows, k, 1, largest, inside, self._of_ranks)
        return pad(places.to(torch.int64), (0, width - k))

    def _of_ranks(self, ranks: Tensor, k: int, dim: int) -> Tensor:
        return self._indices(ranks, k, dim, True, True)


def windows_by_torch(x: Tensor, task: Task, *, largest: bool) -> None:
    """What a kernel that serves windows does, by torch's operators alone."""

    def indices(x: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Tensor:
        found: Tensor = torch_topk(x, k, dim, largest, sorted)[1]
        return found

    results = tuple(one for one in (task.indices, task.positions, task.values) if one is not None)
    asked: Asked = {**task.asked, "out": results if len(results) > 1 else results[0]}
    Selector(indices, indices, lambda *call: None)(x, task.k, -1, largest, True, False, asked)


def loser(dtype: torch.dtype, largest: bool) -> float | int:
    """The number that no element loses against, NaN aside."""
    if dtype.is_floating_point:
        return -torch.inf if largest else torch.inf
    limits = torch.iinfo(dtype)
    return limits.min if largest else limits.max


def _rows(x: Tensor, windows: Windows, asked: Asked) -> tuple[Tensor, Windows]:
    """The row of every answer, and its window: empty where there is no row of that number."""
    rows = asked.get("rows")
    if rows is None:
        return x, windows
    number, last = rows.to(torch.int64), x.shape[0] - 1
    there = ((number >= 0) & (number <= last)).unsqueeze(1)
    end = torch.where(there, windows.end, windows.begin)
    data = x.index_select(0, number.clamp(0, last)) if x.shape[0] else x
    return data, Windows(windows.begin, end, windows.narrow)


def _answers(places: Tensor, positions: Tensor, found: Tensor, form: Checked, asked: Asked) -> Tensor:
    """Int64 (rows, width): columns, positions or slots; `fill` where nothing was found."""
    if (table := asked.get("page_table")) is not None:
        return _slots(table, positions.where(found, 0), found, form, asked)
    answers = positions if asked.get("relative", False) else places
    if (offsets := asked.get("offsets")) is not None:
        answers = answers + each(offsets, form.count).unsqueeze(1)
    return answers.masked_fill(~found, form.fill)


def _slots(table: Tensor, positions: Tensor, found: Tensor, form: Checked, asked: Asked) -> Tensor:
    """Slots of positions (rows, width) in pages of table (batch, pages); `fill` also where it has no such page."""
    size, (batches, pages) = asked.get("page_size", 1), table.shape
    if not batches or not pages:
        return torch.full_like(positions, form.fill)
    of_row = asked.get("row_to_batch")
    batch = each(torch.arange(batches, device=table.device) if of_row is None else of_row, form.count).unsqueeze(1)
    page = positions.div(size, rounding_mode="floor")
    if (starts := asked.get("page_table_starts")) is not None:
        page = page + each(starts, form.count).unsqueeze(1)
    there = found & (batch >= 0) & (batch < batches) & (page >= 0) & (page < pages)
    first = table[batch.clamp(0, batches - 1), page.clamp(0, pages - 1)].to(torch.int64) * size
    return (first + positions % size).masked_fill(~there, form.fill)


def _handed_over(answers: list[Tensor], out: Any) -> Any:
    """In the caller's tensors where there are any; one alone is no tuple."""
    if out is None:
        return answers[0] if len(answers) == 1 else tuple(answers)
    for given, found in zip((out,) if isinstance(out, Tensor) else out, answers, strict=True):
        given.copy_(found)
    return out
