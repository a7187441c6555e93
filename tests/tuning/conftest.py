"""A planted strategy, and databases of a test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotopk import registry
from autotopk.tuning_db.store import Store
from tests.tuning.planted import strategy


@pytest.fixture
def planted() -> Iterator[str]:
    """The name of the planted strategy, registered in this process; its module, for `preload`, is `PLANTED`."""
    registry.register(strategy)
    yield strategy.name
    registry.unregister(strategy.name)


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.sqlite"


@pytest.fixture
def store(store_path: Path) -> Iterator[Store]:
    with Store.open(store_path) as store:
        yield store
