"""What a selector may be asked for, and what is wrong with what it was: types, dtypes, shapes and devices alone."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypedDict, cast

import torch
from torch import Tensor

from autotopk.problem import DTYPE_BYTES

LONGEST = (1 << 31) - 1
"""Columns that int32 counts."""

INDEX_DTYPES = (torch.int32, torch.int64)


class Asked(TypedDict, total=False):
    """Beside x and k, see docs/selector.md; None is as good as nothing.

    Tensors are int32 with a number for every answer, or for every group of `next_n` where that is said.
    """

    starts: Tensor | None
    """The first column of every window, also for groups; 0 by default."""
    ends: Tensor | None
    """The column behind the last, also for groups; the end of the row by default."""
    lengths: Tensor | None
    """Instead of `ends`: how long windows are, also for groups."""
    next_n: int
    """Answers of a group: the one at i ends at `end - next_n + 1 + i`, where ends or lengths are given for groups."""
    compress_ratio: int
    """Lengths are divided by it, rounded down."""
    max_k: int | None
    """Of a tensor k: the width of the answers; no k is larger."""
    rows: Tensor | None
    """Which row of x every answer is about; by default each about its own."""
    relative: bool
    """Columns are counted from the start of the window."""
    offsets: Tensor | None
    """Added to the columns of every answer."""
    page_table: Tensor | None
    """int32 (batch, pages): answers are slots of a paged cache."""
    page_size: int
    """Of a page, in slots: a power of two, 1 by default."""
    row_to_batch: Tensor | None
    """Which row of the page table every answer has; by default its own, or its group's."""
    page_table_starts: Tensor | None
    """The page that every window begins at; 0 by default."""
    return_raw: bool
    """Also positions in the window."""
    return_values: bool
    """Also values."""
    fill: int
    """In place of the indices that a window lacks; -1 by default."""
    index_dtype: torch.dtype | None
    """int32, the default, or int64."""
    out: Any
    """Tensors to write to: one, or a tuple in the order of the results."""


@dataclass(frozen=True)
class Checked:
    """What arguments say of the answers."""

    count: int
    """Answers, the rows of every result."""
    width: int
    """Columns of every result."""
    fill: int
    index_dtype: torch.dtype
    sorted: bool


