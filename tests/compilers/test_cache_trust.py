"""Who could have written a cached kernel: the user, root, or nobody's business; others' are not loaded."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotopk import kernel_cache, settings
from autotopk.errors import AutotopkWarning
from autotopk.tuning_db.store import Store
from tests.compilers.small_sources import CountingSource

STRANGER = 12_345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")


@pytest.fixture
def source(tmp_path: Path) -> CountingSource:
    return CountingSource(tmp_path / "log")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(*paths: Path) -> list[int]:
    return [path.stat().st_mode & 0o777 for path in paths]


@pytest.mark.usefixtures("no_umask")
def test_folders_are_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: CountingSource) -> None:
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(tmp_path / "above" / "cache"))
    source.load(90)
    path = source.cache_path(90)
    assert modes(tmp_path / "above", path.parent.parent, path.parent) == [0o700] * 3
    assert modes(path) == [0o644]


@pytest.mark.usefixtures("no_umask")
def test_tuning_makes_folders_for_the_user_alone(cache_dir: Path) -> None:
    Store.open(settings.database_path()).close()
    assert modes(cache_dir) == [0o700]


def refused(source: CountingSource) -> str:
    """The warning of a process that does not load a file that is there; it compiles once, and says so once."""
    before = source.compilations
    other = CountingSource(source.log, "other")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert source.cached(90) is None
        assert not source.is_cached(90)
        kernel = source.load(90)
        assert source.load(90) == source.cached(90) == kernel
        other.load(90)
    assert source.compilations == before + 2
    [warning] = caught
    assert warning.category is AutotopkWarning
    return str(warning.message)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_folder_that_others_can_write(source: CountingSource, mode: int) -> None:
    source.load(90)
    path = source.cache_path(90)
    path.parent.chmod(mode)
    before = path.read_bytes()
    told = refused(source)
    assert told.startswith(f"cached kernels are compiled again instead of loaded: others can write to {path.parent}: ")
    assert f"`chmod -R go-w {path.parent}`, or set AUTOTOPK_CACHE_DIR to a folder of your own" in told
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before
    assert kernel_cache.reasons_untrusted(path.parent)
    path.parent.chmod(0o755)
    assert kernel_cache.reasons_untrusted(path.parent) == []


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602])
def test_file_that_others_can_write_is_replaced(source: CountingSource, mode: int) -> None:
    source.load(90)
    path = source.cache_path(90)
    path.chmod(mode)
    assert f"others can write to {path}: `chmod -R go-w {path}`" in refused(source)
    assert modes(path) == [0o644]


@as_root
def test_folder_of_another_user(source: CountingSource) -> None:
    source.load(90)
    folder = source.cache_path(90).parent
    os.chown(folder, STRANGER, -1)
    assert f"{folder} belongs to user {STRANGER}, not 0: `chown -R 0 {folder}`" in refused(source)
    assert len(list(folder.iterdir())) == 1


@as_root
def test_file_of_another_user_is_replaced(source: CountingSource) -> None:
    source.load(90)
    path = source.cache_path(90)
    os.chown(path, STRANGER, -1)
    assert f"{path} belongs to user {STRANGER}, not 0" in refused(source)
    assert path.stat().st_uid == 0


@as_root
def test_links_count_as_what_they_lead_to(source: CountingSource, tmp_path: Path) -> None:
    source.load(90)
    path = source.cache_path(90)
    moved = path.parent.rename(tmp_path / "moved")
    path.parent.symlink_to(moved)
    os.lchown(path.parent, STRANGER, -1)
    kernel = source.load(90)
    assert source.compilations == 1
    (moved / path.name).rename(tmp_path / "kernel")
    path.symlink_to(tmp_path / "kernel")
    assert source.load(90) == kernel
    assert source.compilations == 1
    os.chown(tmp_path / "kernel", STRANGER, -1)
    assert f"belongs to user {STRANGER}" in refused(source)


def test_files_of_root_serve_everybody(source: CountingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    source.load(90)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    if owner == 0:
        source.load(90)
        assert source.compilations == 1
    else:
        assert f"belongs to user {owner}, not {STRANGER}" in refused(source)


def test_no_owners_no_questions(source: CountingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "geteuid")
    source.load(90)
    source.cache_path(90).parent.chmod(0o777)
    source.load(90)
    assert source.compilations == 1
    assert kernel_cache.reasons_untrusted(source.cache_path(90).parent) == []
