"""What is compiled from C++ is compiled once for all tests of a run."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def compiled(isolated: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of these tests, one for all processes of a run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "export"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(folder))
    return folder
