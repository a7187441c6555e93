"""Cases share compiled kernels: hundreds of them run what a few dozen compilations made."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.sequences import Sequences


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache_dir(shared_cache: Path) -> Path:
    """One folder for all tests here."""
    return shared_cache


@pytest.fixture(scope="module")
def sequences(emulated_kernels: Path) -> Sequences:
    """Kernels of a file's tests, in the emulator."""
    return Sequences(emulated_kernels)


@pytest.fixture(scope="session", autouse=True)
def language_patched_once_a_launch() -> Iterator[None]:
    """Triton's interpreter looks its whole language through in every call of a device function: a third of the time."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    patch, launch, done = interpreter._patch_lang, interpreter.GridExecutor.__call__, set[frozenset[int]]()

    @cache
    def languages(function: Any) -> frozenset[int]:
        known = interpreter.tl, interpreter.tl.core
        return frozenset(id(one) for one in function.__globals__.values() if any(one is two for two in known))

    def patch_once(function: Any) -> Any:
        if (found := languages(function)) in done:
            return interpreter._LangPatchScope()
        done.add(found)
        return patch(function)

    def launch_anew(*arguments: Any, **named: Any) -> Any:
        done.clear()
        return launch(*arguments, **named)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(interpreter, "_patch_lang", patch_once)
        monkeypatch.setattr(interpreter.GridExecutor, "__call__", launch_anew)
        yield
