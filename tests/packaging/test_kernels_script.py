"""`make kernels`: what is compiled again, what is kept, and what is told of failures."""

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from autotopk import packs, registry
from autotopk.kernel import KernelSource
from autotopk.packs import Packs, file
from autotopk.strategies.torch_fallback import TorchFallback
from scripts import kernels
from tests.compilers.small_sources import KERNEL, TravellingSource
from tests.compilers.test_identity import CUBIN

Told = tuple[list[str], str]


class Laddered(TorchFallback):
    """A family with rungs."""

    name = "laddered"

    def __init__(self, *sources: TravellingSource) -> None:
        self.sources = sources

    def rungs(self, arch: int) -> Iterator[KernelSource]:
        yield from self.sources


@pytest.fixture
def source(tmp_path: Path) -> TravellingSource:
    return TravellingSource(tmp_path / "log", kernel=replace(KERNEL, cubin=CUBIN, registers=40))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "packs").mkdir()
    return tmp_path / "packs"


def built(folder: Path, monkeypatch: pytest.MonkeyPatch, *sources: TravellingSource) -> Told:
    """What was told of failures, and in the table."""
    monkeypatch.setattr(registry, "built_in", lambda: [Laddered(*sources)])
    text = io.StringIO()
    failed = kernels.make([90], folder, 2, Console(file=text, width=200))
    return failed, text.getvalue()


def packed(folder: Path) -> bytes:
    return packs.pack_path(folder, 90).read_bytes()


def test_what_has_not_changed_is_not_compiled_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, source: TravellingSource
) -> None:
    other = replace(source, code="b")
    failed, table = built(folder, monkeypatch, source, other, source)
    assert failed == []
    assert source.compilations == 2
    assert "laddered" in table
    before, sources = packed(folder), (folder / packs.SOURCES).read_bytes()
    built(folder, monkeypatch, source, other)
    assert source.compilations == 2
    assert (packed(folder), (folder / packs.SOURCES).read_bytes()) == (before, sources)
    found = Packs(folder)
    found.unchecked = True
    stored = found.find(other, 90)
    assert stored is not None
    assert stored.code == other.compile(90).code
    assert found.find(other, 100) is None


def test_one_source_for_many_architectures(
    folder: Path, monkeypatch: pytest.MonkeyPatch, source: TravellingSource
) -> None:
    monkeypatch.setattr(registry, "built_in", lambda: [Laddered(source)])
    assert kernels.make([80, 90], folder, 2, Console(file=io.StringIO())) == []
    assert source.compilations == 2
    symbols = {stored.code for arch in (80, 90) if (stored := Packs(folder).packed(source, arch)) is not None}
    assert symbols == {source.compile(80).code, source.compile(90).code}


def test_a_comment_changes_no_pack(folder: Path, monkeypatch: pytest.MonkeyPatch, source: TravellingSource) -> None:
    built(folder, monkeypatch, source)
    before, sources = packed(folder), json.loads((folder / packs.SOURCES).read_text())
    built(folder, monkeypatch, replace(source, device="commented"))
    assert source.compilations == 2
    assert packed(folder) == before
    after = json.loads((folder / packs.SOURCES).read_text())
    assert sources["90"]["device_code"] == {"small device files": "1"}
    assert after["90"] == sources["90"] | {"device_code": {"small device files": "commented"}}


def test_another_compiler_compiles_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, source: TravellingSource
) -> None:
    built(folder, monkeypatch, source)
    monkeypatch.setattr(kernels, "compilers", lambda: {"nvcc": "other"})
    built(folder, monkeypatch, source)
    assert source.compilations == 2


def test_what_is_no_rung_any_more_goes(folder: Path, monkeypatch: pytest.MonkeyPatch, source: TravellingSource) -> None:
    built(folder, monkeypatch, source, replace(source, code="b"))
    built(folder, monkeypatch, source)
    assert [*file.read(packs.pack_path(folder, 90)).kernels] == [packs.name_of(source, 90)]


def test_failures_are_told_and_the_rest_is_packed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, source: TravellingSource
) -> None:
    bad = replace(source, code="bad", kernel=replace(KERNEL, cubin=b"PTX"))
    [failed], table = built(folder, monkeypatch, source, bad)
    assert failed.startswith("laddered for sm_90: a damaged cubin")
    assert len(file.read(packs.pack_path(folder, 90)).kernels) == 1
    mended = replace(source, code="bad")
    assert built(folder, monkeypatch, source, mended)[0] == []
    assert source.compilations == 3


def test_debug_sections_are_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch, source: TravellingSource) -> None:
    assert b"lines" in CUBIN
    built(folder, monkeypatch, source)
    stored = Packs(folder).packed(source, 90)
    assert stored is not None
    content = stored.read()
    assert b"lines" not in content
    assert struct.pack("<4s", b"code") in content
