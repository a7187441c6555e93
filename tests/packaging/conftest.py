"""What the tests of installations share."""

from functools import partial
from pathlib import Path

import pytest

from tests.packaging.processes import Python, run_python


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Run the interpreter in an empty folder."""
    empty = tmp_path / "empty"
    empty.mkdir()
    return partial(run_python, cwd=empty)
