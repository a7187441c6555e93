"""Compilations here start from nothing, also in Triton's own cache."""

import pytest


@pytest.fixture(autouse=True)
def _own_triton_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
