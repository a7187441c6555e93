"""One folder of compiled kernels for all tests of a run, whichever process runs them."""

import shutil
from pathlib import Path

import pytest

from tests.emulator.build import COMPILER
from tests.emulator.programs import Programs


@pytest.fixture(scope="session")
def kernel_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    if shutil.which(COMPILER) is None:
        pytest.skip(f"the emulator needs {COMPILER}")
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "emulated"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def programs(kernel_folder: Path) -> Programs:
    return Programs(kernel_folder)
