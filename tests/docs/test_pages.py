"""Every snippet and every command of the README and of all pages, in their order.

Snippets of a page share their names; a comment of sybil's in the page says what is skipped, and why: it is compiled.
Modules, which begin with a comment of their file's name, are tested where TESTED says.
"""

import json
import re
import shutil
import tomllib
from pathlib import Path
from unittest import SkipTest

import pytest
import yaml
from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from typer.testing import CliRunner

from autotopk.cli.app import app
from tests.cli.conftest import SMALL, process
from tests.docs.console import lines, run_block
from tests.packaging.processes import ROOT, run_python

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PARSERS = (
    PythonCodeBlockParser(),
    SkipParser(),
    *(CodeBlockParser(language, evaluator) for language, evaluator in (("console", run_block), ("toml", None))),
)

TESTED = {
    "autotopk_max.py": "tests/packaging/test_plugin.py",
    "autotopk_flashinfer.py": "tests/packaging/test_foreign.py",
    "engines.py": "tests/runtime/test_engines.py",
    "triton_max.py": "tests/docs/test_first_kernels.py",
    "tilelang_max.py": "tests/docs/test_first_kernels.py",
    "__init__.py": "tests/docs/test_first_kernels.py",
}
MODULE = re.compile(r"# (\w+\.py)\n")

SERVE = """
import torch, autotopk

x = torch.randn(2, 20_000)
for topk in autotopk.topk, torch.topk:
    assert topk(x, 500).values.shape == (2, 500)
"""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder after a small `autotopk tune`, which stands for the pages' long ones."""
    cache = tmp_path_factory.mktemp("tuned")
    told = process("tune", *SMALL, "--budget", "30", "--device", "cpu", cache=cache)
    assert told.returncode == 0, told.stderr
    return cache


@pytest.fixture
def reader(tuned: Path, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of somebody who has tuned and reads on: with a server, a bundle, a database and misses."""
    shutil.copytree(tuned, cache_dir)
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "serve.py").write_text(SERVE)
    shutil.copy(next(cache_dir.glob("*tuning*.sqlite")), folder / "sweep.sqlite")
    for name in ("winners.bundle", "old.bundle"):
        assert CliRunner().invoke(app, ["export", name]).exit_code == 0
    run_python("serve.py", cwd=folder, path=(ROOT,), AUTOTOPK_MISSES="misses.jsonl")
    return folder


def document(page: Path) -> Document:
    """The page with its examples."""
    return Document.parse(str(page), *PARSERS)


def check(example: Example) -> None:
    """Evaluate it; where the page says that it is skipped, or is a module, it must still be Python, or TOML."""
    language, text = example.region.lexemes["arguments"].strip(), str(example.parsed)
    module = MODULE.match(text)
    if language == "toml":
        tomllib.loads(text)
    elif module:
        assert module[1] in TESTED, f"{module[1]} is tested nowhere"
        compile(text, module[1], "exec")
    else:
        try:
            example.evaluate()
        except SkipTest as reason:
            if language == "python":
                compile(text, example.path, "exec")
            if not str(reason):
                pytest.fail(f"{example.path}, line {example.line}: skipped without a reason")


@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_is_as_it_says(page: Path, reader: Path) -> None:
    for example in document(page):
        if "arguments" in example.region.lexemes:
            check(example)
        else:
            example.evaluate()


def test_every_block_is_looked_at() -> None:
    """Blocks in other languages are few; each is tested by name."""
    others = {
        f"{page.name}: {language}"
        for page in PAGES
        for language in re.findall(r"^ *```(\w+)$", page.read_text(), re.MULTILINE)
        if language not in ("python", "console", "toml")
    }
    assert others == {"aot.md: cpp", "first_strategy.md: cpp"}  # tests/export/native, test_first_kernels


def test_commands_are_told_apart_from_output() -> None:
    assert [*lines("$ one\nprinted\n$ two [--a]\n         [--b]\n$ three # why\n")] == [
        "one",
        "two [--a] [--b]",
        "three # why",
    ]


def test_links_lead_somewhere() -> None:
    """Between files; those between headings are `make docs`'."""
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_navigation_has_every_page() -> None:
    listed = json.dumps(yaml.safe_load((ROOT / "docs/site/mkdocs.yml").read_text())["nav"])
    pages = [page.relative_to(ROOT / "docs") for page in PAGES[1:]]
    assert [str(page) for page in pages if page.parent == Path() and f'"{page}"' not in listed] == []


def test_citation_has_this_version() -> None:
    import autotopk

    citation = yaml.safe_load((ROOT / "docs/CITATION.cff").read_text())
    assert citation["version"] == autotopk.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
