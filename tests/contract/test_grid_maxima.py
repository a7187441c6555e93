"""grid_maxima with messages that tell little, ties, and rows in order, in the emulator."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autotopk import registry
from autotopk.oracle import inputs
from autotopk.problem import DTYPE_BYTES
from autotopk.strategies.grid_maxima import SPARSE, GridMaximaConfig
from tests.contract.cases import LAYOUTS, ORDERS, Case
from tests.contract.drawn import draw_values
from tests.contract.emulated import Kind, answer, barriers, problems_of_all
from tests.emulator.sequences import Sequences

pytestmark = pytest.mark.requires("g++")


@dataclass(frozen=True)
class GridKind(Kind):
    """Also what rows it takes."""

    config: GridMaximaConfig

    @property
    def vector(self) -> int:
        """Elements of a line."""
        return 16 // DTYPE_BYTES[self.dtype]

    @property
    def least_cols(self) -> int:
        """That every thread has a line of."""
        return (self.config.blocks * self.config.threads + 2) * self.vector

    @property
    def most_k(self) -> int:
        """That its warps and its list suffice for."""
        return min(self.config.capacity // 2 - self.vector, self.config.messages // SPARSE)


KINDS = [
    GridKind("float32", GridMaximaConfig(16, 32, 2, 128)),
    GridKind("float32", GridMaximaConfig(9, 128, 1, 128)),
    GridKind("float32", GridMaximaConfig(4, 1024, 2, 256)),
    GridKind("bfloat16", GridMaximaConfig(20, 64, 4, 128)),
    GridKind("float16", GridMaximaConfig(24, 32, 2, 256)),
]


def cases(kind: GridKind) -> Iterator[Case]:
    layouts, orders = itertools.cycle(LAYOUTS), itertools.cycle(ORDERS)
    for name in inputs.names_for(getattr(torch, kind.dtype)):
        for more in (0, 37, 15_001):
            for k in sorted({1, 2, kind.most_k}):
                largest, order = next(orders)
                yield Case(2, kind.least_cols + more, k, kind.dtype, name, largest, order, next(layouts))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_answers_right(kind: GridKind, sequences: Sequences) -> None:
    strategy = registry.get("grid_maxima")
    for case, problems in problems_of_all(sequences, strategy, kind.config, cases(kind)):
        assert not problems, case


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_answers_right_whatever_is_asked(sequences: Sequences, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    case = Case(
        rows=data.draw(st.integers(1, 3)),
        cols=kind.least_cols + data.draw(st.integers(0, 3000)),
        k=data.draw(st.integers(1, kind.most_k)),
        dtype=kind.dtype,
        largest=data.draw(st.booleans()),
        layout=data.draw(st.sampled_from(LAYOUTS)),
    )
    x = draw_values(data, case.input("cpu"))
    found = answer(sequences, registry.get("grid_maxima"), kind.config, case, x, seed=data.draw(st.integers(0, 1000)))
    assert not case.problems_with(x, found), case


def test_a_list_is_made_shorter_again_where_a_row_is_in_order(sequences: Sequences) -> None:
    """Of 16 bits many are equal: the warp with the best has fewer of them than are wanted, and others have the next."""
    case = Case(1, 1 << 21, 50, "float16", "ascending")
    x = case.input("cpu")
    found = answer(sequences, registry.get("grid_maxima"), GridMaximaConfig(37, 512, 4, 1024), case, x)
    assert not case.problems_with(x, found)


LONG_KINDS = [
    GridKind("float32", GridMaximaConfig(128, 512, 4, 512)),
    GridKind("bfloat16", GridMaximaConfig(128, 512, 4, 1024)),
    GridKind("float16", GridMaximaConfig(64, 512, 4, 1024)),
]
"""Of warps that may have more than a list has room for."""


@given(
    kind=st.sampled_from(LONG_KINDS),
    k=st.integers(1, 220),
    step=st.integers(50, 9000),
    above=st.sampled_from([1 << 14, 1 << 16, 1 << 18, 1 << 20]),
    shift=st.integers(0, 5000),
    descending=st.booleans(),
)
@example(kind=LONG_KINDS[0], k=150, step=50, above=1 << 16, shift=551, descending=False)
@settings(max_examples=30, deadline=None)
def test_stairs_are_climbed(
    kind: GridKind, k: int, step: int, above: int, shift: int, descending: bool, sequences: Sequences
) -> None:
    """Ties that are many and lie together: what is read of warps has no room now and then, and is read again."""
    case = Case(1, 1 << 20, min(k, kind.most_k), kind.dtype)
    stairs = (torch.arange(shift, shift + case.cols) - (case.cols - above)).clamp(min=0) // step
    stairs = (stairs - stairs.max() + 200).clamp(min=0)  # 16 bits tell these apart
    x = (stairs.flip(0) if descending else stairs)[None].to(getattr(torch, kind.dtype))
    found = answer(sequences, registry.get("grid_maxima"), kind.config, case, x, seed=k)
    assert not case.problems_with(x, found)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_a_thread_may_have_many_of_the_best_in_lines_far_apart(
    kind: GridKind, largest: bool, sequences: Sequences
) -> None:
    """It tells of one of them, and that others are no worse."""
    apart = kind.config.blocks * kind.config.threads * kind.vector
    for seed, many in enumerate((2, 5, 9)):
        case = Case(2, 10 * apart + 5, kind.most_k, kind.dtype, largest=largest)
        x = case.input("cpu")
        x[:, 77 + apart * torch.arange(many)] += 50 if largest else -50
        found = answer(sequences, registry.get("grid_maxima"), kind.config, case, x, seed=seed)
        assert not case.problems_with(x, found), case


THREE = [(0, 1, 1), (1, 0, 0), (5, 5, 5), (32, 0, 1), (32, 33, 0), (0, 32, 33), (0, 1, 32)]
"""Lines of the best element, the second and the third: of one warp, or of two that may share a message."""


@pytest.mark.parametrize("kind", [one for one in KINDS if one.most_k >= 3], ids=str)
@pytest.mark.parametrize("lines", THREE, ids=str)
def test_what_a_message_has_no_room_for_is_found(kind: GridKind, lines: tuple[int, ...], sequences: Sequences) -> None:
    case = Case(1, kind.least_cols + 3000, 3, kind.dtype)
    x = case.input("cpu")
    for number, line in enumerate(lines):
        x[:, line * kind.vector + number] = 60 - number
    found = answer(sequences, registry.get("grid_maxima"), kind.config, case, x, seed=sum(lines))
    assert not case.problems_with(x, found), case


@pytest.mark.parametrize(
    ("kind", "k", "in_order", "else_at_most"),
    [
        (LONG_KINDS[0], 100, 20, 40),
        (LONG_KINDS[0], 220, 40, 50),
        (LONG_KINDS[1], 100, 48, 40),
        (GridKind("float16", GridMaximaConfig(16, 512, 4, 1024)), 20, 16, 24),
    ],
    ids=str,
)
def test_few_warps_are_read_again(
    kind: GridKind, k: int, in_order: int, else_at_most: int, sequences: Sequences
) -> None:
    """Where many have more above the floor than they told: the best are all of a few, or all are alike."""
    strategy = registry.get("grid_maxima")

    def its(name: str) -> int:
        x = Case(3, 1 << 20, k, kind.dtype, name).input("cpu")[2:]
        return barriers(sequences, strategy, kind.config, x, k)

    once = its("random")
    assert max(its("ascending"), its("descending")) - once <= in_order
    for name in ("all_equal", "all_but_k_minus_1_equal", "scales", "nan", "minus_inf_padding"):
        assert its(name) - once <= else_at_most, name


def above(value: float, dtype: str, steps: int) -> torch.Tensor:
    """The element that is so many further from zero."""
    element = torch.tensor([value], dtype=getattr(torch, dtype))
    integers = torch.int16 if element.itemsize == 2 else torch.int32
    return (element.view(integers) + steps).view(element.dtype)


@pytest.mark.parametrize("kind", [one for one in KINDS if one.most_k >= 3], ids=str)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_last_bit_of_what_a_message_has_no_room_for_decides(
    kind: GridKind, steps: int, sequences: Sequences
) -> None:
    """The third of a warp is that little better than what another warp tells."""
    case = Case(1, kind.least_cols + 3000, 3, kind.dtype)
    x = case.input("cpu")
    better = above(5, kind.dtype, steps)
    for line, value in ((0, 6), (1, 5.5), (2, better), (70, 5)):
        x[:, line * kind.vector] = value
    found = answer(sequences, registry.get("grid_maxima"), kind.config, case, x, seed=steps)
    assert not case.problems_with(x, found), case


@pytest.mark.parametrize("kind", [one for one in KINDS if one.most_k >= 2], ids=str)
def test_the_last_bit_decides_far_above_all_others(kind: GridKind, sequences: Sequences) -> None:
    """Also where the worse of two is in the first column, and the better in the last that numbers have bits for."""
    value = 60_000 if kind.dtype == "float16" else 1e30
    case = Case(1, (1 << kind.least_cols.bit_length()) - 1, 2, kind.dtype)
    for first, last in ((5, 300 * kind.vector), (0, case.cols - 1)):
        x = case.input("cpu")
        x[:, first], x[:, last] = value, above(value, kind.dtype, 1)
        found = answer(sequences, registry.get("grid_maxima"), kind.config, case, x)
        assert not case.problems_with(x, found), case
        assert found[1].tolist() == [[last, first]]
