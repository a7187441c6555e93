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
    assert chosen == [*tagged("ci"), *grid([1, 64], [4096, 8192], [8, 64], ["float32", "int64"])]


def test_each_workload_once() -> None:
    assert arguments.workloads(["seeds", "executorch,seeds"], [], [], [], []) == tagged("seeds")
