"""The command line as a user sees it: exit codes, standard output and standard error."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autotopk.cli.app import app

ROOT = Path(__file__).parents[2]
SMALL = ("--rows", "4", "--cols", "256", "-k", "8")
"""A workload that is tuned in a second."""

Cli = Callable[..., Result]


@pytest.fixture
def cli() -> Cli:
    """Run a command in this process and check its exit code."""

    def run(*arguments: str | Path, code: int = 0) -> Result:
        result = CliRunner().invoke(app, [*map(str, arguments)])
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return run


def process(*arguments: str | Path, cache: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which has nothing shipped."""
    command = [sys.executable, "-m", "autotopk", *map(str, arguments)]
    environment = {**os.environ, "AUTOTOPK_CACHE_DIR": str(cache), "AUTOTOPK_SHIPPED": "0", **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache folder after `autotopk tune` of the small workload, and what that printed. Not to be changed."""
    cache = tmp_path_factory.mktemp("tuned")
    told = process("tune", *SMALL, "--budget", "30", "--device", "cpu", cache=cache)
    assert told.returncode == 0, told.stderr
    return cache, told.stdout + told.stderr


@pytest.fixture
def tuned_cache(tuned: tuple[Path, str], cache_dir: Path) -> Path:
    """This test's own cache folder, after that tune."""
    return Path(shutil.copytree(tuned[0], cache_dir))
