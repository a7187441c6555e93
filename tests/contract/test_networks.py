"""Sorting networks sort: what sorts every sequence of zeros and ones sorts everything (Knuth 5.3.4, theorem Z)."""

from itertools import product

import pytest

pytest.importorskip("triton")

from autotopk.strategies._short_rows.networks import cleaning, sorting


def arranged(xs: tuple[int, ...], network: tuple[tuple[int, int], ...]) -> list[int]:
    ys = list(xs)
    for i, j in network:
        assert i < j
        ys[i], ys[j] = max(ys[i], ys[j]), min(ys[i], ys[j])
    return ys


@pytest.mark.parametrize("size", range(1, 15))
def test_sorting(size: int) -> None:
    for xs in product((0, 1), repeat=size):
        assert arranged(xs, sorting(size)) == sorted(xs, reverse=True)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_cleaning_sorts_what_rises_and_falls(size: int) -> None:
    for up in range(size + 1):
        for down in range(up, size + 1):
            xs = (0,) * up + (1,) * (down - up) + (0,) * (size - down)
            assert arranged(xs, cleaning(size)) == sorted(xs, reverse=True)
            flipped = tuple(1 - x for x in xs)
            assert arranged(flipped, cleaning(size)) == sorted(flipped, reverse=True)


def test_comparisons_are_as_few_as_batcher_needs() -> None:
    assert [len(sorting(size)) for size in (2, 4, 8, 16)] == [1, 5, 19, 63]
