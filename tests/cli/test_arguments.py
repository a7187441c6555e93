"""From what is typed to devices and workloads."""

from dataclasses import replace

import pytest

from autotopk.cli import arguments
from autotopk.cli.arguments import SelectionError
from autotopk.device import H100, cpu_device
from autotopk.workloads import grid, tagged

PCIE = replace(H100, name="NVIDIA H100 PCIe")


def test_part_of_a_name_must_fit_one_device() -> None:
    known = [H100, PCIE, H100]
    assert arguments.device_named("hbm3", known) == H100
    assert arguments.device_named(PCIE.fingerprint, known) == PCIE
    assert arguments.device_named("cpu", known) == cpu_device()
    with pytest.raises(SelectionError, match="more than one"):
        arguments.device_named("H100", known)
    with pytest.raises(SelectionError, match=r"'B200' is not cpu, cuda, .*; known: .*HBM3.*; .*PCIe"):
        arguments.device_named("B200", known)


def test_lists_make_a_grid_and_tags_come_first() -> None:
    lists = (["1,64"], ["4096", "8192"], ["8, 64"])
    chosen = arguments.workloads(["ci"], *lists, ["float32,int64"])
    of_tag = [replace(one, dtype=dtype) for one in tagged("ci") for dtype in ("float32", "int64")]
    assert chosen == list(dict.fromkeys([*of_tag, *grid([1, 64], [4096, 8192], [8, 64], ["float32", "int64"])]))


def test_a_tag_in_another_dtype() -> None:
    chosen = arguments.workloads(["ci"], [], [], [], ["float16"])
    assert {(one.rows, one.cols, one.k) for one in chosen} == {(one.rows, one.cols, one.k) for one in tagged("ci")}
    assert {one.dtype for one in chosen} == {"float16"}
    assert arguments.workloads(["ci"], [], [], [], []) == tagged("ci")


@pytest.mark.parametrize("word", ["0", "-1", "1e6", "10^23", "1.5", str(1 << 63), "9" * 5000, "\u0663"])
def test_numbers_are_bounded(word: str) -> None:
    with pytest.raises(
        SelectionError, match=r"^--rows '.{1,80}'(\.\.\.)? is not a whole number from 1 to 9223372036854775807$"
    ):
        arguments.numbers("--rows", ["4", word])


def test_largest_tensor() -> None:
    arguments.workloads([], [str((1 << 61) - 1)], ["1"], ["1"], [])
    with pytest.raises(SelectionError, match=r"^2305843009213693952x1 float32 is more than 9223372036854775807 bytes"):
        arguments.workloads([], [str(1 << 61)], ["1"], ["1"], [])


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1.0, 1e300])
def test_budgets_are_bounded(value: float) -> None:
    with pytest.raises(SelectionError, match=r"^--budget .* is not a number of seconds from 0 to 31622400"):
        arguments.seconds("--budget", value)
    assert arguments.seconds("--budget", 0.0) == 0.0


def test_each_workload_once() -> None:
    assert arguments.workloads(["seeds", "executorch,seeds"], [], [], [], []) == tagged("seeds")
