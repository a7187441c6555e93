"""Every kind of TileLang kernel answers right in an emulator on the CPU, and touches nothing but its input and answer.

Generating and compiling a kernel takes seconds, running it a millisecond: few kernels, each asked many questions.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autotopk import registry
from autotopk.compilers.tilelang import TileLangSource
from autotopk.device import H100
from autotopk.oracle import inputs
from autotopk.problem import ANSWERS, DTYPE_BYTES, Answer
from autotopk.program import KernelProgram
from autotopk.runtime.launch import arguments
from autotopk.strategy import Config
from tests.contract.cases import LAYOUTS, ORDERS, Case, answer_amid_guards, at
from tests.contract.drawn import draw_values
from tests.emulator import generated
from tests.emulator.emulator import Emulator

pytestmark = [pytest.mark.requires("g++"), pytest.mark.tilelang]

ALIGNED = ("contiguous", "aligned", "repeated")
"""Layouts that keep wide loads aligned, if the row's length does."""

PREEMPTIONS = (0, 30, 400)
"""Accesses to shared memory after which another thread runs; 0 for threads that run until they must wait."""

SHARING = (("int8", "uint8"), ("float16", "bfloat16"))
"""Dtypes whose kernels are the same."""


@dataclass(frozen=True)
class Kind:
    """One kernel: a family, its knobs, and what else it is compiled for."""

    dtype: str
    blocks: int
    threads: int
    items: int
    radix_bits: int
    capacity: int
    vector: int
    streams: bool = False
    wider: bool = False
    """Asked in the slow run alone: others have every pair of what tells kinds apart."""

    def __str__(self) -> str:
        shape = f"{self.blocks}x{self.threads}x{self.items}" + ("-streams" if self.streams else "")
        return f"{self.name}-{self.dtype}-{shape}-r{self.radix_bits}-c{self.capacity}-v{self.vector}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Those that the kernel serves."""
        return next((sharing for sharing in SHARING if self.dtype in sharing), (self.dtype,))

    @property
    def name(self) -> str:
        return "block_radix" if self.blocks == 1 else "cluster_radix"

    @property
    def config(self) -> Config:
        cluster = {"blocks": self.blocks} if self.blocks > 1 else {}
        return registry.get(self.name).config_type(
            threads=self.threads,
            items=self.items,
            radix_bits=self.radix_bits,
            capacity=self.capacity,
            vector=self.vector,
            **cluster,
        )

    @property
    def held(self) -> int:
        return self.blocks * self.threads * self.items

    @property
    def lengths(self) -> list[int]:
        """Row lengths from one load to all that is held, and from just more to many times as much; odd if they may."""
        step = self.vector
        held = sorted({step, 5 * step, self.held // 2 + step, self.held - step, self.held})
        more = [self.held + step, 2 * self.held - step, 2 * self.held, 5 * self.held + 7 * step]
        return [*(held if self.full or not self.streams else []), *(more if self.streams else [])]

    @property
    def full(self) -> bool:
        """Whether it holds all that registers can, so that it serves any length."""
        return self.items == (16 if DTYPE_BYTES[self.dtype] == 8 else 32)

    def most(self, cols: int) -> int:
        """The largest k for rows of a length."""
        sampled = cols if cols <= self.held else self.held - self.blocks * self.threads * self.vector
        return min(sampled, self.capacity) if self.capacity else cols

    def cases(self) -> Iterator[tuple[Case, Answer]]:
        """Every named input and length, with k = 1, the largest k and one between; directions and answers take turns.

        Dtypes that share the kernel take turns with lengths.
        """
        layouts = itertools.cycle(LAYOUTS if self.vector == 1 else ALIGNED)
        rows, orders = itertools.cycle((1, 3, 2)), itertools.cycle(ORDERS if self.capacity else ORDERS[1::2])
        answers: Iterator[Answer] = itertools.cycle(("pairs", "indices", "pairs", "pairs", "indices"))
        for turn, dtype in enumerate(self.dtypes):
            for values in inputs.names_for(getattr(torch, dtype)):
                for cols in self.lengths[turn :: len(self.dtypes)]:
                    most = self.most(cols)
                    for k in sorted({1, (most + 2) // 3, most}):
                        yield Case(next(rows), cols, k, dtype, values, *next(orders), next(layouts)), next(answers)


WHOLE = [
    Kind("float32", 1, 128, 4, 8, 64, 4, wider=True),
    Kind("float32", 1, 64, 8, 11, 256, 1, wider=True),
    Kind("float32", 1, 64, 8, 8, 0, 2),
    Kind("float16", 1, 64, 8, 8, 256, 8, wider=True),
    Kind("float16", 1, 128, 4, 11, 512, 1),
    Kind("float64", 1, 64, 4, 11, 256, 2),
    Kind("int64", 1, 64, 4, 8, 64, 1, wider=True),
    Kind("int32", 1, 64, 8, 11, 512, 4, wider=True),
    Kind("int8", 1, 64, 16, 8, 64, 16, wider=True),
    Kind("int8", 1, 128, 1, 8, 0, 1),
    Kind("int16", 1, 64, 8, 11, 0, 8),
    Kind("float32", 2, 64, 4, 11, 256, 4, wider=True),
    Kind("float32", 4, 64, 4, 8, 64, 1),
    Kind("float64", 2, 64, 2, 11, 128, 2, wider=True),
    Kind("float16", 4, 64, 8, 8, 0, 8),
]
"""Kernels that hold whole rows: every class of dtypes, width of load, radix and order, sorting and not."""

STREAMING = [
    Kind("float32", 1, 64, 8, 11, 256, 4, streams=True, wider=True),
    Kind("float32", 1, 64, 8, 8, 64, 1, streams=True),
    Kind("float64", 1, 64, 2, 8, 128, 1, streams=True, wider=True),
    Kind("float16", 1, 64, 8, 11, 0, 8, streams=True, wider=True),
    Kind("float32", 2, 64, 4, 11, 512, 1, streams=True, wider=True),
    Kind("int64", 4, 64, 4, 8, 64, 2, streams=True),
    Kind("float16", 2, 64, 4, 11, 0, 4, streams=True),
    Kind("int32", 1, 64, 32, 11, 1024, 4, streams=True),
    Kind("int8", 1, 64, 32, 8, 256, 16, streams=True),
    Kind("int64", 1, 64, 16, 8, 0, 1, streams=True),
    Kind("float32", 2, 32, 32, 8, 512, 1, streams=True),
]
"""Kernels that hold a sample of rows and stream the rest; those with full registers serve shorter rows as well."""

DRAWN = {
    "block_radix": [WHOLE[4], STREAMING[1]],
    "cluster_radix": [WHOLE[-3], STREAMING[-1]],
}
"""Kernels that are asked whatever hypothesis makes up."""


class Emulated:
    """Kernels in the emulator, each loaded once."""

    _loaded: ClassVar[dict[TileLangSource, Emulator]] = {}

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, kind: Kind, case: Case, x: Tensor, answer: Answer, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The kernel's answer, from outputs that started as garbage amid guards."""
        problem, alone = replace(case.problem(x, "cuda"), answer=answer), answer == "indices"
        strategy = registry.get(kind.name)
        assert strategy.valid(kind.config, problem, H100)
        program = strategy.program(kind.config, problem, H100)
        assert isinstance(program, KernelProgram)
        assert isinstance(program.sources[0], TileLangSource)
        constants = dict(program.sources[0].constants)
        assert (constants["vector"], constants["streams"]) == (kind.vector, kind.streams)
        emulator = self._emulator(program.sources[0])

        def launch(values: Tensor, indices: Tensor) -> None:
            launched = arguments(problem, x=x, values=0 if alone else values, indices=indices)
            emulator(
                program.launches[0].blocks(problem), launched, seed=seed, preempt=PREEMPTIONS[seed % len(PREEMPTIONS)]
            )

        index_dtype = torch.int32 if alone else torch.int64
        values, indices = answer_amid_guards(problem, x.dtype, index_dtype, launch)
        found = indices.long()
        return at(x, found) if alone else values, found

    def _emulator(self, source: TileLangSource) -> Emulator:
        if source not in self._loaded:
            self._loaded[source] = generated.emulator(source, self.folder)
        return self._loaded[source]


@pytest.fixture(scope="session")
def emulated(emulated_kernels: Path) -> Emulated:
    return Emulated(emulated_kernels)


KINDS = [
    pytest.param(kind, marks=[pytest.mark.slow] if kind.wider else [], id=str(kind)) for kind in (*WHOLE, *STREAMING)
]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_right(kind: Kind, emulated: Emulated) -> None:
    for seed, (case, answer) in enumerate(kind.cases()):
        x = case.input("cpu")
        found = case.problems_with(x, emulated.run(kind, case, x, answer, seed=seed))
        assert not found, (case, answer)


@pytest.mark.parametrize("name", DRAWN)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_answers_right_whatever_is_asked(name: str, emulated: Emulated, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(DRAWN[name]))
    shortest = kind.held + 1 if kind.streams and not kind.full else 1
    cols = data.draw(st.integers(shortest, 6 * kind.held if kind.streams else kind.held))
    case = Case(
        rows=data.draw(st.integers(1, 3)),
        cols=cols,
        k=data.draw(st.integers(1, kind.most(cols))),
        dtype=data.draw(st.sampled_from(kind.dtypes)),
        largest=data.draw(st.booleans()),
        sorted=kind.capacity > 0,
        layout=data.draw(st.sampled_from(LAYOUTS)),
    )
    x = draw_values(data, case.input("cpu"))
    answer = data.draw(st.sampled_from(ANSWERS))
    found = case.problems_with(x, emulated.run(kind, case, x, answer, seed=data.draw(st.integers(0, 1000))))
    assert not found, (case, answer)


def pairs(kinds: Iterable[Kind]) -> set[tuple[tuple[str, object], ...]]:
    """Every two things at once that some kind is: branches of device code depend on one or two of them."""
    return {
        pair
        for kind in kinds
        for pair in itertools.combinations(
            {
                "bytes": DTYPE_BYTES[kind.dtype],
                "float": "float" in kind.dtype,
                "cluster": kind.blocks > 1,
                "streams": kind.streams,
                "full": kind.full,
                "radix": kind.radix_bits,
                "sorts": kind.capacity > 0,
                "wide": kind.vector > 1,
            }.items(),
            2,
        )
    }


def test_every_run_has_every_pair() -> None:
    kinds = [*WHOLE, *STREAMING]
    assert pairs(kind for kind in kinds if not kind.wider) == pairs(kinds)


def test_every_width_and_knob_has_a_kernel() -> None:
    kinds = [kind for kind in (*WHOLE, *STREAMING) if not kind.wider]
    assert {dtype for kind in kinds for dtype in kind.dtypes} == {*DTYPE_BYTES}
    knobs: list[tuple[Callable[[Kind], int], set[int]]] = [
        (lambda kind: kind.blocks, {1, 2, 4}),
        (lambda kind: kind.radix_bits, {8, 11}),
        (lambda kind: kind.vector, {1, 2, 4, 8, 16}),
        (lambda kind: kind.capacity > 0, {True, False}),
    ]
    for pick, every in knobs:
        assert {pick(kind) for kind in kinds} == every
    for streams, bytes in itertools.product((True, False), (1, 2, 4, 8)):
        assert any(kind.streams == streams and DTYPE_BYTES[kind.dtype] == bytes for kind in kinds)
