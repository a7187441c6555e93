"""The selector refuses what it does not take, and says what that was and what it takes."""

import re
from typing import Any

import pytest
import torch

import autotopk
from tests.runtime.drawn_windows import int32
from tests.runtime.same import unwarned

pytestmark = unwarned

X = torch.randn(4, 9)
FOUR = int32(1, 2, 3, 4)
TABLE = torch.zeros(4, 3, dtype=torch.int32)
OUT = torch.empty(4, 2, dtype=torch.int32)

WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "unknown": ({"lenghts": FOUR}, TypeError, "topk_indices() got an unexpected keyword argument 'lenghts'"),
    "input list": ({"input": [[1.0]]}, TypeError, "input is a Tensor, not list"),
    "input 1-d": (
        {"input": X[0]},
        ValueError,
        "input is strided with 2 dimensions, (rows, columns), not torch.strided",
    ),
    "input sparse": ({"input": X.to_sparse()}, ValueError, "not torch.sparse_coo with 2"),
    "input bool": ({"input": X > 0}, ValueError, "float64, float32, float16, bfloat16, int64"),
    "input too long": (
        {"input": torch.zeros(4, 1).expand(4, 1 << 31)},
        OverflowError,
        "rows are 2147483648 long, topk_indices counts to 2147483647",
    ),
    "dim": ({"dim": 0}, ValueError, "dim=0 is not -1 or 1"),
    "dim bool": ({"dim": True}, ValueError, "dim=True is not -1 or 1"),
    "largest": ({"largest": 1}, TypeError, "largest=1 is not a bool"),
    "sorted": ({"sorted": None}, TypeError, "sorted=None is not a bool"),
    "stable": ({"stable": "yes"}, TypeError, "stable='yes' is not a bool"),
    "relative": ({"relative": 1}, TypeError, "relative=1 is not a bool"),
    "return_raw": ({"return_raw": 0}, TypeError, "return_raw=0 is not a bool"),
    "k negative": ({"k": -1}, ValueError, "k=-1 is below 0"),
    "k float": ({"k": 2.0}, TypeError, "k=2.0 is not an int"),
    "k bool": ({"k": True}, TypeError, "k=True is not an int"),
    "k int64": ({"k": FOUR.long(), "max_k": 3}, ValueError, "k is torch.int64 of (4,) on cpu, not torch.int32 of (4,)"),
    "k number": ({"k": torch.tensor(3, dtype=torch.int32), "max_k": 3}, ValueError, "k is torch.int32 of () on cpu"),
    "k alone": ({"k": FOUR}, ValueError, "max_k is not given"),
    "max_k alone": ({"max_k": 3}, ValueError, "max_k=3 goes with a tensor k, not with k=2"),
    "max_k negative": ({"k": FOUR, "max_k": -2}, ValueError, "max_k=-2 is below 0"),
    "starts int64": (
        {"starts": FOUR.long()},
        ValueError,
        "starts is torch.int64 of (4,) on cpu, not torch.int32 of (4,) on cpu",
    ),
    "starts too few": (
        {"starts": FOUR[:3]},
        ValueError,
        "starts is torch.int32 of (3,) on cpu, not torch.int32 of (4,)",
    ),
    "starts list": ({"starts": [1, 2, 3, 4]}, TypeError, "starts=[1, 2, 3, 4] is not torch.int32 of (4,) on cpu"),
    "starts elsewhere": ({"starts": FOUR.to("meta")}, ValueError, "on meta, not torch.int32 of (4,) on cpu"),
    "lengths of no groups": ({"lengths": FOUR[:3], "next_n": 2}, ValueError, "not torch.int32 of (4,) or (2,) on cpu"),
    "lengths 2-d": ({"lengths": FOUR[:, None]}, ValueError, "lengths is torch.int32 of (4, 1)"),
    "ends and lengths": ({"ends": FOUR, "lengths": FOUR}, ValueError, "ends and lengths are both given"),
    "next_n": ({"next_n": 3}, ValueError, "next_n=3 does not divide 4 rows"),
    "next_n zero": ({"next_n": 0}, ValueError, "next_n=0 is below 1"),
    "ratio zero": ({"compress_ratio": 0, "lengths": FOUR}, ValueError, "compress_ratio=0 is below 1"),
    "ratio alone": ({"compress_ratio": 4}, ValueError, "compress_ratio=4 divides lengths, of which none are given"),
    "rows 2-d": (
        {"rows": TABLE},
        ValueError,
        "rows is torch.int32 of (4, 3) on cpu, not torch.int32 of (rows,) on cpu",
    ),
    "offsets": ({"offsets": FOUR[:2]}, ValueError, "offsets is torch.int32 of (2,) on cpu, not torch.int32 of (4,)"),
    "offsets of slots": ({"offsets": FOUR, "page_table": TABLE}, ValueError, "offsets do not go with a page_table"),
    "page_size alone": ({"page_size": 2}, ValueError, "page_size=2 goes with a page_table"),
    "page_size": ({"page_table": TABLE, "page_size": 48}, ValueError, "page_size=48 is not a power of two"),
    "page_size float": ({"page_table": TABLE, "page_size": 2.0}, TypeError, "page_size=2.0 is not an int"),
    "row_to_batch alone": ({"row_to_batch": FOUR}, ValueError, "row_to_batch goes with a page_table"),
    "page starts alone": ({"page_table_starts": FOUR}, ValueError, "page_table_starts goes with a page_table"),
    "page_table list": (
        {"page_table": [[1]]},
        TypeError,
        "page_table=[[1]] is not torch.int32 of (batch, pages) on cpu",
    ),
    "page_table int64": ({"page_table": TABLE.long()}, ValueError, "page_table is torch.int64 of (4, 3) on cpu"),
    "page_table short": ({"page_table": TABLE[:3]}, ValueError, "page_table has 3 rows, not 4 rows, and row_to_batch"),
    "page_table of no groups": ({"page_table": TABLE[:3], "next_n": 2}, ValueError, "3 rows, not 4 or 2 rows, and"),
    "fill float": ({"fill": 0.5}, TypeError, "fill=0.5 is not an int"),
    "fill large": ({"fill": 1 << 31}, ValueError, "fill=2147483648 is no torch.int32"),
    "index_dtype": (
        {"index_dtype": torch.int16},
        ValueError,
        "index_dtype is torch.int16, not torch.int32 or torch.int64",
    ),
    "index_dtype name": (
        {"index_dtype": "int32"},
        ValueError,
        "index_dtype is 'int32', not torch.int32 or torch.int64",
    ),
    "out dtype": ({"out": OUT.to(torch.int16)}, ValueError, "out is torch.int16, not torch.int32 or torch.int64"),
    "out of another": (
        {"out": OUT, "index_dtype": torch.int64},
        ValueError,
        "out has indices of torch.int32, not of index_dtype=torch.int64",
    ),
    "out shape": (
        {"out": OUT[:, :1]},
        ValueError,
        "out is torch.int32 of (4, 1) on cpu, not torch.int32 of (4, 2) on cpu",
    ),
    "out strides": (
        {"out": OUT.t().contiguous().t()},
        ValueError,
        "out has strides (1, 4), not rows apart and columns",
    ),
    "out repeated": ({"out": OUT[:1].expand(4, 2)}, ValueError, "out has strides (0, 1), not rows apart"),
    "out tuple": ({"out": (OUT, OUT)}, TypeError, "out is a tuple of 2, not a Tensor"),
    "out of many": ({"out": OUT, "return_raw": True}, TypeError, "out is one Tensor, not a tuple of 2 Tensors"),
    "out values": (
        {"out": (OUT, OUT), "return_values": True},
        ValueError,
        "out is torch.int32 of (4, 2) on cpu, not torch.float32 of (4, 2) on cpu",
    ),
    "out list": ({"out": [OUT]}, TypeError, "out is a Tensor, not list"),
    "out with derivatives": (
        {"input": X.clone().requires_grad_(), "out": (OUT, torch.empty(4, 2)), "return_values": True},
        RuntimeError,
        "out= has no derivatives, and input requires them",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_says_what_is_wrong(name: str) -> None:
    """Also where nothing else would make it the selector's."""
    asked, kind, message = WRONG[name]
    with pytest.raises(kind, match=re.escape(message)):
        autotopk.topk_indices(**{"input": X, "k": 2, "fill": -1, **asked})


def test_right_arguments_pass() -> None:
    """What the wrong ones above are made of."""
    asked: dict[str, Any] = {"starts": FOUR, "ends": FOUR, "fill": -1, "rows": FOUR, "page_table": TABLE}
    autotopk.topk_indices(X, 2, **asked, row_to_batch=FOUR, page_table_starts=FOUR, page_size=16, out=OUT)
    autotopk.topk_indices(X, 2, lengths=FOUR[:2], next_n=2, compress_ratio=2, offsets=FOUR, index_dtype=torch.int32)
