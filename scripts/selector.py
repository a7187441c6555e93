"""The selector: `python scripts/selector.py [--json FILE] [--small]`, on a GPU.

Windows of rows are asked of `autotopk.topk_indices`, whichever kernel dispatch chooses, beside dense rows that are as
long: microseconds of a call in a CUDA graph, data cold where many inputs exceed the L2. The last column is what is
aimed at, as a multiple of the dense time. The k-th alone is asked of `autotopk.kth_value` beside torch.kthvalue.
`--small` asks for a hundredth of it, on any device.
"""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import autotopk
from autotopk.oracle.windows import problems_with_windows
from autotopk.problem import Problem
from autotopk.tuning import timing

SAMPLES = 5

Ends = Callable[[int, int], Tensor]
"""From rows and columns to the ends of windows, int32 (rows,), that begin with their rows."""


def whole(rows: int, cols: int) -> Tensor:
    return torch.full((rows,), cols, dtype=torch.int32)


def of_3000(rows: int, cols: int) -> Tensor:
    return torch.full((rows,), min(3000, cols), dtype=torch.int32)


def mixed(rows: int, cols: int) -> Tensor:
    """From a 128th of the columns to all, evenly in logarithms, in no order."""
    lengths = torch.logspace(-7, 0, rows, base=2, dtype=torch.float64).mul(cols).round().to(torch.int32)
    return lengths[torch.randperm(rows, generator=torch.Generator().manual_seed(0))]


def prompt(rows: int, cols: int) -> Tensor:
    """Of the tokens of one."""
    return torch.arange(1, rows + 1, dtype=torch.int64).mul(cols).div(rows).ceil().to(torch.int32)


@dataclass(frozen=True)
class Shape:
    """Windows, and the dense rows that they are compared with."""

    rows: int
    cols: int
    k: int
    ends: Ends
    dense: int
    """Columns of the dense rows."""
    bar: float | None = None
    """Most times the dense time."""
    dtype: str = "float32"


def shapes() -> Iterator[Shape]:
    """What is aimed at, then what engines ask for."""
    yield Shape(64, 32_768, 2048, whole, 32_768, 1.1)
    yield Shape(64, 131_072, 512, of_3000, 3000, 1.2)
    yield Shape(64, 131_072, 2048, of_3000, 3000, 1.2)
    yield Shape(64, 131_072, 2048, mixed, 65_536, 1.25)
    for rows in (1, 8, 64):
        for k in (512, 1024, 2048):
            yield Shape(rows, 131_072, k, whole, 131_072)
    for dtype in ("float32", "bfloat16"):
        yield Shape(4096, 8192, 2048, whole, 8192, dtype=dtype)
        yield Shape(4096, 8192, 2048, prompt, 8192, dtype=dtype)


@dataclass(frozen=True)
class Row:
    """Of one shape. Times are microseconds."""

    rows: int
    cols: int
    k: int
    dtype: str
    windows: str
    us: float
    dense_us: float
    bar: float | None
    wrong: tuple[str, ...]

    def line(self) -> str:
        """Of the table."""
        told = f"{self.rows:,} x {self.cols:,}, {self.k:,}", self.dtype, self.windows
        times = f"{self.us:.1f}", f"{self.dense_us:.1f}", f"{self.us / self.dense_us:.2f}"
        return f"| {' | '.join((*told, *times, f'{self.bar:g}' if self.bar else '', '; '.join(self.wrong) or 'yes'))} |"


HEAD = """\
| rows x columns, k | dtype | windows | us | dense | ratio | bar | exact |
|---|---|---|--:|--:|--:|--:|---|"""


def measured(shape: Shape, device: torch.device) -> Row:
    """Time and check one shape."""
    ends = shape.ends(shape.rows, shape.cols).to(device)
    k = min(shape.k, shape.cols)

    def select(x: Tensor) -> Any:
        return autotopk.topk_indices(x, k, sorted=False, ends=ends)

    xs = timing.random_inputs(Problem.contiguous(shape.rows, shape.cols, k, shape.dtype, device.type), device)
    us = timing.timer_for(xs).median_us(select, SAMPLES)
    indices, values = autotopk.topk_indices(xs[0], k, ends=ends, return_values=True)
    wrong = problems_with_windows(xs[0], ends, (values, indices), k, True)
    some = min(k, shape.dense)
    xs = timing.random_inputs(Problem.contiguous(shape.rows, shape.dense, some, shape.dtype, device.type), device)
    dense_us = timing.timer_for(xs).median_us(lambda x: autotopk.topk_indices(x, some, sorted=False), SAMPLES)
    told = shape.rows, shape.cols, k, shape.dtype, shape.ends.__name__
    return Row(*told, us, dense_us, shape.bar, tuple(wrong))


def kth(cols: int, k: int, device: torch.device) -> Row:
    """The k-th of one row, beside torch.kthvalue, which no CUDA graph has: by calls."""
    xs = timing.random_inputs(Problem.contiguous(1, cols, k, device_type=device.type), device)
    timer = timing.timer_for(xs)
    us = timer.median_us(lambda x: autotopk.kth_value(x, k), SAMPLES)
    found, expected = autotopk.kth_value(xs[0], k), torch.kthvalue(xs[0], k)
    right = torch.equal(found.values, expected.values) and torch.equal(xs[0][0, found.indices], expected.values)
    torch_us = timing.host_us(lambda: torch.kthvalue(xs[0], k).values.item())
    return Row(1, cols, k, "float32", "kth", us, torch_us, None, () if right else ("not the k-th",))


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go as well")
    parser.add_argument("--small", action="store_true", help="a hundredth of everything")
    asked = parser.parse_args()
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    print(HEAD)
    rows = []
    for shape in shapes():
        if asked.small:
            ends, dense = shape.ends, max(1, shape.dense // 100)
            shape = Shape(-(-shape.rows // 16), shape.cols // 100, shape.k // 100, ends, dense, shape.bar, shape.dtype)
        rows.append(measured(shape, device))
        print(rows[-1].line(), flush=True)
    cols = 100_000 if asked.small else 10_000_000
    rows.append(kth(cols, cols // 2, device))
    print(rows[-1].line(), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
