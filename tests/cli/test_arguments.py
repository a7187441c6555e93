"""From what is typed to devices and workloads."""

import pytest

from autotopk.cli import arguments
from autotopk.cli.arguments import SelectionError
from autotopk.device import H100, Device, cpu_device
from autotopk.workloads import grid, tagged

BLACKWELL = Device("cuda", "NVIDIA RTX PRO 6000 | Server", (12, 0), 188, 0, 96, 99 << 10)
KNOWN = [H100.fingerprint, H100.fingerprint.replace("80GB HBM3", "PCIe")]


@pytest.mark.parametrize("device", [H100, BLACKWELL, cpu_device(), Device("cpu", "a|b", processors=1)], ids=str)
def test_fingerprints_are_read_back(device: Device) -> None:
    assert arguments.parse_fingerprint(device.fingerprint) == device


@pytest.mark.parametrize("text", ["", "H100", "cpu|x|4", "cuda|x|sm_90|132 SMs|79"])
def test_other_texts_are_no_fingerprints(text: str) -> None:
    with pytest.raises(SelectionError, match="no device fingerprint"):
        arguments.parse_fingerprint(text)


def test_part_of_a_name_must_fit_one_device() -> None:
    assert arguments.fingerprint("hbm3", KNOWN) == H100.fingerprint
    assert arguments.fingerprint(KNOWN[1], KNOWN) == KNOWN[1]
    assert arguments.fingerprint("cpu", KNOWN) == cpu_device().fingerprint
    with pytest.raises(SelectionError, match="more than one"):
        arguments.fingerprint("H100", KNOWN)


def test_lists_make_a_grid_and_tags_come_first() -> None:
    lists = (["1,64"], ["4096", "8192"], ["8, 64"])
    chosen = arguments.workloads(["ci"], *lists, ["float32,int64"])
    assert chosen == [*tagged("ci"), *grid([1, 64], [4096, 8192], [8, 64], ["float32", "int64"])]


def test_each_workload_once() -> None:
    assert arguments.workloads(["seeds", "executorch,seeds"], [], [], [], []) == tagged("seeds")
