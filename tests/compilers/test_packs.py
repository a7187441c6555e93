"""Kernels that are shipped compiled: where they are used, and that nothing else is."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from autotopk import kernel, packs, settings
from autotopk.compilers import tilelang, triton
from autotopk.errors import AutotopkWarning, DamagedKernelError
from autotopk.kernel import Kernel
from autotopk.packs import ARCHS, Check, Packs, file
from autotopk.problem import Problem
from autotopk.program import Extent, KernelProgram
from tests.compilers.small_sources import KERNEL, TravellingSource, pack
from tests.compilers.test_tilelang import ADD


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where packs are looked for; not there yet."""
    found = tmp_path / "packs"
    monkeypatch.setenv("AUTOTOPK_PACKS", str(found))
    return found


@pytest.fixture
def source(tmp_path: Path) -> TravellingSource:
    return TravellingSource(tmp_path / "log")


def checked(folder: Path, source: TravellingSource, arch: int = 90) -> TravellingSource:
    """The source, whose kernel is packed and was right on a GPU of sm_90; as if nothing was compiled."""
    pack(folder, [source, replace(source, code="b")], arch, arch)
    source.log.unlink()
    return source


def test_a_packed_kernel_is_not_compiled(folder: Path, source: TravellingSource, cache_dir: Path) -> None:
    compiled = source.compile(90)
    checked(folder, source)
    assert source.is_cached(90)
    assert source.origin(90) == "pack"
    assert source.load(90) == source.cached(90) == compiled
    assert source.compilations == 0
    assert not cache_dir.exists()


