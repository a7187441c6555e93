"""What `make` does before it installs anything: an old Python is refused, and the download announced."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.processes import ROOT, Process

OLD = """#!/bin/sh
case "$1" in
-c) exec {python} -c "import sys; sys.version_info = (3, 9, 18); $2" ;;
*) echo "made" > made ;;
esac
"""
LOGGED = """#!/bin/sh
echo "$@" >> pip.log
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `make venv` needs, and a `python3` of version 3.9."""
    for name in (
        "Makefile",
        "pyproject.toml",
        "constraints.txt",
        "autotopk/runtime/_launcher.c",
        "autotopk/_predict.c",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    program(tmp_path / "bin" / "python3", OLD.format(python=sys.executable))
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make(folder: Path, *arguments: str) -> Process:
    path = f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    command = ["make", "venv", *arguments]
    return subprocess.run(command, cwd=folder, env={"PATH": path}, capture_output=True, text=True, check=False)


@pytest.mark.requires("make")
def test_an_old_python_is_refused_before_the_download(folder: Path) -> None:
    process = make(folder)
    assert process.returncode
    assert "python3 is Python 3.9, and autotopk needs 3.11 or later" in process.stderr
    assert not (folder / "made").exists()
    assert not (folder / ".venv").exists()


@pytest.mark.requires("make")
def test_the_download_is_announced_and_shown(folder: Path) -> None:
    program(folder / ".venv" / "bin" / "python", LOGGED)
    process = make(folder, f"VENV_PYTHON={sys.executable}")
    assert process.returncode == 0, process.stderr
    assert process.stdout.index("2.7 GB to download") < process.stdout.index("-m pip")
    commands = (folder / "pip.log").read_text().splitlines()
    assert [command.split()[:3] for command in commands] == [["-m", "pip", "install"]] * 2
    assert "quiet" not in "".join(commands)
