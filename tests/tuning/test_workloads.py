"""The named shapes."""

import pytest

from autotopk.workloads import SORTED_ALONE, TAGS, Workload, grid, tagged


def shapes(tag: str) -> set[tuple[int, int, int, str, str]]:
    return {(one.rows, one.cols, one.k, str(one.routing or ""), one.dtype) for one in tagged(tag)}


@pytest.mark.parametrize("tag", TAGS)
def test_every_tag_holds_distinct_shapes_in_its_orders(tag: str) -> None:
    workloads, orders = tagged(tag), 1 if tag in (*SORTED_ALONE, "routing", "selector", "grid") else 2
    assert len(workloads) == len(set(workloads)) == orders * len(shapes(tag)) > 0
    assert all(tag in workload.tags for workload in workloads)


def test_sizes_of_the_tables() -> None:
    assert len(shapes("executorch")) == 10
    assert len(shapes("flagtree")) == 11
    assert shapes("seeds") == shapes("executorch") | shapes("flagtree")
    assert len(shapes("sweep")) == 14
    assert shapes("serving") >= shapes("moe") | shapes("dsa") | shapes("sampling") | shapes("ann")
    assert (1, 262144, 2048, "", "bfloat16") in shapes("serving")
    assert (4096, 256, 8, "sigmoid+bias:4of8", "float32") in shapes("routing")
    assert {dtype for *_, dtype in shapes("ci")} == {"float32", "bfloat16", "int64"}
    assert max(workload.bytes for workload in tagged("ci")) <= 4_200_000


def test_an_unknown_tag_names_the_known() -> None:
    with pytest.raises(ValueError, match=r"tag 'cpu' is not one of ci, seeds, .*ann"):
        tagged("cpu")


def test_grid_leaves_out_what_does_not_fit() -> None:
    assert grid([1], [8, 64], [5, 16], ["float16"], [True]) == [
        Workload(1, 8, 5, "float16"),
        Workload(1, 64, 5, "float16"),
        Workload(1, 64, 16, "float16"),
    ]
    assert [one.sorted for one in grid([1], [8], [2])] == [True, False]
    with pytest.raises(ValueError, match="complex64"):
        grid([1], [8], [2], ["complex64"])
    with pytest.raises(ValueError, match="rows"):
        grid([0], [8], [2])
