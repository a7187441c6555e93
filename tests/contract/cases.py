"""The cases that every strategy must pass, and how one is laid out in memory and judged."""

import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor

from autotopk import registry
from autotopk.device import Device
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.runtime.views import View
from autotopk.strategy import Config, Strategy

LAYOUTS = ("contiguous", "padded", "aligned", "sliding", "repeated")
"""Rows back to back; apart by an odd distance; apart, but all aligned; overlapping; one row many times."""

BOUNDARIES = sorted({1, *(power + step for power in (2**n for n in range(1, 13)) for step in (-1, 0, 1))})
"""Row lengths around every power of two to 4096."""

GUARD = 64
"""Elements before and after the outputs that must stay as they are."""

ORDERS = list(itertools.product((True, False), (True, False)))
"""(largest, sorted)."""


@dataclass(frozen=True)
class Case:
    """One question to ask of a strategy."""

    rows: int
    cols: int
    k: int
    dtype: str = "float32"
    values: str = "random"
    largest: bool = True
    sorted: bool = True
    layout: str = "contiguous"

    def __str__(self) -> str:
        order = ("largest" if self.largest else "smallest") + ("" if self.sorted else "-unsorted")
        return f"{self.rows}x{self.cols}-k{self.k}-{self.dtype}-{self.values}-{order}-{self.layout}"

    def input(self, device: str) -> Tensor:
        """(rows, cols), amid memory that would be in the answer if it were read."""
        dtype = getattr(torch, self.dtype)
        x = inputs.make(self.values, self.rows, self.cols, self.k, dtype, device, seed=self.cols)
        if self.layout == "contiguous":
            return x
        if self.layout == "repeated":
            return x[:1].expand(self.rows, self.cols)
        view = self.place(device)
        view.as_strided((view.untyped_storage().nbytes() // view.element_size(),), (1,), 0).fill_(self._bait(dtype))
        if self.layout == "sliding":  # rows overlap: the first whole, then the last element of each
            view[0], view[1:, -1] = x[0], x[1:, -1]
            return view
        return view.copy_(x)

    def place(self, device: str) -> Tensor:
        """(rows, cols) of memory laid out as the input, without its data."""
        dtype = getattr(torch, self.dtype)
        if self.layout == "repeated":
            return torch.empty(1, self.cols, dtype=dtype, device=device).expand(self.rows, self.cols)
        if self.layout == "contiguous":
            return torch.empty(self.rows, self.cols, dtype=dtype, device=device)
        step = {"padded": self.cols + 3, "aligned": -(-self.cols // 16) * 16 + 16, "sliding": 1}[self.layout]
        start = 16 if self.layout == "aligned" else 1
        memory = torch.empty(start + self.rows * step + self.cols + 16, dtype=dtype, device=device)
        return memory.as_strided((self.rows, self.cols), (step, 1), start)

    def _bait(self, dtype: torch.dtype) -> float:
        if dtype.is_floating_point:
            return float("nan") if self.largest else float("-inf")
        return torch.iinfo(dtype).max if self.largest else torch.iinfo(dtype).min

    def problem(self, x: Tensor, device_type: str) -> Problem:
        """The problem that dispatch would make of the input."""
        layout = View.of(x, self.k, -1, self.largest, self.sorted)
        assert layout is not None
        assert not layout.copied
        return replace(layout.problem, device_type=device_type)

    def problems_with(self, x: Tensor, answer: tuple[Tensor, Tensor]) -> list[str]:
        """What the oracle says."""
        return problems_with(x, *answer, self.k, largest=self.largest, sorted=self.sorted)


@dataclass(frozen=True)
class Beside:
    """A tensor along one of whose dimensions is asked, so that rows lie side by side."""

    shape: tuple[int, ...]
    dim: int
    k: int
    dtype: str = "float32"
    values: str = "random"
    largest: bool = True
    step: int = 1
    """The tensor is every so many-th of a longer one, along its first dimension."""

    def __str__(self) -> str:
        order = "largest" if self.largest else "smallest"
        return (
            f"{'x'.join(map(str, self.shape))}-dim{self.dim}-k{self.k}-{self.dtype}-{self.values}-{order}-{self.step}"
        )

    def input(self, device: str) -> Tensor:
        """The tensor, its rows filled as the input is named."""
        batch = [size for dim, size in enumerate(self.shape) if dim != self.dim]
        cols, rows = self.shape[self.dim], math.prod(batch)
        x = inputs.make(self.values, rows, cols, self.k, getattr(torch, self.dtype), device, seed=cols)
        moved = x.view(*batch, cols).movedim(-1, self.dim)
        return moved.repeat_interleave(self.step, 0).contiguous()[:: self.step]

    def way(self, x: Tensor) -> View:
        """How a kernel sees it."""
        rows = View.of(x, self.k, self.dim, self.largest, True)
        assert rows is not None
        way = rows.ways(x)[0]
        assert way.problem.layout.side_by_side
        return way

    def problems_with(self, x: Tensor, values: Tensor, indices: Tensor) -> list[str]:
        """What the oracle says to outputs of torch.topk's shape."""
        assert values.is_contiguous()
        assert indices.is_contiguous()
        x, values, indices = (
            y.movedim(self.dim, -1).reshape(-1, y.shape[self.dim]).contiguous() for y in (x, values, indices)
        )
        return problems_with(x, values, indices, self.k, largest=self.largest, sorted=True)


def beside_cases() -> Iterator[Beside]:
    """One row and many, in one group and many, with gaps, of lengths around those at which layouts change."""
    yield Beside((7, 5), 0, 3)
    yield Beside((1, 9, 2), 1, 9, "bfloat16")
    yield Beside((2, 33, 3), 1, 4, "float16", step=2)
    yield Beside((3, 2, 65, 5), 2, 6, "bfloat16", "ties", largest=False)
    yield Beside((129, 34), 0, 10, "float32", "near_ties")
    yield Beside((2, 256, 17), 1, 8, "float32", "few_nan", largest=False, step=3)
    for name in inputs.names_for(torch.float32):
        yield Beside((2, 40, 5), 1, 5, "float32", name)
        yield Beside((40, 9), 0, 3, "bfloat16", name, largest=False)


def boundary_cases(rows: int, k: int, longest: int, longest_whole: int) -> Iterator[Case]:
    """Row lengths around every power of two, with k = 1, `k`, and k = N up to a length; all else takes turns."""
    dtypes, layouts, orders = itertools.cycle(DTYPE_BYTES), itertools.cycle(LAYOUTS), itertools.cycle(ORDERS)
    names = {dtype: itertools.cycle(inputs.names_for(getattr(torch, dtype))) for dtype in DTYPE_BYTES}
    for cols in (cols for cols in BOUNDARIES if cols <= longest):
        for chosen in sorted({1, min(k, cols), cols if cols <= longest_whole else 1}):
            dtype, (largest, order) = next(dtypes), next(orders)
            yield Case(rows, cols, chosen, dtype, next(names[dtype]), largest, order, next(layouts))
        next(orders)  # so that dtypes and orders do not move in step


def input_cases(rows: int, cols: int, k: int) -> Iterator[Case]:
    """Every input of every dtype, largest and smallest."""
    layouts, orders = itertools.cycle(LAYOUTS), itertools.cycle((True, True, False))
    for dtype in DTYPE_BYTES:
        for name in inputs.names_for(getattr(torch, dtype)):
            for largest in (True, False):
                yield Case(rows, cols, k, dtype, name, largest, next(orders), next(layouts))


def questions(cases: Iterable[Case], device: Device) -> list[ParameterSet]:
    """(strategy name, case) for every strategy that declares itself able."""
    return [
        pytest.param(strategy.name, case, id=f"{strategy.name}-{case}")
        for case in cases
        for strategy in registry.available()
        if not strategy.reasons_unable(case.problem(case.place("cpu"), device.type), device)
    ]


def sample(strategy: Strategy, problem: Problem, device: Device, count: int = 6) -> list[Config]:
    """The default, the first, the last and some configurations between, each once."""
    space = list(strategy.shortlist(problem, device))
    default = strategy.heuristic(problem, device)
    spread = [space[i * (len(space) - 1) // max(1, count - 1)] for i in range(count)]
    return list(dict.fromkeys([*([] if default is None else [default]), *spread]))


def turn(strategy: Strategy, case: Case, problem: Problem, device: Device, count: int = 6) -> Config:
    """One of the sample, another for every case."""
    configs = sample(strategy, problem, device, count)
    return configs[zlib.crc32(str(case).encode()) % len(configs)]


def answer_amid_guards(
    problem: Problem, dtype: torch.dtype, index_dtype: torch.dtype, launch: Callable[[Tensor, Tensor], None]
) -> tuple[Tensor, Tensor]:
    """(rows, k) values and indices that `launch` wrote to what started as garbage, and that it wrote nothing else."""
    count = problem.rows * problem.k
    values = torch.full((count + 2 * GUARD,), 77, dtype=dtype)
    indices = torch.full((count + 2 * GUARD,), -7, dtype=index_dtype)
    inner = slice(GUARD, GUARD + count)
    launch(values[inner], indices[inner])
    for memory, garbage in ((values, 77), (indices, -7)):
        assert (memory[:GUARD] == garbage).all()
        assert (memory[GUARD + count :] == garbage).all()
    return values[inner].view(problem.rows, problem.k), indices[inner].view(problem.rows, problem.k)


INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes."""


def at(x: Tensor, indices: Tensor) -> Tensor:
    """The elements at (rows, k) indices, their bits as they are: torch's gather of float16 makes other NaNs of some."""
    return x.view(INTEGERS[x.element_size()]).gather(1, indices).view(x.dtype)


def best_columns(x: Tensor, k: int, *, largest: bool = True) -> Tensor:
    """(rows, k) columns of the best, in order, equal elements by their columns, as `stable` answers have them."""
    return x.sort(dim=1, descending=largest, stable=True).indices[:, :k]


def fill(x: Tensor, patterns: list[int], seed: int) -> Tensor:
    """Overwrite `x` with elements of these bits, chosen at random, and return it."""
    integer = INTEGERS[x.element_size()]
    generator = torch.Generator().manual_seed(seed)
    memory = x
    if x.stride(0) < x.shape[1]:  # rows overlap: their memory is one longer row
        memory = x.as_strided((1, (x.shape[0] - 1) * x.stride(0) + x.shape[1]), (0, 1))
    choice = torch.randint(len(patterns), memory.shape, generator=generator)
    memory.copy_(torch.tensor(patterns, dtype=integer)[choice].view(x.dtype))
    return x
