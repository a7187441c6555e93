"""Programs chosen for ranges of sizes serve every size of the range."""

from collections.abc import Iterator
from itertools import product

import pytest

import autotopk
from autotopk import registry
from autotopk.device import H100
from autotopk.export import serving
from autotopk.export.serving import Access, Asked, Plan, Sizes, Terms
from autotopk.problem import Problem
from autotopk.strategy import Strategy


@pytest.fixture(autouse=True)
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernels that are shipped, so that rungs count."""
    monkeypatch.delenv("AUTOTOPK_PACKS")
    autotopk.reload()


def every(strategy: Strategy) -> bool:
    return True


def plans(asked: Asked) -> list[Plan]:
    return list(serving.plans(asked, Terms(H100, every, build=False)))


def test_pieces_are_cut_at_powers_of_two() -> None:
    assert Sizes(3, 20).pieces == [(3, 3), (4, 7), (8, 15), (16, 20)]
    assert Sizes(4, 4).pieces == [(4, 4)]
    assert Sizes(0, 1).pieces == [(1, 1)]
    assert Sizes(1 << 23, None).pieces == [(1 << 23, (1 << 24) - 1), (1 << 24, 1 << 24)]


@pytest.mark.parametrize(
    "asked",
    [
        Asked(Sizes(1, 70), Sizes.of(128), 5, "float32", True, True),
        Asked(Sizes.of(3), Sizes(1, 300), 4, "float16", False, True),
        Asked(Sizes(5, 9), Sizes(900, 1100), 64, "bfloat16", True, False),
        Asked(Sizes(1, 40), Sizes.of(9), 9, "int64", True, True),
        Asked(Sizes(4, 60), Sizes.of(100), 3, "float32", True, True, inner=4),
    ],
    ids=str,
)
def test_what_serves_the_ends_of_a_piece_serves_all_of_it(asked: Asked) -> None:
    found = plans(asked)
    for plan in found:
        for problem in within(plan):
            name, _, config = plan.label.partition(" ")
            strategy = registry.get(name)
            assert strategy.reasons_unable(problem, H100) == []
            assert strategy.program(strategy.parse_config(config), problem, H100) == plan.program, problem
    served = {(p.rows, p.cols) for plan in found for p in within(plan) if plan.access == asked.accesses[-1]}
    units = product(range(asked.rows.least, (asked.rows.most or 0) + 1), range(asked.k, (asked.cols.most or 0) + 1))
    wanted = {(rows, cols) for rows, cols in units if rows % asked.inner == 0 and cols >= asked.cols.least}
    assert served == wanted


def within(plan: Plan) -> Iterator[Problem]:
    """Every problem that a plan serves."""
    rows = range(plan.asked.rows.least, (plan.asked.rows.most or 0) + 1, plan.asked.inner)
    step = 1 if plan.asked.cols.fixed else plan.access.vector
    cols = range(plan.asked.cols.least, (plan.asked.cols.most or 0) + 1, step)
    return (plan.asked.problem(*sizes, plan.access) for sizes in product(rows, cols))


def test_known_sizes_are_read_as_wide_as_they_can_be() -> None:
    fixed = Asked(Sizes.of(8), Sizes.of(1000), 5, "float16", True, True)
    assert fixed.accesses == [Access(8, True), Access(1, False)]
    assert [plan.access for plan in plans(fixed)] == fixed.accesses
    assert Asked(Sizes.of(8), Sizes.of(1000), 5, "float16", True, True, row_stride=1002).accesses[0] == Access(2, True)
    assert Asked(Sizes.of(8), Sizes(5, None), 5, "float32", True, True).accesses == [
        Access(4, True),
        Access(1, True),
        Access(1, False),
    ]


def embeddable(strategy: Strategy) -> bool:
    return strategy.features.embeddable


def test_torch_is_not_replaced_where_it_was_expected_to_win() -> None:
    asked = Asked(Sizes.of(64), Sizes.of(4096), 64, "float32", True, True)
    assert serving.whole(asked, Access(4, True), Terms(H100, embeddable, build=False)) is None
    always = serving.whole(asked, Access(4, True), Terms(H100, embeddable, always=True, build=False))
    assert always is not None
    assert always.label.startswith("masked_argmax ")


def test_one_program_for_all_sizes_needs_bounds() -> None:
    unbounded = Asked(Sizes(1, None), Sizes.of(128), 5, "float32", True, True)
    assert serving.whole(unbounded, Access(), Terms(H100, every, always=True, build=False)) is None
    bounded = Asked(Sizes(0, 5000), Sizes.of(128), 5, "float32", True, True)
    found = serving.whole(bounded, Access(4, True), Terms(H100, every, build=False))
    assert found is not None
    assert found.asked.rows == Sizes(1, 5000)
