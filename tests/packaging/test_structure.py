"""The shape of the code: small modules, few parameters, device code that hashes see whole."""

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from autotopk import registry
from autotopk.compilers.device_code import check_imports
from autotopk.compilers.tilelang import TileLangSource
from autotopk.compilers.triton import TritonSource
from autotopk.device import H100
from autotopk.errors import BuildError
from autotopk.problem import Problem
from autotopk.routing import Routing
from tests.packaging.processes import ROOT

PACKAGES = ("autotopk", "strategies", "tuning_db", "scripts")
LONGEST, MEDIAN = 400, 150
MOST_PARAMETERS = 12
LONGEST_DEVICE_FUNCTION = 80

MODULES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
"""Python 3.11 does not follow the links of autotopk into the other packages."""


def is_device_code(file: Path) -> bool:
    """Kernels, and what they are made of, beside the `__init__.py` of a family."""
    folder = file.relative_to(ROOT)
    return file.name != "__init__.py" and any(
        folder.is_relative_to(Path("strategies") / name)
        for name in ("_short_rows", "_embedded", "_routing", "_radix/device", "_collectives")
    )


def functions(file: Path) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef))


def test_modules_are_small() -> None:
    sizes = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in MODULES}
    assert len(sizes) > 80
    assert {name: size for name, size in sizes.items() if size > LONGEST} == {}
    assert median(size for size in sizes.values() if size > 1) <= MEDIAN


def test_no_name_is_also_a_module() -> None:
    """Importing the module would put it in the place of what the package means by its name."""
    for file in (file for file in MODULES if file.name == "__init__.py"):
        modules = {path.stem for path in file.parent.glob("*.py")} | {
            path.parent.name for path in file.parent.glob("*/__init__.py")
        }
        defined = {
            node.name for node in ast.parse(file.read_text()).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        assert not modules & defined, file


def test_functions_take_few_parameters() -> None:
    """But for kernels, whose compile-time constants are parameters, and commands, whose options are."""
    counts = {
        f"{file.name}:{node.name}": len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
        for file in MODULES
        if not is_device_code(file)
        for node in functions(file)
        if not any(ast.unparse(one).startswith("app.command") for one in node.decorator_list)
    }
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}


def test_device_functions_are_short() -> None:
    sizes = {
        f"{file.name}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for file in MODULES
        if is_device_code(file)
        for node in functions(file)
    }
    assert len(sizes) > 50
    assert {name: size for name, size in sizes.items() if size > LONGEST_DEVICE_FUNCTION} == {}


PROBLEMS = (Problem.contiguous(64, 128, 5), Problem.contiguous(1, 131_072, 100), Problem.contiguous(9, 99, 9, "int64"))
"""Of every family at least one."""

SOURCES = {
    (source.function.partition(":")[0], source.code_dependencies)
    for strategy in registry.available()
    for problem in (
        Problem.contiguous(64, 128, 5),
        Problem.contiguous(1, 131_072, 100),
        Problem.contiguous(9, 99, 9, "int64"),
        Problem.contiguous(9, 64, 8, routing=Routing()),
        Problem.contiguous(9, 64, 8, routing=Routing(biased=True)),
    )
    if not strategy.reasons_unable(problem, H100)
    for config in strategy.shortlist(problem, H100)
    for source in strategy.program(config, problem, H100).sources
    if isinstance(source, TritonSource | TileLangSource)
}


@pytest.mark.parametrize(("module", "code_dependencies"), sorted(SOURCES), ids=lambda value: str(value))
def test_device_code_imports_device_code_alone(module: str, code_dependencies: tuple[str, ...]) -> None:
    check_imports(module, code_dependencies)


def test_imports_of_host_code_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its edits would leave old kernels in the cache."""
    package = tmp_path / "family_of_test"
    package.mkdir()
    (package / "__init__.py").write_text("BLOCK = 4\n")
    (package / "other.py").write_text("import json\n")
    (package / "kernel.py").write_text("from family_of_test import other\n")
    (package / "alone.py").write_text("import json\n")
    monkeypatch.syspath_prepend(tmp_path)
    check_imports("family_of_test.kernel")
    for line, named in (
        ("from family_of_test import BLOCK\n", "family_of_test"),
        ("from autotopk.routing import Routing\n", "autotopk.routing"),
        ("import autotopk.routing\n", "autotopk.routing"),
    ):
        (package / "other.py").write_text(line)
        check_imports("family_of_test.alone")
        with pytest.raises(BuildError, match=f"other.py imports {named}, which is not beside it"):
            check_imports("family_of_test.kernel")
    check_imports("family_of_test.kernel", ("autotopk.routing",))
