"""Processes of their own: what an installation does is only seen from outside of it."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

Process = subprocess.CompletedProcess[str]
Python = Callable[..., Process]
"""`run_python` in an empty folder."""


def run_python(*arguments: str | Path, cwd: Path, path: Sequence[Path] = (), **variables: str) -> Process:
    """Run this interpreter in a folder, with that import path and environment; fails with what it printed."""
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **variables}
    process = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, f"{command}\n{process.stdout}\n{process.stderr}"
    return process


def install_plugin(page: str, module: str, folder: Path) -> Path:
    """Install the module and the pyproject.toml that a page shows, by their first lines; returns where."""
    for name in (module, "pyproject.toml"):
        block = re.search(rf"^```\w+\n(# {re.escape(name)}\n.*?)^```", page, re.MULTILINE | re.DOTALL)
        assert block, f"the page has no block that starts with {name}"
        (folder / name).write_text(block[1])
    options = ("-q", "--no-build-isolation", "--no-deps", "--no-index")
    run_python("-m", "pip", "install", *options, "--target", folder / "site", folder, cwd=folder)
    return folder / "site"
