"""`topk_indices` as the selector that engines call: every answer is the oracle's, whatever is asked and wherever."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import autotopk
from autotopk.oracle import inputs
from autotopk.oracle.selection import problems_with_selection, select
from autotopk.problem import DTYPE_BYTES
from tests.runtime.conftest import Planted
from tests.runtime.drawn_windows import dirty, int32, same, table_of, windows
from tests.runtime.same import unwarned

pytestmark = unwarned

ALL: dict[str, Any] = {"return_raw": True, "return_values": True}


def check(x: Tensor, k: int | Tensor, *, largest: bool = True, **asked: Any) -> None:
    """That all three results are the oracle's, bit for bit where they are stable, and right in any case."""
    found = autotopk.topk_indices(x, k, largest=largest, stable=True, **asked, **ALL)
    assert same(found, select(x, k, largest=largest, **asked, **ALL))
    for order in (True, False):
        found = autotopk.topk_indices(x, k, largest=largest, sorted=order, **asked, **ALL)
        assert not problems_with_selection(x, k, found, largest=largest, sorted=order, **asked)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", DTYPE_BYTES)
@pytest.mark.parametrize(("rows", "cols", "k"), [(20, 8, 1), (20, 40, 7), (10, 300, 64), (10, 9, 12)])
def test_windows(rows: int, cols: int, k: int, dtype: str, largest: bool) -> None:
    """Of every kind, amid what would win; of values that are all alike, and NaNs among others."""
    for seed, name in enumerate(("random", "ties", "all_equal", "minus_inf_padding", "nan", "signed_zeros")):
        if name in inputs.names_for(getattr(torch, dtype)):
            starts, ends = windows(rows, cols, k, seed)
            x = inputs.make(name, rows, cols, k, getattr(torch, dtype), "cpu", seed)
            check(dirty(x, starts, ends, largest), k, largest=largest, starts=starts, ends=ends)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "cols", "k"), [(1, 100_000, 2051), (10, 6000, 4096), (4096, 8, 3)])
def test_large(rows: int, cols: int, k: int, dtype: torch.dtype) -> None:
    starts, ends = windows(rows, cols, k, 5)
    x = dirty(torch.randn(rows, cols).to(dtype), starts, ends)
    check(x, k, starts=starts, ends=ends)


def test_what_is_outside_never_matters() -> None:
    starts, ends = windows(40, 100, 9, 0)
    x = torch.randn(40, 100)
    plain = autotopk.topk_indices(x, 9, starts=starts, ends=ends, **ALL)
    for largest in (True, False):
        other = dirty(x, starts, ends, largest)
        assert same(autotopk.topk_indices(other, 9, starts=starts, ends=ends, **ALL), list(plain))


def test_a_window_of_the_worst_is_still_preferred() -> None:
    """Minus infinity inside wins over everything outside, and so do the least integers."""
    x = torch.full((1, 6), torch.inf)
    x[0, 2:4] = -torch.inf
    assert autotopk.topk_indices(x, 3, starts=int32(2), ends=int32(4)).tolist() == [[2, 3, -1]]
    least = torch.zeros(1, 6, dtype=torch.int64)
    least[0, 4:] = torch.iinfo(torch.int64).min
    assert autotopk.topk_indices(least, 3, starts=int32(4)).tolist() == [[4, 5, -1]]


