"""Which elements of its row every answer is about: the caller's int32 tensors, clamped to what there is, on the device.

Nothing here reads what a tensor holds, so nothing waits for the device, and a captured graph follows new numbers.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Windows:
    """Of every answer, int64 (rows, 1) each."""

    begin: Tensor
    """The first column, 0 to cols."""
    end: Tensor
    """The one behind the last, begin to cols."""
    narrow: bool
    """They may be less than whole rows."""

    @property
    def lengths(self) -> Tensor:
        """Columns of every window."""
        return self.end - self.begin

    def inside(self, cols: int) -> Tensor | None:
        """Bool (rows, cols): whether a column belongs to the window; None where all columns do."""
        if not self.narrow:
            return None
        columns = torch.arange(cols, device=self.begin.device)
        return (columns >= self.begin) & (columns < self.end)


def windows_of(count: int, cols: int, device: torch.device, asked: Any) -> Windows:
    """The windows of so many answers about rows of so many columns, see `selection.Asked`."""
    next_n = asked.get("next_n", 1)
    starts, ends, lengths = (asked.get(name) for name in ("starts", "ends", "lengths"))
    begin = torch.zeros(count, dtype=torch.int64, device=device) if starts is None else each(starts, count)
    end = torch.full_like(begin, cols)
    if lengths is not None:
        steps = _ends(lengths, count, next_n).div(asked.get("compress_ratio", 1), rounding_mode="floor")
        end = begin + steps
    elif ends is not None:
        end = _ends(ends, count, next_n)
    begin = begin.clamp(0, cols)
    end = torch.maximum(end.clamp(max=cols), begin)
    narrow = any(one is not None for one in (starts, ends, lengths))
    return Windows(begin.unsqueeze(1), end.unsqueeze(1), narrow)


def each(numbers: Tensor, count: int) -> Tensor:
    """Int64 (count,) of numbers for every answer, or for groups of equal size."""
    numbers = numbers.to(torch.int64)
    if len(numbers) == count:
        return numbers
    return numbers.unsqueeze(1).expand(-1, count // len(numbers)).reshape(count)


def _ends(numbers: Tensor, count: int, next_n: int) -> Tensor:
    """Where the answers of a group end, of a number for the last of each; or as they are for every answer."""
    if len(numbers) == count:
        return numbers.to(torch.int64)
    place = torch.arange(count, device=numbers.device) % next_n
    return each(numbers, count) - next_n + 1 + place