def test_a_packed_kernel_is_read_once(folder: Path, source: TravellingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the shapes that it serves; anew after `reload`."""
    checked(folder, source)
    lengths: list[int] = []

    def decompressed(data: bytes, length: int) -> bytes:
        lengths.append(length)
        return unpack(data, length)

    unpack = file.decompressed
    monkeypatch.setattr(file, "decompressed", decompressed)
    for times in (1, 2):
        assert source.load(90) is source.load(90)
        assert len(lengths) == times
        packs.reload()


def test_packs_come_before_the_cache(folder: Path, source: TravellingSource) -> None:
    source.load(90)
    assert source.origin(90) == "cache"
    checked(folder, source)
    assert source.origin(90) == "pack"


@pytest.mark.parametrize("change", [{"code": "c"}, {"device": "2"}, {"seconds": 0.001}])
def test_other_sources_are_compiled(folder: Path, source: TravellingSource, change: dict[str, object]) -> None:
    other = replace(checked(folder, source), **change)  # type: ignore[arg-type]
    assert not other.is_cached(90)
    assert other.origin(90) == "compiler"
    other.load(90)
    assert source.compilations == 1


def test_they_can_be_turned_off(folder: Path, source: TravellingSource, monkeypatch: pytest.MonkeyPatch) -> None:
    checked(folder, source)
    monkeypatch.setenv("AUTOTOPK_PACKS", "off")
    assert not source.is_cached(90)


def test_those_of_the_package_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTOPK_PACKS")
    assert settings.packs_dir() == Path(packs.__file__).parent


@pytest.mark.parametrize(
    ("arch", "served"),
    [(75, None), (80, 80), (86, 80), (89, 80), (90, 90), (100, 100), (103, 100), (110, None), (120, 120), (121, 120)],
)
def test_machine_code_runs_on_later_gpus_of_its_major_number(arch: int, served: int | None) -> None:
    assert packs.serving(arch) == served


def test_a_gpu_uses_what_was_checked_on_its_kind(folder: Path, source: TravellingSource) -> None:
    pack(folder, [source], 80, 80, 86)
    assert [source.is_cached(arch) for arch in (80, 86, 89, 90)] == [True, True, False, False]


def test_nothing_is_used_before_it_was_checked(folder: Path, source: TravellingSource) -> None:
    """Neither is what failed, afterwards; a process that begins later knows."""
    other, edited = replace(source, code="b"), replace(source, code="c")
    pack(folder, [source, other])
    assert not source.is_cached(90)
    packs_here().keep_check(90, Check("a GPU", frozenset({source.compile(90).code}), {other.compile(90).code: "wrong"}))
    for _ in range(2):
        assert source.is_cached(90)
        assert not other.is_cached(90)
        assert packs_here().untried(90) == set()
        packs.reload()
    pack(folder, [source, edited])  # what was checked stays so
    assert source.is_cached(90)
    assert not edited.is_cached(90)
    assert packs_here().untried(90) == {packs.name_of(edited, 90)}


def packs_here() -> Packs:
    found = packs.here()
    assert found is not None
    return found


def test_a_check_that_cannot_be_written_counts_in_its_process(
    folder: Path, source: TravellingSource, cache_dir: Path
) -> None:
    pack(folder, [source])
    cache_dir.write_text("no folder")
    with pytest.warns(AutotopkWarning, match="the next process checks shipped kernels again"):
        packs_here().keep_check(90, Check("a GPU", frozenset({source.compile(90).code})))
    assert source.is_cached(90)


def test_later_checks_prevail() -> None:
    first = Check("one", frozenset("ab"), {"c": "wrong", "d": "wrong"})
    assert first.then(Check("two", frozenset("c"), {"a": "slow"})) == Check(
        "one, two", frozenset("bc"), {"d": "wrong", "a": "slow"}
    )
    assert first.then(Check("one")) == first


def test_what_was_found_out_here_counts_beside_what_came_along(folder: Path, source: TravellingSource) -> None:
    other = replace(source, code="b")
    pack(folder, [source, other], 90, 90)
    packs_here().keep_check(90, Check("mine", failed={other.compile(90).code: "wrong"}))
    for _ in range(2):
        assert (source.is_cached(90), other.is_cached(90)) == (True, False)
        packs.reload()
    packs_here().keep_check(90, Check("mine", frozenset({other.compile(90).code})))
    assert other.is_cached(90)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"device": "x", "passed": 1, "failed": {}}', b"\xff"])
def test_a_damaged_check_is_none(folder: Path, source: TravellingSource, content: bytes) -> None:
    checked(folder, source)
    [path] = folder.glob("*.check")
    path.write_bytes(content)
    packs.reload()
    assert not source.is_cached(90)


def test_a_damaged_kernel_is_compiled(folder: Path, source: TravellingSource) -> None:
    """And others of its group, but none of other groups."""
    others = [replace(source, code=f"kernel_{at}") for at in range(file.KIN)]
    pack(folder, [source, *others], 90, 90)
    path = packs.pack_path(folder, 90)
    offset, length = file.read(path).groups[0]
    content = bytearray(path.read_bytes())
    content[offset + length // 2] ^= 1
    path.write_bytes(content)
    with pytest.warns(AutotopkWarning, match="a compiled kernel is not used"):
        assert source.load(90) == source.compile(90)
    assert others[-1].cached(90) is not None


def test_a_kernel_in_the_place_of_another_is_none(folder: Path, source: TravellingSource) -> None:
    checked(folder, source)
    path, names = packs.pack_path(folder, 90), [packs.name_of(one, 90) for one in (source, replace(source, code="b"))]
    stored = [file.read(path).find(name) for name in names]
    assert stored[1] is not None
    file.write(path, dict.fromkeys(names, (stored[1].read(), stored[1].code)))
    found = file.read(path).find(names[0])
    assert found is not None
    with pytest.raises(DamagedKernelError):
        Kernel.from_bytes(found.read(), found.name)


@pytest.mark.parametrize("damage", ["empty", "cut off", "index", "text", "no pack"])
def test_a_damaged_pack_costs_one_warning(folder: Path, source: TravellingSource, damage: str) -> None:
    checked(folder, source)
    path = packs.pack_path(folder, 90)
    content = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "cut off": content[:-1],
            "index": content[:100] + b" " + content[101:],
            "text": b"version https://git-lfs.github.com/spec/v1\n",
            "no pack": b"\0" * 5000,
        }[damage]
    )
    packs.reload()
    with pytest.warns(AutotopkWarning, match="shipped kernels are not used: .*sm_90.pack") as caught:
        cached = [source.is_cached(90) for _ in range(2)]
    assert cached == [False, False]
    assert len(caught) == 1


@pytest.mark.parametrize("content", ["", "[]", '{"90": 1}', '{"90": {"x": {}}}', '{"x": {}}'])
def test_damaged_sources_cost_one_warning(folder: Path, source: TravellingSource, content: str) -> None:
    checked(folder, source)
    (folder / packs.SOURCES).write_text(content)
    packs.reload()
    with pytest.warns(AutotopkWarning, match=r"shipped kernels are not used: .*sources.json") as caught:
        cached = [source.is_cached(90) for _ in range(2)]
    assert cached == [False, False]
    assert len(caught) == 1


def test_the_same_kernels_make_the_same_file(tmp_path: Path, source: TravellingSource) -> None:
    sources = [source, replace(source, code="b"), replace(source, code="c")]
    contents = [packs.pack_path(pack(tmp_path / name, sources), 90).read_bytes() for name in ("first", "second")]
    assert contents[0] == contents[1]


def test_few_kernels_are_read_with_one(
    tmp_path: Path, source: TravellingSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index alone is read to begin with; of a group no more than it takes."""
    cubins = [bytes(random.Random(at).randbytes(5000)) for at in range(10)]
    sources = [replace(source, code=f"k{at}", kernel=replace(KERNEL, cubin=cubin)) for at, cubin in enumerate(cubins)]
    found = file.read(packs.pack_path(pack(tmp_path / "packs", sources), 90))
    read: list[tuple[int, int]] = []

    def decompressed(data: bytes, length: int) -> bytes:
        read.append((len(data), length))
        return unpack(data, length)

    unpack = file.decompressed
    monkeypatch.setattr(file, "decompressed", decompressed)
    for at in (0, 3, 9):
        stored = found.find(packs.name_of(sources[at], 90))
        assert stored is not None
        assert Kernel.from_bytes(stored.read(), stored.name).cubin == cubins[at]
    assert [length // 5000 for _, length in read] == [1, 4, 2]
    assert all(size < 5 * 6000 for size, _ in read)


def test_what_was_measured_is_known_wherever_it_is_packed(
    folder: Path, source: TravellingSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its code, which no compiler's version is part of, and no comment."""
    program, problem = KernelProgram.of(source, Extent()), Problem.contiguous(4, 8, 2)
    unpacked = program.source_digest(problem, 90)
    checked(folder, source)
    digest = program.source_digest(problem, 90)
    assert digest != unpacked
    monkeypatch.setattr(TravellingSource, "cache_key", lambda self: f"another compiler|{self.recipe()}")
    assert program.source_digest(problem, 90) == digest
    commented = replace(source, device="2")
    pack(folder, [commented], 90, 90)
    assert KernelProgram.of(commented, Extent()).source_digest(problem, 90) == digest
    assert program.source_digest(problem, 90) != digest  # of files that the pack was not made from
    other = replace(commented, kernel=replace(KERNEL, threads=96))
    pack(folder, [other], 90, 90)
    assert KernelProgram.of(other, Extent()).source_digest(problem, 90) != digest


@pytest.mark.parametrize("absent", [True, False])
def test_packed_kernels_are_known_without_compilers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: bool
) -> None:
    source = replace(ADD, symbol="add")
    name, compiled = packs.name_of(source, 90), replace(KERNEL, symbol="add")
    file.write(packs.pack_path(folder, 90), {name: (compiled.to_bytes(name), compiled.code)})
    (folder / packs.SOURCES).write_text(json.dumps({90: {"device_code": dict([source.device_code()])}}))
    Packs(folder).check_paths(90)[0].write_text(Check("", frozenset({compiled.code})).to_json())
    if absent:
        for module in (kernel, tilelang, triton):
            monkeypatch.setattr(module, "distribution_version", lambda name: "absent")
    assert source.known_as(90) == compiled.code
    assert source.load(90) == compiled


def test_archs_are_names_of_packs() -> None:
    assert all(packs.serving(arch) == arch for arch in ARCHS)