def checked(x: Any, k: Any, dim: Any, largest: Any, sorted: Any, asked: Asked) -> Checked:
    """What is asked for, where nothing is wrong with it.

    Raises TypeError for another type or name, ValueError for another value, shape, dtype or device, OverflowError for
    rows longer than int32 counts; each names what was given and what is accepted.
    """
    if unknown := asked.keys() - Asked.__annotations__.keys():
        raise TypeError(f"topk_indices() got an unexpected keyword argument {min(unknown)!r}")
    _check_input(x, dim)
    for name, value in (("largest", largest), ("sorted", sorted)):
        if type(value) is not bool:
            raise TypeError(f"{name}={value!r} is not a bool")
    for name in ("relative", "return_raw", "return_values"):
        if type(value := asked.get(name, False)) is not bool:
            raise TypeError(f"{name}={value!r} is not a bool")
    rows, device = asked.get("rows"), x.device
    if rows is not None:
        _check_tensor("rows", rows, device, None)
    count = x.shape[0] if rows is None else len(rows)
    next_n = _number("next_n", asked.get("next_n", 1), 1)
    if count % next_n:
        raise ValueError(f"next_n={next_n} does not divide {count} rows")
    _check_windows(asked, count, count // next_n, device)
    _check_pages(asked, count, count // next_n, device)
    width = _width(k, asked, count, device)
    index_dtype = _index_dtype(asked)
    fill, limits = asked.get("fill", -1), torch.iinfo(index_dtype)
    if type(fill) is not int:
        raise TypeError(f"fill={fill!r} is not an int")
    if not limits.min <= fill <= limits.max:
        raise ValueError(f"fill={fill} is no {index_dtype}")
    _check_out(asked, x, (count, width), index_dtype)
    return Checked(count, width, fill, index_dtype, sorted)


def _check_input(x: Any, dim: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"input is a Tensor, not {type(x).__name__}")
    if x.layout is not torch.strided or x.dim() != 2:
        raise ValueError(f"input is strided with 2 dimensions, (rows, columns), not {x.layout} with {x.dim()}")
    if str(x.dtype).removeprefix("torch.") not in DTYPE_BYTES:
        raise ValueError(f"input is one of {', '.join(DTYPE_BYTES)}, not {x.dtype}")
    if type(dim) is not int or dim not in (-1, 1):
        raise ValueError(f"dim={dim!r} is not -1 or 1, the columns")
    if x.shape[1] > LONGEST:
        raise OverflowError(f"rows are {x.shape[1]} long, topk_indices counts to {LONGEST}")


def _check_windows(asked: Asked, count: int, groups: int, device: torch.device) -> None:
    for name in ("starts", "ends", "lengths"):
        if (given := asked.get(name)) is not None:
            _check_tensor(name, given, device, count, groups)
    if asked.get("ends") is not None and asked.get("lengths") is not None:
        raise ValueError("ends and lengths are both given, windows take one of them")
    ratio = _number("compress_ratio", asked.get("compress_ratio", 1), 1)
    if ratio != 1 and asked.get("lengths") is None:
        raise ValueError(f"compress_ratio={ratio} divides lengths, of which none are given")


def _check_pages(asked: Asked, count: int, groups: int, device: torch.device) -> None:
    table, size = asked.get("page_table"), _number("page_size", asked.get("page_size", 1), 1)
    if size & (size - 1):
        raise ValueError(f"page_size={size} is not a power of two")
    for name in ("row_to_batch", "page_table_starts", "offsets"):
        if (given := asked.get(name)) is not None:
            _check_tensor(name, given, device, count)
            if (table is None) != (name == "offsets"):
                raise ValueError(f"{name} {'do not go' if name == 'offsets' else 'goes'} with a page_table")
    if table is None:
        if size != 1:
            raise ValueError(f"page_size={size} goes with a page_table")
        return
    accepted = f"torch.int32 of (batch, pages) on {device}"
    if not isinstance(table, Tensor):
        raise TypeError(f"page_table={table!r} is not {accepted}")
    if table.dtype is not torch.int32 or table.dim() != 2 or table.device != device:
        raise ValueError(f"page_table is {_told(table)}, not {accepted}")
    if asked.get("row_to_batch") is None and table.shape[0] not in (count, groups):
        accepted = f"{count} rows" if count == groups else f"{count} or {groups} rows"
        raise ValueError(f"page_table has {table.shape[0]} rows, not {accepted}, and row_to_batch is not given")


def _width(k: Any, asked: Asked, count: int, device: torch.device) -> int:
    """Columns of the answers."""
    max_k = asked.get("max_k")
    if not isinstance(k, Tensor):
        if max_k is not None:
            raise ValueError(f"max_k={max_k!r} goes with a tensor k, not with k={k!r}")
        return _number("k", k, 0)
    _check_tensor("k", k, device, count)
    if max_k is None:
        raise ValueError("max_k is not given: it is the width of the answers where k is a tensor")
    return _number("max_k", max_k, 0)


def _index_dtype(asked: Asked) -> torch.dtype:
    """Of `out` where it is given, and int32 by default."""
    wanted, out = asked.get("index_dtype"), asked.get("out")
    accepted = " or ".join(map(str, INDEX_DTYPES))
    if wanted not in (None, *INDEX_DTYPES):
        raise ValueError(f"index_dtype is {wanted!r}, not {accepted}")
    first = out[0] if isinstance(out, tuple) and out else out
    if not isinstance(first, Tensor):
        return wanted or torch.int32
    if first.dtype not in INDEX_DTYPES:
        raise ValueError(f"out is {first.dtype}, not {accepted}")
    if wanted not in (None, first.dtype):
        raise ValueError(f"out has indices of {first.dtype}, not of index_dtype={wanted}")
    return first.dtype


def _check_out(asked: Asked, x: Tensor, size: tuple[int, int], index_dtype: torch.dtype) -> None:
    out = asked.get("out")
    if out is None:
        return
    dtypes = [index_dtype, *([index_dtype] if asked.get("return_raw", False) else [])]
    if asked.get("return_values", False):
        dtypes.append(x.dtype)
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError("topk_indices(): out= has no derivatives, and input requires them")
    given = out if isinstance(out, tuple) else (out,)
    if len(given) != len(dtypes) or isinstance(out, tuple) != (len(dtypes) > 1):
        told = f"a tuple of {len(given)}" if isinstance(out, tuple) else f"one {type(out).__name__}"
        raise TypeError(f"out is {told}, not {'a Tensor' if len(dtypes) == 1 else f'a tuple of {len(dtypes)} Tensors'}")
    for one, dtype in zip(given, dtypes, strict=True):
        if not isinstance(one, Tensor):
            raise TypeError(f"out is a Tensor, not {type(one).__name__}")
        if one.dtype is not dtype or one.shape != size or one.device != x.device:
            raise ValueError(f"out is {_told(one)}, not {dtype} of {size} on {x.device}")
        if one.numel() and ((size[1] > 1 and one.stride(1) != 1) or (size[0] > 1 and one.stride(0) < size[1])):
            raise ValueError(f"out has strides {one.stride()}, not rows apart and columns adjacent")


def _check_tensor(name: str, given: Any, device: torch.device, *sizes: int | None) -> None:
    """That it is int32 of one dimension, as long as one of these; of any length for None."""
    shapes = dict.fromkeys("(rows,)" if size is None else f"({size},)" for size in sizes)
    accepted = f"torch.int32 of {' or '.join(shapes)} on {device}"
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}={given!r} is not {accepted}")
    fits = given.dim() == 1 and (None in sizes or given.shape[0] in sizes)
    if given.dtype is not torch.int32 or not fits or given.device != device:
        raise ValueError(f"{name} is {_told(given)}, not {accepted}")


def _number(name: str, given: Any, least: int) -> int:
    if type(given) is bool or not isinstance(given, Integral | torch.SymInt):
        raise TypeError(f"{name}={given!r} is not an int")
    number = given if isinstance(given, torch.SymInt) else int(given)
    if number < least:
        raise ValueError(f"{name}={number} is below {least}")
    return cast(int, number)  # or a symbol for one


def _told(tensor: Tensor) -> str:
    return f"{tensor.dtype} of {tuple(tensor.shape)} on {tensor.device}"
