"""Cases share compiled kernels: hundreds of them run what a few dozen compilations made."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache_dir(shared_cache: Path) -> Path:
    """One folder for all tests here."""
    return shared_cache
