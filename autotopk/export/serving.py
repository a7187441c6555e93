"""Which programs serve a top-k of an exported model, whose sizes may be ranges: the run walk's choices, made ahead.

A range is cut at powers of two. A piece is served by the first choice whose program is the same at all its ends and in
its middle: kernels and grids take sizes when they run, and what a family serves at both ends it serves between them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from autotopk import registry
from autotopk.device import Device
from autotopk.errors import BuildError
from autotopk.export import quickest
from autotopk.problem import DTYPE_BYTES, VECTOR_BYTES, MemoryLayout, Problem, vector_width
from autotopk.program import KernelProgram, most_scratch
from autotopk.runtime import dispatch
from autotopk.strategies.torch_fallback import strategy as torch_fallback
from autotopk.strategy import Config, Strategy

MOST = 1 << 24
"""Rows, or columns, up to which an unbounded range is served."""


@dataclass(frozen=True)
class Sizes:
    """From the least to the most of a size; no `most` is no bound."""

    least: int
    most: int | None

    @classmethod
    def of(cls, size: int) -> "Sizes":
        """A size that is known."""
        return cls(size, size)

    @property
    def fixed(self) -> bool:
        """It is one number."""
        return self.least == self.most

    @cached_property
    def pieces(self) -> list[tuple[int, int]]:
        """What it is cut into, (least, most) each, none of them empty."""
        least, most = max(1, self.least), MOST if self.most is None else self.most
        edges = [least, *(1 << bit for bit in range(least.bit_length(), most.bit_length())), most + 1]
        return [(low, high - 1) for low, high in pairwise(edges) if low < high]


@dataclass(frozen=True)
class Asked:
    """A top-k in a model."""

    rows: Sizes
    cols: Sizes
    k: int
    dtype: str
    largest: bool
    sorted: bool
    row_stride: int | None = None
    """In elements, where it is not the columns."""
    inner: int = 1
    """So many rows are side by side in contiguous memory."""

    @property
    def fixed(self) -> bool:
        """All sizes are known."""
        return self.rows.fixed and self.cols.fixed

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DTYPE_BYTES[self.dtype]

    def problem(self, rows: int, cols: int, access: "Access") -> Problem:
        """That of some of the sizes."""
        if self.inner > 1:
            layout = MemoryLayout(cols * self.inner, col_stride=self.inner, inner=self.inner)
        else:
            layout = MemoryLayout(self.row_stride or cols, vector=access.vector, aligned=access.aligned)
        return Problem(rows, cols, self.k, self.dtype, self.largest, self.sorted, device_type="cuda", layout=layout)

    @property
    def accesses(self) -> list["Access"]:
        """How elements may be read, the widest first; the last one of whatever memory."""
        if self.inner > 1:
            return [Access()]
        widest = VECTOR_BYTES // self.itemsize
        stride = self.row_stride or (self.cols.least if self.cols.fixed else widest)
        whole = vector_width(0, stride, self.cols.least if self.cols.fixed else widest, self.itemsize)
        return list(dict.fromkeys([Access(whole, True), *([] if self.cols.fixed else [Access(1, True)]), Access()]))

    def __str__(self) -> str:
        rows, cols = (
            f"{one.least}" if one.fixed else f"[{one.least}, {one.most or ''}]" for one in (self.rows, self.cols)
        )
        order = ("largest" if self.largest else "smallest") + (", sorted" if self.sorted else ", any order")
        return f"{rows}x{cols} {self.dtype} k={self.k} ({order})"


@dataclass(frozen=True)
class Access:
    """How elements are read: so many at a time, from memory that begins at a multiple of 16 bytes or anywhere."""

    vector: int = 1
    aligned: bool = False


@dataclass(frozen=True)
class Plan:
    """A program, and what it serves."""

    asked: Asked
    """With the sizes that are served."""
    access: Access
    program: KernelProgram
    label: str
    """Who made the program."""


@dataclass(frozen=True)
class Terms:
    """What counts as serving."""

    device: Device
    """Where."""
    wanted: Callable[[Strategy], bool]
    """Which families."""
    always: bool = False
    """Also what is expected to be slower than torch.topk."""
    build: bool = True
    """Kernels are compiled, and what cannot be does not serve."""
    race: bool = False
    """Where neither a measurement nor a rule says which of a family's programs is best, they are timed."""


