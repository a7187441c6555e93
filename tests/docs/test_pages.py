"""Every snippet and every command of the README and of all pages, in their order.

Snippets of a page share their names; a comment of sybil's in the page says what is skipped, and why: it is compiled.
Modules, which begin with a comment of their file's name, are tested where TESTED says.
"""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from unittest import SkipTest

import pytest
import yaml
from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

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
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of somebody who has tuned: `cache`, and `reader` with a server, bundles, a database and misses."""
    home = tmp_path_factory.mktemp("prepared")
    cache, folder = home / "cache", home / "reader"
    folder.mkdir()
    (folder / "serve.py").write_text(SERVE)
    for command in (["tune", *SMALL, "--budget", "30", "--device", "cpu"], ["export", str(folder / "winners.bundle")]):
        told = process(*command, cache=cache)  # a small run, which stands for the pages' long ones
        assert told.returncode == 0, told.stderr
    shutil.copy(folder / "winners.bundle", folder / "old.bundle")
    shutil.copy(ROOT / "docs/figures/h200-seeds.json", folder / "bench.json")
    shutil.copy(next(cache.glob("*tuning*.sqlite")), folder / "sweep.sqlite")
    run_python("serve.py", cwd=folder, path=(ROOT,), AUTOTOPK_MISSES="misses.jsonl", AUTOTOPK_CACHE_DIR=str(cache))
    return home


@pytest.fixture
def reader(prepared: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a page's commands run."""
    shutil.copytree(prepared / "cache", cache_dir)
    monkeypatch.chdir(shutil.copytree(prepared / "reader", cache_dir.parent / "reader"))


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


@pytest.mark.timeout(1200)  # one page fits predictions to all that was recorded, three minutes on two cores
@pytest.mark.filterwarnings("ignore::autotopk.AutotopkWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_is_as_it_says(page: Path, request: pytest.FixtureRequest) -> None:
    if "```console" in page.read_text():
        request.getfixturevalue("reader")
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
    tested = {"aot.md: cpp", "first_strategy.md: cpp"}  # tests/export/native, test_first_kernels
    assert others == {*tested, "fleet.md: bash", "fleet.md: yaml"}  # below


def test_launchers_of_fleets_are_well_formed() -> None:
    page = (ROOT / "docs" / "fleet.md").read_text()
    script, job = (re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL) for language in ("bash", "yaml"))
    assert subprocess.run(["bash", "-n"], input=script[0], text=True, check=False).returncode == 0
    pod = yaml.safe_load(job[0])["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "OnFailure"
    (container,) = pod["containers"]
    assert {one["name"] for one in container["env"]} == {"AUTOTOPK_TUNING_DB"}


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


def test_site_is_made_without_a_warning(tmp_path: Path) -> None:
    """A link to a page or a heading that is not there is one."""
    pytest.importorskip("mkdocs", reason="needs mkdocs-material: the extra `docs`")
    made = (
        "build",
        "--quiet",
        "--strict",
        "--config-file",
        ROOT / "docs/site/mkdocs.yml",
        "--site-dir",
        tmp_path / "site",
    )
    run_python("-m", "mkdocs", *made, cwd=ROOT, NO_MKDOCS_2_WARNING="1")
    changes = (tmp_path / "site" / "changes" / "index.html").read_text()
    assert "Unreleased" in changes
    assert 'href="../routing/"' in changes


def test_citation_has_this_version() -> None:
    import autotopk

    citation = yaml.safe_load((ROOT / "docs/CITATION.cff").read_text())
    assert citation["version"] == autotopk.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
