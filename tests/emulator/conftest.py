"""What the tests of the emulator run."""

import shutil
from pathlib import Path

import pytest

from tests.emulator.build import COMPILER
from tests.emulator.programs import Programs


@pytest.fixture(scope="session")
def kernel_folder(emulated_kernels: Path) -> Path:
    if shutil.which(COMPILER) is None:
        pytest.skip(f"the emulator needs {COMPILER}")
    return emulated_kernels


@pytest.fixture(scope="session")
def programs(kernel_folder: Path) -> Programs:
    return Programs(kernel_folder)
