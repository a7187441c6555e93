"""The functions of docs/engines.md that stand for those of engines, beside plain loops that say what these return.

Scores all differ, so that sets are the same; engines give them in any order, then padding.
"""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.packaging.processes import ROOT
from tests.runtime.drawn_windows import int32, table_of
from tests.runtime.same import unwarned

pytestmark = unwarned


def page() -> Any:
    """The module that the page shows."""
    blocks = re.findall(r"```python\n(# engines.py\n.*?)```", (ROOT / "docs/engines.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    names: dict[str, Any] = {}
    exec(compile(blocks[0], "engines.py", "exec"), names)
    return SimpleNamespace(**names)


ENGINES = page()
K = 6


def scores(rows: int, cols: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """All different, in a buffer that is wider."""
    order = torch.randperm(rows * (cols + 5), generator=torch.Generator().manual_seed(rows)).view(rows, cols + 5)
    return order.to(dtype)[:, :cols]


def best(row: Tensor, start: int, end: int, k: int = K) -> list[int]:
    """Columns of the k largest of a window, one by one."""
    left = list(range(start, end))
    found: list[int] = []
    while left and len(found) < k:
        found.append(max(left, key=lambda column: float(row[column])))
        left.remove(found[-1])
    return found


def padded(found: list[int], k: int = K) -> list[int]:
    return found + [-1] * (k - len(found))


def agrees(found: Tensor, expected: list[list[int]]) -> bool:
    """The same sets, each number once, with the padding behind them."""
    rows = found.tolist()
    return (
        found.dtype == torch.int32
        and len(rows) == len(expected)
        and all(
            sorted(row[: len(wanted)]) == sorted(wanted) and row[len(wanted) :] == [-1] * (len(row) - len(wanted))
            for row, wanted in zip(rows, expected, strict=True)
        )
    )


def test_vllm_prefill() -> None:
    x, out = scores(5, 40), torch.full((7, K + 2), 99, dtype=torch.int32)
    starts, ends = int32(0, 3, 10, 20, 7), int32(40, 5, 16, 20, 40)
    ENGINES.top_k_per_row_prefill(x, starts, ends, out, 5, x.stride(0), x.stride(1), K)
    windows = list(zip(x, starts.tolist(), ends.tolist(), strict=True))
    assert agrees(out[:5, :K], [[c - start for c in best(row, start, end)] for row, start, end in windows])
    assert (out[5:] == 99).all()
    assert (out[:, K:] == 99).all()


@pytest.mark.parametrize("of_each", [False, True])
@pytest.mark.parametrize("next_n", [1, 2, 3])
def test_vllm_decode(next_n: int, of_each: bool) -> None:
    """By the function and by the module; lengths of requests, or of every token of theirs."""
    lengths, rows = [40, 9, 3, 1], 4 * next_n
    every = [[length - next_n + 1 + i for i in range(next_n)] for length in lengths]
    seq_lens = torch.tensor(every if of_each else [[one] for one in lengths], dtype=torch.int32)
    x = scores(rows, 40)
    expected = [best(x[i], 0, max(0, every[i // next_n][i % next_n])) for i in range(rows)]
    for seq in (seq_lens, seq_lens.flatten()):
        out = torch.full((rows + 1, K), 99, dtype=torch.int32)
        ENGINES.top_k_per_row_decode(x, next_n, seq, out, rows, x.stride(0), x.stride(1), K)
        assert agrees(out[:rows], expected)
        assert (out[rows:] == 99).all()
    out = torch.full((rows + 1, K), 99, dtype=torch.int32)
    assert ENGINES.SparseIndexerTopk()(x, seq_lens, next_n, out, K, 40) is out
    assert agrees(out[:rows], expected)


def slots(table: Tensor, batch: int, first: int, positions: list[int], size: int) -> list[int]:
    return [int(table[batch][first + p // size]) * size + p % size for p in positions]


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("packed", [False, True])
def test_flashinfer_page_table(packed: bool, page_size: int) -> None:
    """Rows of their own batch from column 0 on; and rows of three requests packed side by side in one batch row."""
    x, lengths = scores(5, 200), int32(200, 3, 0, 77, 100)
    table = table_of(5, 200 // page_size + 8, page_size)
    starts, firsts, of_row = int32(0, 20, 100, 123, 100), int32(1, 2, 0, 3, 1), int32(4, 0, 0, 1, 2)
    more: dict[str, Any] = {}
    if packed:
        more = {"row_to_batch": of_row, "row_starts": starts, "page_table_row_starts": firsts}
    else:
        starts, firsts, of_row = torch.zeros_like(starts), torch.zeros_like(firsts), torch.arange(5)
    positions = [[c - s for c in best(x[i], s, s + int(lengths[i]))] for i, s in enumerate(starts.tolist())]
    expected = [slots(table, int(of_row[i]), int(firsts[i]), one, page_size) for i, one in enumerate(positions)]
    for deterministic in (False, True):
        asked = {**more, "page_size": page_size, "deterministic": deterministic}
        assert agrees(ENGINES.top_k_page_table_transform(x, table, lengths, K, **asked), expected)
        out, raw = torch.empty(2, 5, K, dtype=torch.int32)
        assert ENGINES.top_k_page_table_transform(x, table, lengths, K, **asked, out=out, out_raw_indices=raw) is out
        assert agrees(out, expected)
        assert agrees(raw, positions)
        paired = [slots(table, int(of_row[i]), int(firsts[i]), [p for p in one if p >= 0], page_size)
                  for i, one in enumerate(raw.tolist())]  # fmt: skip
        assert out.tolist() == [padded(one) for one in paired]
    if packed and page_size == 1:  # a table of one slot a page begins where the row does, unless it is told
        del more["page_table_row_starts"]
        table = table_of(5, 300, 1)
        expected = [slots(table, int(of_row[i]), int(starts[i]), one, 1) for i, one in enumerate(positions)]
        assert agrees(ENGINES.top_k_page_table_transform(x, table, lengths, K, **more), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flashinfer_ragged(dtype: torch.dtype) -> None:
    x = scores(4, 40).float()
    x = torch.arange(40).float().flip(0).expand(4, 40).to(dtype) if dtype != torch.float32 else x
    lengths, offsets, starts = int32(40, 3, 0, 12), int32(0, 1000, 5, 7), int32(0, 4, 4, 28)
    for given, known in ((None, [0] * 4), (starts, starts.tolist())):
        found = ENGINES.top_k_ragged_transform(x, offsets, lengths, K, row_starts=given)
        windows = [best(x[i], start, min(40, start + int(lengths[i]))) for i, start in enumerate(known)]
        assert agrees(found, [[c - known[i] + int(offsets[i]) for c in one] for i, one in enumerate(windows)])


@pytest.mark.parametrize("next_n", [1, 2])
@pytest.mark.parametrize("ratio", [1, 4])
def test_flashinfer_varlen(ratio: int, next_n: int) -> None:
    """Lengths are of tokens, also where columns stand for several."""
    x, lengths = scores(3 * next_n, 40), [40 * ratio, 30, 5]
    expected = [best(x[i], 0, (lengths[i // next_n] - next_n + 1 + i % next_n) // ratio) for i in range(3 * next_n)]
    indices, values = ENGINES.top_k_varlen(x, int32(*lengths), K, compress_ratio=ratio, next_n=next_n)
    assert values is None
    assert agrees(indices, expected)
    outs = torch.empty(3 * next_n, K, dtype=torch.int32), torch.empty(3 * next_n, K)
    for given in ((None, None), outs):
        indices, values = ENGINES.top_k_varlen(
            x, int32(*lengths), K, None, ratio, next_n, True, out_indices=given[0], out_values=given[1]
        )
        assert agrees(indices, expected)
        there = indices >= 0
        assert torch.equal(values[there], x.gather(1, indices.clamp(min=0).long())[there])
        assert (values[~there] == -torch.inf).all()
    assert (indices is outs[0], values is outs[1]) == (True, True)


@pytest.mark.parametrize("page_size", [1, 64])
def test_sglang(page_size: int) -> None:
    """Lengths below zero select nothing, too."""
    x, lengths, k = scores(4, 600), int32(600, 512, 100, -1), 512
    table = table_of(4, 600 // page_size + 1, 1)
    positions = [best(x[i], 0, max(0, int(lengths[i])), k) for i in range(4)]
    out, raw = torch.empty(2, 4, k, dtype=torch.int32)
    expected = [slots(table, i, 0, one, page_size) for i, one in enumerate(positions)]
    assert ENGINES.topk_transform_512_v2(x, lengths, table, out, page_size, None) is None
    assert agrees(out, expected)
    ENGINES.topk_transform_512_v2(x, lengths, table, out.zero_(), page_size, None, raw)
    assert agrees(out, expected)
    assert agrees(raw, positions)
    ENGINES.topk_transform_512_v2(x, lengths, None, out, page_size, None)
    assert agrees(out, positions)


def test_tilelang() -> None:
    x, starts, ends = scores(4, 50), int32(0, 10, 30, 5), int32(50, 13, 30, 45)
    expected = [best(x[i], int(starts[i]), int(ends[i])) for i in range(4)]
    assert agrees(ENGINES.tl_topk(x, starts, ends, K), expected)