BY_HAND: dict[str, tuple[dict[str, Any], list[list[int]]]] = {
    "whole": ({}, [[9, 8, 7]]),
    "starts": ({"starts": int32(8)}, [[9, 8, -1]]),
    "start below 0": ({"starts": int32(-4)}, [[9, 8, 7]]),
    "ends": ({"ends": int32(2)}, [[1, 0, -1]]),
    "end below 0": ({"ends": int32(-2)}, [[-1, -1, -1]]),
    "end far out": ({"ends": int32(1 << 30)}, [[9, 8, 7]]),
    "lengths": ({"lengths": int32(4)}, [[3, 2, 1]]),
    "length below 0": ({"lengths": int32(-4)}, [[-1, -1, -1]]),
    "starts and lengths": ({"starts": int32(5), "lengths": int32(2)}, [[6, 5, -1]]),
    "start below 0 and length": ({"starts": int32(-2), "lengths": int32(4)}, [[1, 0, -1]]),
    "start far out": ({"starts": int32((1 << 31) - 1), "lengths": int32((1 << 31) - 1)}, [[-1, -1, -1]]),
    "length far out": ({"starts": int32(1), "lengths": int32((1 << 31) - 1)}, [[9, 8, 7]]),
    "ratio": ({"lengths": int32(15), "compress_ratio": 4}, [[2, 1, 0]]),
    "less than the ratio": ({"lengths": int32(3), "compress_ratio": 4}, [[-1, -1, -1]]),
    "relative": ({"starts": int32(5), "ends": int32(8), "relative": True}, [[2, 1, 0]]),
    "relative to 0": ({"starts": int32(-5), "ends": int32(3), "relative": True}, [[2, 1, 0]]),
    "offsets": ({"starts": int32(5), "ends": int32(7), "offsets": int32(100)}, [[106, 105, -1]]),
    "relative and offsets": (
        {"starts": int32(5), "ends": int32(7), "offsets": int32(100), "relative": True},
        [[101, 100, -1]],
    ),
    "fill": ({"starts": int32(8), "fill": 77}, [[9, 8, 77]]),
    "rows": ({"rows": int32(0, 1, -1, 0)}, [[9, 8, 7], [-1] * 3, [-1] * 3, [9, 8, 7]]),
    "pages": ({"page_table": int32(5, 3, 9, 1, 0)[None], "page_size": 2}, [[1, 0, 3]]),
    "fewer pages than positions": ({"page_table": int32(5, 3)[None], "page_size": 2, "starts": int32(6)}, [[7, 6, 11]]),
    "no such page": ({"page_table": int32(5, 3)[None], "page_size": 2}, [[-1, -1, -1]]),
    "first page": (
        {"page_table": int32(7, 5, 3)[None], "page_size": 2, "starts": int32(6), "page_table_starts": int32(1)},
        [[7, 6, 11]],
    ),
    "batch": ({"page_table": int32(5, 3).view(2, 1), "page_size": 16, "row_to_batch": int32(1)}, [[57, 56, 55]]),
    "no such batch": (
        {"page_table": int32(5, 3).view(2, 1), "page_size": 16, "row_to_batch": int32(2)},
        [[-1, -1, -1]],
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name: str) -> None:
    """Of a row that ascends from 0 to 9; the oracle says the same."""
    x, (asked, expected) = torch.arange(10.0)[None], BY_HAND[name]
    assert autotopk.topk_indices(x, 3, **asked).tolist() == expected
    assert select(x, 3, **asked)[0].tolist() == expected


@pytest.mark.parametrize("name", ["lengths", "ends"])
@pytest.mark.parametrize("ratio", [1, 4])
@pytest.mark.parametrize("next_n", [1, 2, 3])
def test_groups(next_n: int, ratio: int, name: str) -> None:
    """Answers of a group end one after the other, before lengths are divided; numbers for each are as they are."""
    x = torch.randn(12, 50)
    given = torch.randint(-3, 220, (12 // next_n,), dtype=torch.int32)
    ratios: dict[str, Any] = {"compress_ratio": ratio} if name == "lengths" else {}
    starts = torch.randint(0, 9, (12 // next_n,), dtype=torch.int32)
    asks: list[dict[str, Any]] = [
        {name: given},
        {name: given, "starts": starts},
        {name: given.repeat(next_n), "starts": starts},
    ]
    for asked in asks:
        check(x, 6, next_n=next_n, **ratios, **asked)
    table = table_of(12 // next_n, 13, 0)
    check(x, 6, next_n=next_n, lengths=given, page_table=table, page_size=4)
    [last] = autotopk.topk_indices(torch.arange(10.0).expand(3, 10), 1, lengths=int32(7), next_n=3).t().tolist()
    assert last == [4, 5, 6]


@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_k_of_each_row(dtype: str, windowed: bool) -> None:
    """Also none, negative, more than `max_k`, more than there are columns."""
    x = inputs.make("ties", 12, 20, 5, getattr(torch, dtype), "cpu")
    starts, ends = windows(12, 20, 5, 3)
    k = int32(0, 1, 5, 19, 20, 21, 30, 31, 1 << 30, -1, -(1 << 30), 7)
    asked: dict[str, Any] = {"starts": starts, "ends": ends} if windowed else {}
    for max_k in (0, 1, 20, 30):
        check(x, k, max_k=max_k, **asked)


@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_pages(page_size: int) -> None:
    rows, cols, batch = 10, 200, 4
    x, (starts, ends) = torch.randn(rows, cols), windows(rows, cols, 12, page_size)
    table = table_of(batch, 230 // page_size + 2, page_size)
    of_row = torch.arange(rows, dtype=torch.int32) % batch
    first = torch.arange(rows, dtype=torch.int32) % 3
    check(x, 12, starts=starts, ends=ends, page_table=table, page_size=page_size, row_to_batch=of_row)
    check(x, 12, page_table=table[:2], page_size=page_size, row_to_batch=of_row, page_table_starts=first - 1)
    check(x[:4], 12, page_table=table[:, ::2], page_size=page_size)
    check(x[:4], 12, page_table=table[:, :0], page_size=page_size)


def test_rows_of_x() -> None:
    """In any order, many times, and numbers of no row, which select nothing."""
    x = torch.randn(5, 30)
    rows = int32(4, 4, -1, 0, 5, 2, 1 << 30, -(1 << 31))
    starts, ends = windows(8, 30, 4, 1)
    check(x, 4, rows=rows)
    check(x, 4, rows=rows, starts=starts, ends=ends, offsets=starts)
    check(x[:0], 4, rows=rows)
    check(x, 4, rows=rows[:0])


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing_to_select_from(shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    check(x, 4)
    check(x, 4, lengths=torch.full((shape[0],), 3, dtype=torch.int32))
    check(torch.randn(3, 7), 0, starts=int32(0, 1, 2))


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: torch.cat((x, x), 1)[:, 3:53],
        lambda x: x[::3],
        lambda x: x[:, ::2],
        lambda x: x.t(),
        lambda x: x[:1].expand(9, 50),
        lambda x: x.flatten()[:100].as_strided((30, 20), (1, 2)),
        lambda x: torch._neg_view(x),
    ],
    ids=["padded", "every third", "every second", "transposed", "repeated", "overlapping", "negated"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_any_strides(layout: Any, dtype: torch.dtype) -> None:
    x = layout(torch.randn(20, 50).to(dtype))
    starts, ends = windows(x.shape[0], x.shape[1], 5, 2)
    check(x, 5, starts=starts, ends=ends)
    check(x, 5)
    every = torch.stack((starts, ends), 1)
    check(x, 5, starts=every[:, 0], ends=every[:, 1])


# Results


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_forms(index_dtype: torch.dtype) -> None:
    x, (starts, ends) = torch.randn(6, 40), windows(6, 40, 5, 4)
    asked: dict[str, Any] = {"starts": starts, "ends": ends, "relative": True, "fill": -7}
    for more in ({}, {"return_raw": True}, {"return_values": True}, ALL):
        expected = select(x, 5, index_dtype=index_dtype, **asked, **more)
        found = autotopk.topk_indices(x, 5, index_dtype=index_dtype, **asked, **more)
        assert isinstance(found, tuple) == (len(more) > 0)
        assert same(found, expected)
        memory = [torch.full((6, 9), 99, dtype=one.dtype) for one in expected]
        outs = tuple(one[:, 2:7] for one in memory)
        out = outs if len(outs) > 1 else outs[0]
        assert autotopk.topk_indices(x, 5, out=out, **asked, **more) is out
        assert same(outs, expected)
        assert all((one[:, :2] == 99).all() and (one[:, 7:] == 99).all() for one in memory)


def test_without_windows_the_chosen_strategy_answers(planted: Planted) -> None:
    """Whole rows, in any form of answer."""
    x = torch.randn(5, 30)
    k: Any = np.int64(4)
    found = autotopk.topk_indices(x, k, index_dtype=torch.int64, return_values=True)
    assert planted.answers == 1
    assert torch.equal(found[0], x.topk(4).indices)
    assert torch.equal(found[1], x.topk(4).values)
    autotopk.topk_indices(x, 4, starts=int32(0, 1, 2, 3, 4))
    assert planted.answers == 2  # of the ranks


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_dense_calls_are_what_they_were(dtype: torch.dtype, planted: Planted) -> None:
    x = inputs.make("random", 4, 50, 5, dtype, "cpu").view(2, 2, 50)
    found = autotopk.topk_indices(x, 5, -1, False)
    assert found.dtype == torch.int32
    assert torch.equal(x.gather(2, found.long()), x.topk(5, largest=False).values)
    assert planted.answers == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives_of_values(dtype: torch.dtype) -> None:
    x = torch.randn(6, 20, dtype=torch.float64).to(dtype).requires_grad_()
    starts, ends = windows(6, 20, 5, 1)
    rows = int32(5, 0, 0, -1, 2, 3)
    indices, values = autotopk.topk_indices(x, 5, starts=starts, ends=ends, rows=rows, return_values=True)
    assert not indices.requires_grad
    weights = torch.randn(6, 5, dtype=dtype)
    (values.masked_fill(indices < 0, 0) * weights).sum().backward()
    expected = torch.zeros(6, 20, dtype=dtype)
    for i, j in (indices >= 0).nonzero().tolist():
        expected[rows[i], indices[i, j]] += weights[i, j]
    torch.testing.assert_close(x.grad, expected)


ASKED: dict[str, dict[str, Any]] = {
    "whole": {"index_dtype": torch.int64},
    "windows": {"starts": int32(1, 2, 3, 4), "ends": int32(9, 8, 7, 6)},
    "groups": {"lengths": int32(9, 8), "next_n": 2, "compress_ratio": 2},
    "pages": {"page_table": table_of(4, 30, 0), "lengths": int32(1, 5, 20, 9), **ALL},
    "rows": {"rows": int32(3, 1), "k": int32(2, 9), "max_k": 3},
}


def ask(x: Tensor, asked: dict[str, Any]) -> tuple[Tensor, ...]:
    found = autotopk.topk_indices(x, **{"k": 3, **asked})
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
@pytest.mark.parametrize("name", ASKED)
def test_the_host_never_reads_what_tensors_hold(name: str, dtype: torch.dtype) -> None:
    """Tensors without data answer, with the shapes and dtypes of the results, all on their device."""
    x = torch.randn(4, 30).to(dtype)
    without = {key: one.to("meta") if isinstance(one, Tensor) else one for key, one in ASKED[name].items()}
    for stable in (True, False):
        told, found = ask(x.to("meta"), {**without, "stable": stable}), ask(x, {**ASKED[name], "stable": stable})
        assert [(one.dtype, one.shape) for one in told] == [(one.dtype, one.shape) for one in found]
        assert all(one.is_meta for one in told)


@pytest.mark.parametrize("name", ASKED)
def test_compiles_whole(name: str) -> None:
    torch.compiler.reset()
    x = torch.randn(4, 30)
    compiled: Any = torch.compile(ask, fullgraph=True, backend="aot_eager")
    assert same(compiled(x, ASKED[name]), list(ask(x, ASKED[name])))


# Anything that fits together


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_is_asked(data: st.DataObject) -> None:
    draw = data.draw
    next_n, groups = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    count, cols = next_n * groups, draw(st.integers(0, 30))
    height = count if draw(st.booleans()) else draw(st.integers(0, 5))
    number = st.one_of(st.integers(-3, 35), st.sampled_from([-(1 << 31), (1 << 31) - 1]))

    def numbers(size: int, values: Any = number) -> Tensor:
        return torch.tensor(draw(st.lists(values, min_size=size, max_size=size)), dtype=torch.int32)

    def per_window() -> Tensor:
        return numbers(draw(st.sampled_from([count, groups])))

    asked: dict[str, Any] = {"next_n": next_n, "fill": draw(st.integers(-5, 5))}
    if height != count or draw(st.booleans()):
        asked["rows"] = numbers(count, st.integers(-1, height))
    if draw(st.booleans()):
        asked["starts"] = per_window()
    match draw(st.sampled_from(["ends", "lengths", "neither"])):
        case "ends":
            asked["ends"] = per_window()
        case "lengths":
            asked["lengths"], asked["compress_ratio"] = per_window(), draw(st.integers(1, 5))
    if draw(st.booleans()):
        asked["page_size"] = 1 << draw(st.integers(0, 4))
        batch = draw(st.integers(0, 4))
        if batch not in (count, groups) or draw(st.booleans()):
            asked["row_to_batch"] = numbers(count, st.integers(-1, batch))
        asked["page_table"] = table_of(batch, draw(st.integers(0, 6)), 0)
        if draw(st.booleans()):
            asked["page_table_starts"] = numbers(count, st.integers(-2, 4))
    else:
        asked["relative"] = draw(st.booleans())
        if draw(st.booleans()):
            asked["offsets"] = numbers(count, st.integers(-9, 9))
    width = draw(st.integers(0, 12))
    k: int | Tensor = width
    if draw(st.booleans()):
        k, asked["max_k"] = numbers(count, st.integers(-2, 14)), width
    dtype = getattr(torch, draw(st.sampled_from(list(DTYPE_BYTES))))
    patterns = draw(st.lists(st.integers(0, 255), min_size=1, max_size=6))
    size = height * cols * dtype.itemsize
    bytes_ = torch.tensor((patterns * (size // len(patterns) + 1))[:size], dtype=torch.uint8)
    x = bytes_.view(dtype).view(height, cols) if size else torch.empty(height, cols, dtype=dtype)
    check(x, k, largest=draw(st.booleans()), **asked)
