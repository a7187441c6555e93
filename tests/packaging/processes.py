"""Processes of their own: what an installation does is only seen from outside of it."""

import os
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
