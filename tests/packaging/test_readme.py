"""What the README and the pages show is what was measured and what the program has."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from statistics import geometric_mean

import pytest

import autotopk
from autotopk.cli.doctor import TESTED
from autotopk.cli.report.written import write_figure
from autotopk.compilers import nvcc, tilelang
from scripts import figures
from tests.packaging.processes import ROOT

README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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
    read = {variable for source in sources for variable in re.findall(r'"(AUTOTOPK_[A-Z_]+)"', source)}
    assert "AUTOTOPK_DB" in read
    page = (ROOT / "docs/settings.md").read_text()
    assert not {variable for variable in read if f"| `{variable}" not in page}


def requirement(text: str) -> str:
    """Without its spaces and its marker."""
    return text.partition(";")[0].replace(" ", "")


PAGES = [README, *(page.read_text() for page in ROOT.glob("docs/*.md")), f"`{nvcc.INSTALL}`", f"`{tilelang.INSTALL}`"]
INSTALLATIONS = sorted(
    {command for page in PAGES for command in re.findall(r"pip install ([^`\n]*?) *(?:#|`|$)", page)}
)


@pytest.mark.parametrize("command", INSTALLATIONS)
def test_what_is_to_be_installed_is_declared(command: str) -> None:
    """From a clone with extras that it has, or what an extra asks for; autotopk itself is on no index."""
    extras = PROJECT["optional-dependencies"]
    declared = {requirement(one) for extra in extras.values() for one in extra}
    for word in shlex.split(command):
        clone = re.fullmatch(r"\.(?:\[([a-z,]+)\])?", word)
        if clone:
            assert {*filter(None, (clone[1] or "").split(","))} <= {*extras}
        else:
            assert requirement(word) in declared


def test_installations_are_found() -> None:
    assert {".", '".[nvcc]"', '"tilelang>=0.1.15"'} <= {*INSTALLATIONS}


def test_versions_that_were_tested() -> None:
    """The oldest are the bounds, the newest the constraints, and the README says both."""
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["tilelang"]]
    constraints = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:])
    for name, (oldest, newest) in TESTED.items():
        assert f"{name}>={oldest}" in map(requirement, asked)
        assert f"{constraints[name]}.".startswith(f"{newest}.")
    said = " ".join((ROOT / "docs/install.md").read_text().split())
    assert "Tested with torch 2.10 to 2.13, Triton 3.6 and 3.7 and TileLang 0.1.15." in said
    assert list(TESTED.values()) == [("2.10", "2.13"), ("3.6", "3.7"), ("0.1.15", "0.1.15")]


def test_is_short() -> None:
    assert len(README.splitlines()) < 120


def test_picture_and_its_figures_are_those_of_the_file(tmp_path: Path) -> None:
    file = ROOT / "docs/figures/h200-seeds.json"
    write_figure("times", file, tmp_path / "times.svg", force=False)
    assert (ROOT / "docs/images/h200-seeds.svg").read_text() == (tmp_path / "times.svg").read_text()
    speedups = [row["torch_gpu_us"] / row["gpu_us"] for row in json.loads(file.read_text())["rows"] if row["sorted"]]
    assert f"{geometric_mean(speedups):.2f} times as fast as torch.topk" in README
    assert f"{min(speedups):.2f} at worst" in README
