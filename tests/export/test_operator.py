"""What the C++ operator launches, asked of a driver that only prints it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import autotopk
from autotopk.device import H100
from autotopk.export import native, plans, serving
from autotopk.export.serving import Asked, Plan, Sizes, Terms
from autotopk.kernel import scalars
from autotopk.strategy import Strategy
from tests.packaging.processes import ROOT

pytestmark = pytest.mark.requires("g++")

PRETENCES = {
    "aoti_torch_device_type_cuda": "aoti_torch_device_type_cpu",
    "aoti_torch_get_current_device_index": "fake_current_device",
    "aoti_torch_get_device_index": "fake_device_of",
}
"""Functions of torch that the operator calls, and what it calls in their place here."""

CALLS = """
import ctypes, sys, torch
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
library = ctypes.CDLL(sys.argv[2])
print("plans", *(library.autotopk_add_plans(one.encode()) for one in sys.argv[3:]), flush=True)
topk = torch.ops.autotopk.aot_topk
matrix, long, wide = torch.randn(64, 128), torch.randn(2, 32768), torch.randn(9, 200, 4)
for x, k, dim, largest in [
    (matrix, 5, -1, True),
    (matrix, 5, 1, True),
    (matrix.view(-1)[1:8065].view(63, 128), 5, 1, True),
    (matrix[:, :100], 5, 1, True),
    (long, 2048, 1, True),
    (wide, 3, 1, False),
    (matrix, 6, 1, True),
    (matrix[:0], 5, 1, True),
    (matrix, 0, 0, True),
]:
    values, indices = topk(x, k, dim, largest)
    expected = torch.topk(x, k, dim, largest)
    assert values.shape == indices.shape == expected.values.shape
    assert values.stride() == expected.values.stride()
    assert values.dtype == x.dtype and indices.dtype == torch.int64
    print("answered", torch.equal(indices, expected.indices), flush=True)
"""

ASKED = (
    Asked(Sizes(1, 64), Sizes.of(128), 5, "float32", True, True),
    Asked(Sizes.of(64), Sizes.of(100), 5, "float32", True, True, row_stride=128),
    Asked(Sizes.of(2), Sizes.of(32768), 2048, "float32", True, True),
    Asked(Sizes.of(36), Sizes.of(200), 3, "float32", False, True, inner=4),
)


def every(strategy: Strategy) -> bool:
    return True


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    monkeypatch.delenv("AUTOTOPK_PACKS")
    autotopk.reload()
    terms = Terms(H100, every)
    return [plan for asked in ASKED for plan in serving.plans(asked, terms)]


@pytest.fixture
def pretending(tmp_path: Path) -> tuple[Path, Path]:
    """The driver, and the operator that takes CPU tensors for CUDA's."""
    driver = tmp_path / "libcuda.so.1"
    subprocess.run(["g++", "-shared", "-fPIC", Path(__file__).with_name("fake_driver.cpp"), "-o", driver], check=True)
    options = tuple(f"-D{name}={other}" for name, other in PRETENCES.items())
    return driver, native.library(options)


def told(driver: Path, library: Path, files: Sequence[Path]) -> list[str]:
    """The lines of a process that makes `CALLS`."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver.parent), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CALLS, str(driver), str(library), *map(str, files)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_launches_are_those_of_the_run_walk(planned: list[Plan], pretending: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "model.plans"
    plans.write(file, planned, 90)
    lines = told(*pretending, [file])
    assert lines[0] == "plans 0"
    launches = [line.split()[1:] for line in lines if line.startswith("launch")]
    answers = [line for line in lines if line.startswith("answered")]
    assert len(launches) >= 6
    assert answers[-3:] == ["answered True"] * 3  # no plan, nothing to find: torch.topk answers
    shapes = ((64, 128), (64, 128), (63, 128), (64, 100), (2, 32768), (36, 200))
    for shape, words in zip(shapes, launches, strict=True):
        plan = next(one for one in planned if serves(one, shape, aligned=shape[0] != 63))
        problem = plan.asked.problem(*shape, plan.access)
        [launch] = plan.program.launches
        kernel = launch.source.load(90)
        known = scalars(problem)
        attributes = (kernel.cluster > 1) + kernel.cooperative + kernel.programmatic_launch
        expected = [*launch.blocks(problem), kernel.threads, kernel.shared_bytes, attributes]
        assert list(map(int, words[:6])) == expected
        named = zip(kernel.parameters, words[6:], strict=False)
        numbers = {one.name: int(word) for one, word in named if one.name in known and one.kind != "pointer"}
        assert {name: number & 0xFFFFFFFF for name, number in numbers.items()} == {
            name: known[name] & 0xFFFFFFFF for name in numbers
        }


def serves(plan: Plan, shape: tuple[int, int], *, aligned: bool) -> bool:
    rows, cols = plan.asked.rows, plan.asked.cols
    fits = rows.least <= shape[0] <= (rows.most or 0) and cols.least <= shape[1] <= (cols.most or 0)
    return fits and (aligned or not plan.access.aligned)


def test_bad_files_are_refused(planned: list[Plan], pretending: tuple[Path, Path], tmp_path: Path) -> None:
    good = plans.to_bytes(planned[:2], 90)
    line = good.index(b"\n")
    contents = {
        "good": good,
        "flipped": good[:-9] + bytes([good[-9] ^ 1]) + good[-8:],
        "cut": good[:-1],
        "later": good.replace(b"plans 1", b"plans 2", 1),
        "empty": b"",
        "no_end": good[: line + 40],
        "none": plans.to_bytes([], 0),
        "writable": good,
    }
    files = [tmp_path / name for name in contents]
    for file, content in zip(files, contents.values(), strict=True):
        file.write_bytes(content)
    files[-1].chmod(0o666)
    [first] = [line for line in told(*pretending, [*files, tmp_path / "missing"]) if line.startswith("plans")]
    assert first == "plans 0 1 1 1 1 1 0 1 1"


def test_numbers_out_of_range_are_refused(planned: list[Plan], pretending: tuple[Path, Path], tmp_path: Path) -> None:
    """Files with a right digest that say what cannot be."""
    files = []
    for name, sizes in {"good": Sizes(1, 5), "zero": Sizes(0, 5), "huge": Sizes(1, 1 << 50)}.items():
        plan = replace(planned[0], asked=replace(planned[0].asked, rows=sizes))
        files.append(tmp_path / name)
        plans.write(files[-1], [plan], 90)
    [first] = [line for line in told(*pretending, files) if line.startswith("plans")]
    assert first == "plans 0 1 1"
