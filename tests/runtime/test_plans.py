"""A layout's second call costs a look-up: no import, no file, no lock held between threads."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk.device import Device
from autotopk.oracle.reference import problems_with
from autotopk.problem import Problem
from autotopk.program import HostProgram
from autotopk.tuning_db import artifact
from tests.runtime.conftest import Planted, PlantedConfig
from tests.runtime.same import check, unwarned
from tests.runtime.winners import CHUNKED, environment, python, winner

pytestmark = unwarned

HEAVY = ("sqlalchemy", "optuna", "triton", "tilelang", "tvm", "typer", "rich", "platformdirs", "numpy.testing")


def test_import_is_cheap() -> None:
    """What torch itself imports does not count: only what autotopk adds."""
    code = f"""
import sys, torch
before = set(sys.modules)
import autotopk
print(sorted(name for name in set(sys.modules) - before if name.split(".")[0] in {HEAVY}))
print("triton" in sys.modules, "sqlite3" in sys.modules, "autotopk.cli.app" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[0] == "[]"
    assert run.stdout.split("\n")[1].split()[::2] == ["False", "False"]


def test_calls_load_no_compiler_and_no_tuner(cache_dir: Path) -> None:
    artifact.publish([winner(4, 2048, 9, CHUNKED)], cache_dir / "winners.sqlite")
    code = f"""
import sys, torch, autotopk
autotopk.topk(torch.randn(4, 2048), 9)
assert autotopk.explain(torch.randn(4, 2048), 9).choice.step == "exact"
print([name for name in {HEAVY} if name in sys.modules])
"""
    assert python(code, environment(cache_dir)) == "[]\n"


AUDIT = """
import sys, torch, autotopk, warnings
warnings.simplefilter("ignore")
x = torch.randn(4, 2048)
for _ in range(3):
    autotopk.topk(x, 9), autotopk.topk(x, 9, 0 if False else -1, False)
seen = []
def note(event, arguments):
    if event in ("open", "import", "exec", "compile", "sqlite3.connect", "os.listdir", "os.scandir", "subprocess.Popen",
                 "socket.connect", "ctypes.dlopen"):
        seen.append((event, arguments[:1]))
sys.addaudithook(note)
open("/dev/null").close()
assert len(seen) == 1, "the hook works"
seen.clear()
modules = set(sys.modules)
for _ in range(100):
    autotopk.topk(x, 9), autotopk.topk(x, 9, -1, False)
print(seen, set(sys.modules) - modules)
"""


@pytest.mark.parametrize("tuned", [True, False])
def test_second_call_touches_nothing(cache_dir: Path, tuned: bool) -> None:
    if tuned:
        artifact.publish([winner(4, 2048, 9, CHUNKED)], cache_dir / "winners.sqlite")
    assert python(AUDIT, environment(cache_dir)) == "[] set()\n"


def test_running_leaves_the_cache_folder_alone(cache_dir: Path) -> None:
    """Nothing on the run path writes to a database."""
    autotopk.topk(torch.randn(4, 2048), 9)
    assert not cache_dir.exists()


def test_plans_are_told_apart(planted: Planted) -> None:
    """By everything that changes the answer or where it is read."""
    memory = torch.randn(1000, dtype=torch.float64)
    for rows, cols in ((4, 9), (9, 4), (1, 36), (36, 1)):
        x = memory[: rows * cols].view(rows, cols)
        for view in (x, x.t(), memory[1 : 1 + rows * cols].view(rows, cols), x.int(), x.float(), x.unsqueeze(1)):
            for dim in range(-view.dim(), view.dim()):
                for largest in (True, False):
                    for order in (True, False):
                        check(view, min(2, view.shape[dim]), dim, largest, order)


def test_alignment_is_part_of_a_layout(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel built for wide loads must not meet memory that is not aligned for them."""
    built, program = [], planted.program

    def noted(config: PlantedConfig, problem: Problem, device: Device) -> HostProgram:
        built.append(problem.layout.vector)
        return program(config, problem, device)

    monkeypatch.setattr(planted, "program", noted)
    memory = torch.randn(100)
    for offset in (0, 1, 2, 4, 5, 0):
        check(memory[offset : offset + 64].view(4, 16), 3)
    assert built == [4, 1, 2]


def test_reload_forgets(cache_dir: Path) -> None:
    x = torch.randn(4, 2048)
    assert autotopk.explain(x, 9).choice.step == "torch"
    artifact.publish([winner(4, 2048, 9, CHUNKED)], cache_dir / "winners.sqlite")
    assert autotopk.explain(x, 9).choice.step == "torch"
    autotopk.reload()
    assert autotopk.explain(x, 9).choice.step == "exact"
    check(x, 9)


def test_plans_do_not_pile_up(monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    from autotopk.runtime import plan_cache
    from autotopk.runtime.state import default

    monkeypatch.setattr(plan_cache, "MAX_PLANS", 10)
    for cols in range(3, 60):
        check(torch.randn(2, cols), 2)
        assert len(default.plans("topk")) <= 10


@pytest.mark.parametrize("backend", ["torch", "planted"], indirect=True)
def test_threads(backend: str) -> None:
    """First calls of the same and of different layouts at the same moment."""
    start = threading.Barrier(16)

    def work(number: int) -> list[str]:
        start.wait()
        found = []
        for cols in range(20, 60):
            x = torch.randn(3, cols + number % 2)
            values, indices = autotopk.topk(x, 5)
            found += problems_with(x, values, indices, 5)
            if cols == 40 and number == 0:
                autotopk.reload()
        return found

    with ThreadPoolExecutor(16) as pool:
        assert [problem for problems in pool.map(work, range(16)) for problem in problems] == []
