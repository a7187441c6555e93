"""What a kernel that serves a selector is told of one call."""

from dataclasses import dataclass

import torch
from torch import Tensor

from autotopk.asked import Asked, Checked

TOLD = (
    *("positions", "starts", "ends", "ks", "selected", "offsets", "page_table", "row_to_batch", "page_starts"),
    *("starts_group", "ends_group", "batch_group", "height", "width", "compress_ratio", "pages", "batches"),
    *("page_bits", "flags", "table_stride", "fill", "values_stride", "indices_stride", "positions_stride"),
)
"""The names of parameters beside those of every operation, see windows.cuh."""

OF_LENGTHS, RELATIVE, WIDE_INDICES, ANY_ORDER, PLAIN, ENDS_ALONE = 1, 2, 4, 8, 16, 32
"""Flags: `ends` are lengths; columns are counted from a window's start; indices have 64 bits; answers need no order;
nothing is asked for but a number of 32 bits that a column tells with an addition; nothing is told but an end for every
row."""


@dataclass(frozen=True, slots=True)
class Task:
    """One call, and the tensors that it writes to, (answers, width) each."""

    form: Checked
    k: int | Tensor
    asked: Asked
    indices: Tensor
    positions: Tensor | None
    values: Tensor | None


def task_of(x: Tensor, k: int | Tensor, form: Checked, asked: Asked) -> Task:
    """With the caller's tensors, or new ones."""
    size, out = (form.count, form.width), asked.get("out")
    dtypes = [form.index_dtype]
    raw, valued = asked.get("return_raw", False), asked.get("return_values", False)
    dtypes += [form.index_dtype] * raw + [x.dtype] * valued
    if out is None:
        results = [torch.empty(size, dtype=dtype, device=x.device) for dtype in dtypes]
    else:
        results = [out] if isinstance(out, Tensor) else list(out)
    return Task(form, k, asked, results[0], results[1] if raw else None, results[-1] if valued else None)


def told(x: Tensor, task: Task) -> dict[str, Tensor | int]:
    """All of `TOLD` by name, and values and indices; 0 for a tensor that is not there."""
    asked, form = task.asked, task.form
    lengths, starts, table = map(_adjacent, (asked.get("lengths"), asked.get("starts"), asked.get("page_table")))
    ends = _adjacent(asked.get("ends")) if lengths is None else lengths
    batches, pages = (0, 0) if table is None else table.shape
    plain = task.values is None and task.positions is None and table is None and form.index_dtype is not torch.int64
    flags = OF_LENGTHS * (lengths is not None) + RELATIVE * bool(asked.get("relative", False)) + PLAIN * plain
    selected, offsets = map(_adjacent, (asked.get("rows"), asked.get("offsets")))
    ks = _adjacent(task.k if isinstance(task.k, Tensor) else None)
    ends_group, ratio = _group(form.count, ends), asked.get("compress_ratio", 1)
    nothing_else = all(one is None for one in (starts, selected, offsets, ks))
    flags += ENDS_ALONE * (ends is not None and ends_group == ratio == 1 and nothing_else)
    tensors = {
        "values": task.values,
        "indices": task.indices,
        "positions": task.positions,
        "starts": starts,
        "ends": ends,
        "ks": ks,
        "selected": selected,
        "offsets": offsets,
        "page_table": table,
        "row_to_batch": _adjacent(asked.get("row_to_batch")),
        "page_starts": _adjacent(asked.get("page_table_starts")),
    }
    return {name: 0 if one is None else one for name, one in tensors.items()} | {
        "starts_group": _group(form.count, starts),
        "ends_group": ends_group,
        "batch_group": form.count // batches if batches else 1,
        "height": x.shape[0],
        "width": form.width,
        "compress_ratio": ratio,
        "pages": pages,
        "batches": batches,
        "page_bits": asked.get("page_size", 1).bit_length() - 1,
        "flags": flags + WIDE_INDICES * (form.index_dtype is torch.int64) + ANY_ORDER * (not form.sorted),
        "table_stride": 0 if table is None else table.stride(0),
        "fill": form.fill,
        "values_stride": _stride(task.values),
        "indices_stride": _stride(task.indices),
        "positions_stride": _stride(task.positions),
    }


def address(one: Tensor | int) -> int:
    """What a launch is given: where a tensor is, or a number as 64 bits."""
    return one.data_ptr() if isinstance(one, Tensor) else one & (1 << 64) - 1


def _adjacent(numbers: Tensor | None) -> Tensor | None:
    """With neighbours side by side."""
    return numbers if numbers is None or numbers.stride(-1) == 1 else numbers.contiguous()


def _group(count: int, numbers: Tensor | None) -> int:
    """How many answers share a number."""
    return 1 if numbers is None else count // len(numbers)


def _stride(out: Tensor | None) -> int:
    return 0 if out is None else out.stride(0)
