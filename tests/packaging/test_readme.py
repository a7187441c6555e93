"""What README.md shows is what was measured and what the program has."""

import json
import re
from pathlib import Path
from statistics import geometric_mean

import pytest

import autotopk
from scripts import figures
from tests.packaging.processes import ROOT, Python

README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("file", sorted(ROOT.glob("docs/figures/*.json")), ids=lambda file: file.stem)
def test_figures_are_those_of_the_file(file: Path) -> None:
    pages = [README, *(page.read_text() for page in file.parent.glob("*.md"))]
    assert any(figures.section(json.loads(file.read_text())) in page for page in pages)


def test_random_small_rows_are_as_the_page_says() -> None:
    rows = json.loads((ROOT / "docs/figures/small_rows/h100-random.json").read_text())["rows"]
    speedups = [row["torch_gpu_us"] / row["gpu_us"] for row in rows]
    assert len(rows) == 200
    assert min(speedups) > 1
    assert not any(row["problems"] for row in rows)
    said = f"{geometric_mean(speedups):.1f} times as fast in geometric mean, {min(speedups):.1f} at worst"
    assert said in " ".join((ROOT / "docs/small_rows.md").read_text().split())


def test_every_variable_is_documented() -> None:
    sources = (path.read_text() for path in Path(autotopk.__file__).parent.rglob("*.py"))
    read = {variable for source in sources for variable in re.findall(r'environ[.\[(].*"(AUTOTOPK_\w+)"', source)}
    assert "AUTOTOPK_DB" in read
    assert not {variable for variable in read if f"| `{variable}" not in README}


def test_every_command_exists(python: Python) -> None:
    commands = set(re.findall(r"^\$ (?:\w+=\S+ )?autotopk (\w+)", README, re.MULTILINE))
    assert "tune" in commands
    known = python("-m", "autotopk", "--help", path=(ROOT,)).stdout
    assert not {command for command in commands if f" {command} " not in known}
