"""What an edit of the code costs the next tune: nothing, a compile, or measurements."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.compile,
    pytest.mark.tilelang,
    pytest.mark.requires("nvcc", "g++"),
    pytest.mark.one_process,
]

TUNE = """
import json, sys
from pathlib import Path
import autotopk
from autotopk import settings
from autotopk.device import H100
from autotopk.runtime.winners import is_current
from autotopk.tuning import candidates
from autotopk.tuning_db.store import Store
from autotopk.workloads import Workload
from tests.tuning.replay import ReplayWorker, run_session

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    candidates.NEAR = 1  # the first rung of every family: a few kernels show what many do
    assert Path(autotopk.__file__).parent.parent == folder
    kernels = settings.kernel_dir()
    before = set(kernels.iterdir()) if kernels.exists() else set()
    with Store.open(folder / "tuning.sqlite") as store:
        foreseen = [is_current(winner) for winner in store.winners()]
        worker = ReplayWorker(others=50.0)
        names = ("masked_argmax", "block_radix")
        result = run_session(store, worker, device=H100, workload=Workload(64, 128, 5, "bfloat16"), strategies=names)
        current = [is_current(winner) for winner in store.derive_winners()]
    told = {
        "candidates": result.candidates,
        "outcome": result.outcome,
        "turns": sum(worker.turns.values()),
        "compiled": len(set(kernels.iterdir()) - before),
        "current before": foreseen,
        "current": current,
    }
    print(json.dumps(told))
"""
"""Tunes a shape by a family in Triton and one in TileLang on an H100, with made-up times: compiling needs no GPU."""


class Checkout:
    """A copy of the package that can be edited, with a database and a kernel cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__", "*.so", "shipped")
        shutil.copytree(ROOT / "autotopk", folder / "autotopk", ignore=ignored)  # links become folders
        (folder / "tune.py").write_text(TUNE)

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace what occurs once."""
        path = self.folder / "autotopk" / file
        text = path.read_text()
        assert text.count(old) == 1, (file, old)
        path.write_text(text.replace(old, new))

    def append(self, file: str, text: str) -> None:
        with (self.folder / "autotopk" / file).open("a") as opened:
            opened.write(text)

    def tune(self) -> dict[str, Any]:
        """What a process that tunes with the code as it stands has to do."""
        variables = os.environ | {
            "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}",
            "AUTOTOPK_CACHE_DIR": str(self.folder / "cache"),
            "AUTOTOPK_PACKS": "0",  # nothing is compiled of what is shipped
        }
        command = [sys.executable, "tune.py", str(self.folder)]
        run = subprocess.run(command, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return told


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Tuned once, so that there is something to lose."""
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    first = checkout.tune()
    assert first["outcome"] == "tuned"
    assert first["compiled"] == first["candidates"] - 1 >= 2, "all but torch.topk"
    assert first["current"] == [True]
    assert checkout.tune()["outcome"] in ("confirmed", "tuned")  # all are equally fast: either of two may win
    assert checkout.tune()["outcome"] == "known"
    return checkout


@pytest.fixture
def checkout(tuned: Checkout, tmp_path: Path) -> Checkout:
    """The tuned one as it was, for a test to edit."""
    shutil.copytree(tuned.folder, tmp_path / "copy")
    copy = Checkout.__new__(Checkout)
    copy.folder = tmp_path / "copy"
    return copy


def test_host_code_makes_nothing_stale_and_compiles_nothing(checkout: Checkout) -> None:
    """A reason, a heuristic, an unused constant in every family, and the words that they share."""
    checkout.edit("strategies/_short_rows/__init__.py", "are more than 32 bits count", "are too many to count")
    checkout.edit("strategies/block_radix/__init__.py", "problem.cols <= 8 * count", "problem.cols <= 7 * count")
    for family in ("lane_merge", "masked_argmax", "block_radix", "cluster_radix", "_short_rows"):
        checkout.append(f"strategies/{family}/__init__.py", "\n\nUNUSED = 1\n")
    for file in ("problem.py", "strategy.py", "kernel.py", "compilers/triton.py", "compilers/tilelang.py"):
        checkout.append(file, "\n\nUNUSED = 1\n")
    told = checkout.tune()
    assert (told["current before"], told["current"]) == ([True], [True])
    assert (told["outcome"], told["compiled"], told["turns"]) == ("known", 0, 0)


def test_docstring_of_device_code_costs_one_compile_a_kernel(checkout: Checkout) -> None:
    checkout.edit("strategies/_short_rows/order.py", '"""Signed integers', '"""Edited.\n\nSigned integers')
    checkout.edit("strategies/_collectives/scan.py", '"""The counting scan:', '"""Edited.\n\nThe counting scan:')
    told = checkout.tune()
    assert told["current before"] == [None], "only compiling tells"
    assert told["current"] == [True]
    assert (told["outcome"], told["compiled"], told["turns"]) == ("known", told["candidates"] - 1, 0)
    assert checkout.tune()["compiled"] == 0


def test_other_device_code_is_measured_again(checkout: Checkout) -> None:
    checkout.edit("strategies/_short_rows/masking.py", "absent = 0x7FFFFFFF", "absent = 0x7FFFFFFE")
    told = checkout.tune()
    assert told["outcome"] == "tuned"
    assert told["turns"] > 0
    assert told["current"] == [True]
