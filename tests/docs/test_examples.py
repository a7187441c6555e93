"""Every example runs on a CPU as it is, and says what it has shown; each compares its answers with torch's itself."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.packaging.processes import ROOT, run_python

FOLDER = ROOT / "docs/examples"
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.name != "beside.py")

SAID = {
    "autoencoder": "BatchTopK: loss",
    "generate": "the same with autotopk.patch()",
    "indexer": "12 slots of up to 96 positions",
    "retrieval": "the best 10 of 2000 items for 4 queries",
    "router": "choice, weights and gradients as torch's operators give",
    "sampling": "32 requests of their own k",
    "serving": "2 of 2 winners served as measured",
}


def told(example: Path) -> str:
    """What it prints, in a process of its own as a user runs it, with no GPU to be seen."""
    return run_python(example, cwd=FOLDER, path=(ROOT,), CUDA_VISIBLE_DEVICES="").stdout


@pytest.mark.parametrize("name", SAID)
def test_runs_on_a_cpu(name: str) -> None:
    if name == "generate":
        pytest.importorskip("transformers", reason="needs transformers: the extra `examples`")
    assert SAID[name] in told(FOLDER / f"{name}.py")


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_foreign_library_says_what_it_needs() -> None:
    process = subprocess.run(
        [sys.executable, FOLDER / "foreign.py"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert "needs a CUDA GPU, flashinfer-python" in process.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("name", SAID)
def test_runs_on_a_gpu(name: str) -> None:
    if name == "generate":
        pytest.importorskip("transformers", reason="needs transformers: the extra `examples`")
    found = (Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one)
    printed = run_python(FOLDER / f"{name}.py", cwd=FOLDER, path=(ROOT, *found)).stdout
    assert name == "serving" or re.search(r": [\d.]+ us, with torch.topk [\d.]+ us", printed)


@pytest.mark.gpu
def test_snippets_of_the_readme_that_need_a_gpu() -> None:
    blocks = re.findall(
        r'<!--- skip: next "needs a GPU" -->\n+```python\n(.*?)```', (ROOT / "README.md").read_text(), re.S
    )
    assert blocks
    for block in blocks:
        subprocess.run([sys.executable, "-c", block], check=True, cwd=ROOT)


def test_every_example_is_listed_and_run() -> None:
    assert {path.stem for path in EXAMPLES} == {*SAID, "foreign"}
    page = (FOLDER / "README.md").read_text()
    assert all(f"]({path.name})" in page for path in EXAMPLES)
