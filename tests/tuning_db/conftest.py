"""Files and folders of these tests."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from autotopk.tuning_db import artifact
from tests.tuning_db.examples import MANY


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users may enter, as those of pytest may not."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        Path(folder).chmod(0o755)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a winners file, which is not there yet."""
    return tmp_path / "winners.sqlite"


@pytest.fixture
def published(path: Path) -> Path:
    """A file with MANY winners."""
    artifact.publish(MANY, path)
    return path