def plans(asked: Asked, terms: Terms) -> Iterator[Plan]:
    """Everything that serves sizes of a top-k, piece by piece, wider reads first.

    Of ranges, kernels that are there come before those that would have to be compiled.
    """
    for access in asked.accesses:
        unit = 1 if asked.cols.fixed else access.vector
        for rows in _pieces(asked.rows, asked.inner):
            for low, high in _pieces(replace(asked.cols, least=max(asked.k, asked.cols.least)), unit):
                piece = replace(asked, rows=Sizes(*rows), cols=Sizes(low, high))
                found = None if asked.fixed else _plan(piece, access, terms, there=True)
                if found := found or _plan(piece, access, terms):
                    yield found


def whole(asked: Asked, access: Access, terms: Terms) -> Plan | None:
    """One program that serves all sizes of a top-k, if there is one."""
    if asked.rows.most is None or asked.cols.most is None:
        return None
    asked = replace(asked, rows=replace(asked.rows, least=max(1, asked.rows.least)))
    return _plan(replace(asked, cols=replace(asked.cols, least=max(asked.k, asked.cols.least))), access, terms)


def _plan(piece: Asked, access: Access, terms: Terms, *, there: bool = False) -> Plan | None:
    """What serves a piece; of kernels that are `there`, if that is asked for."""
    corners, device = _corners(piece, access), terms.device
    for strategy, config in _candidates(corners[0], terms):
        try:
            programs = [_program(strategy, config, corner, device) for corner in corners]
            first = programs[0]
            if first is None or any(one != first for one in programs[1:]):
                continue
            if there and not first.is_cached(device.arch):
                continue
            for source in first.sources if terms.build else ():
                source.load(device.arch)
        except BuildError:
            continue
        return Plan(piece, access, first, str(strategy.candidate(config)))
    return None


def _candidates(problem: Problem, terms: Terms) -> Iterator[tuple[Strategy, Config]]:
    """The run walk's choices before torch.topk, then the rungs of the same families; `always` of all families."""
    seen: dict[str, Strategy] = {}
    for choice in dispatch.choices(problem, terms.device):
        if choice.strategy is torch_fallback:
            if choice.winner is not None and not terms.always:
                return  # it was measured fastest
        elif terms.wanted(choice.strategy):
            seen[choice.strategy.name] = choice.strategy
            yield choice.strategy, choice.config
    if terms.always:
        seen |= {one.name: one for one in registry.available() if terms.wanted(one)}
    for strategy in seen.values():
        if not strategy.reasons_unable(problem, terms.device):
            yield from ((strategy, config) for config in _others(strategy, problem, terms))


def _others(strategy: Strategy, problem: Problem, terms: Terms) -> list[Config]:
    """What a family may serve with where nobody says what is best: its ladder, or the quickest of all here."""
    ladder = list(strategy.ladder(problem, terms.device))
    if not terms.race:
        return ladder
    configs = list(dict.fromkeys([*ladder, *strategy.shortlist(problem, terms.device)]))
    programs = [strategy.program(config, problem, terms.device) for config in configs]
    return [configs[at] for at in quickest.in_order(programs, problem, terms.device)]


def _program(strategy: Strategy, config: Config, problem: Problem, device: Device) -> KernelProgram | None:
    """The program of kernels, if the family serves the problem so."""
    if strategy.reasons_unable(problem, device):
        return None
    if not strategy.valid(config, problem, device) and config not in strategy.ladder(problem, device):
        return None
    program = strategy.program(config, problem, device)
    if not isinstance(program, KernelProgram) or program.scratch_bytes(problem) > most_scratch(problem):
        return None
    return program


def _corners(piece: Asked, access: Access) -> list[Problem]:
    """The middle, then the ends, each once."""
    ends = [(one.least, one.most or MOST) for one in (piece.rows, piece.cols)]
    step = (piece.inner, 1 if piece.cols.fixed else access.vector)
    middle = [_up(min(high, low + low // 2), unit) for (low, high), unit in zip(ends, step, strict=True)]
    places = [tuple(min(at, high) for at, (_, high) in zip(middle, ends, strict=True))]
    places += [(rows, cols) for rows in ends[0] for cols in ends[1]]
    return [piece.problem(rows, cols, access) for rows, cols in dict.fromkeys(places)]


def _pieces(sizes: Sizes, unit: int) -> Sequence[tuple[int, int]]:
    """The pieces of a range, their ends multiples of a unit."""
    if sizes.fixed:
        return [(sizes.least, sizes.least)]
    cut = ((_up(low, unit), high // unit * unit) for low, high in sizes.pieces)
    return [(low, high) for low, high in cut if low <= high]


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
