"""Bundles as files: what is written is read, the same content makes the same bytes, and nothing else is believed."""

import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autotopk import kernel
from autotopk.errors import ArtifactError, AutotopkWarning
from autotopk.key import TuningKey
from autotopk.tuning_db import artifact, bundle
from autotopk.tuning_db.bundle import Bundle
from tests.tuning_db.bundles import Small, keys, mutated, parts, plain, sealed, small_kernel
from tests.tuning_db.examples import KEY, MANY, winner

STRANGER = 12_345


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return plain(tmp_path / "good.bundle", [winner()])


def test_round_trip(tmp_path: Path) -> None:
    path = plain(tmp_path / "many.bundle", MANY, kernels=3)
    found, opened = artifact.opened(path)
    assert opened is not None
    assert set(found.winners()) == set(MANY)
    assert set(artifact.read(path)) == set(MANY)
    assert opened.kernels == {f"sm_90/{at:032x}": small_kernel(at).code for at in range(3)}
    assert opened.manifest["autotopk"] == "0"
    assert not opened.signed
    assert sorted(map(tuple, opened.workloads())) == sorted(
        {(k.dtype, k.rows, k.cols, k.k, k.sorted, k.routing) for k in (one.key for one in MANY)}
    )
    assert [TuningKey(*one) for one in Bundle.read(plain(tmp_path / "one", [winner()])).workloads()] == [KEY]


def test_the_same_content_makes_the_same_bytes(tmp_path: Path) -> None:
    one, other = plain(tmp_path / "one", MANY), plain(tmp_path / "other", MANY[::-1])
    assert one.read_bytes() == other.read_bytes()
    time.sleep(0.01)
    os.utime(one)
    assert plain(tmp_path / "one", MANY).read_bytes() == other.read_bytes()
    assert plain(tmp_path / "one", MANY[1:]).read_bytes() != other.read_bytes()


def test_kernels_are_found_by_what_they_are_made_from(tmp_path: Path) -> None:
    source = Small(tmp_path / "log").source(1)
    made = {bundle.kernel_name(source, arch): source.compile(arch) for arch in (80, 90)}
    bundle.write(tmp_path / "b", artifact.to_bytes([winner()]), [KEY], made, {})
    opened = Bundle.read(tmp_path / "b")
    kernel.deploy(opened)
    before = source.compilations
    for arch in (80, 90):
        assert source.is_cached(arch)
        assert source.load(arch) == source.cached(arch) == made[bundle.kernel_name(source, arch)]
    assert source.compilations == before
    assert not Small(tmp_path / "log").source(2).is_cached(90)
    assert not source.is_cached(120)
    kernel.deploy(None)
    assert not source.is_cached(90)


def test_a_kernel_under_another_name_is_not_loaded(tmp_path: Path) -> None:
    one, other = Small(tmp_path / "log").source(1), Small(tmp_path / "log").source(2)
    made = {bundle.kernel_name(source, 90): source.compile(90) for source in (one, other)}
    bundle.write(tmp_path / "b", artifact.to_bytes([winner()]), [KEY], made, {})
    manifest, members = parts((tmp_path / "b").read_bytes())
    names = [*made]
    members[names[0]], members[names[1]] = members[names[1]], members[names[0]]
    (tmp_path / "b").write_bytes(sealed(manifest, members))
    kernel.deploy(Bundle.read(tmp_path / "b"))
    with pytest.warns(AutotopkWarning, match="compiled kernel is not used"):
        assert one.cached(90) is None


# Every bit -----------------------------------------------------------------------------------------------------------


def flips(content: bytes, bits: range, path: Path, public: Path | None = None) -> None:
    changed = bytearray(content)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(ArtifactError):
            artifact.opened(path, public)
        changed[bit // 8] ^= 1 << bit % 8


def test_a_flipped_bit_is_seen(good: Path) -> None:
    content = good.read_bytes()
    flips(content, range(0, 8 * len(content), 61), good)


@pytest.mark.slow
@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_seen(bit: int, good: Path) -> None:
    content = good.read_bytes()
    flips(content, range(bit, 8 * len(content), 8), good)


def test_flipped_bits_of_a_signed_bundle(tmp_path: Path) -> None:
    private, _ = keys(tmp_path)
    path = plain(tmp_path / "signed", [winner()], key=private)
    content = path.read_bytes()
    flips(content, range(0, 8 * 300, 23), path)  # seen without the key


def test_what_was_done_to_it(good: Path, tmp_path: Path) -> None:
    content = good.read_bytes()
    for changed, told in (
        (content[:-1], "does not match its digest"),
        (content + b"\0", "ends 1 bytes late"),
        (b"", "not a winners file|not a database"),
        (content[:60], "not a bundle"),
        (sealed(*parts(content), first=b"autotopk bundle 2 "), "format 2; this autotopk reads up to 1: upgrade"),
        (sealed({"members": {"../x": [0, ""]}}, {}), "odd member, '../x'"),
        (sealed({}, {}), "lists no members"),
        (sealed({"members": {}}, {}), "holds no winners.sqlite"),
        (sealed({"members": {}}, {"x": b"y"}), "odd member|late"),
    ):
        good.write_bytes(changed)
        with pytest.raises(ArtifactError, match=told):
            artifact.opened(good)


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_MANIFEST_BYTES", "MAX_MEMBERS"])
def test_more_than_anybody_has(limit: str, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, limit, 1)
    with pytest.raises(ArtifactError, match=r"too large|too many|does not match"):
        Bundle.read(good)
    with pytest.raises(ArtifactError, match="no bundle can be written"):
        plain(good, [winner()])


def refusal(path: Path) -> str | None:
    """Why a file is refused, if it is; nothing else may happen."""
    try:
        found, opened = artifact.opened(path)
        found.winners()
        if opened is not None:
            opened.workloads()
    except ArtifactError as error:
        return str(error)
    return None


SOME = range(200)
ALL = [pytest.param(range(at, at + 500), marks=pytest.mark.slow) for at in range(0, 4000, 500)]


@pytest.mark.parametrize("seeds", [SOME, *ALL], ids=str)
def test_mutated_bundles(seeds: range, good: Path, tmp_path: Path) -> None:
    content, path = good.read_bytes(), tmp_path / "mutated"
    refused = 0
    for seed in seeds:
        done, changed = mutated(content, seed, tmp_path)
        path.write_bytes(changed)
        told = refusal(path)
        refused += told is not None
        assert len(told or "") < 2000, done
        assert (told or "").isprintable(), done
    assert refused > len(seeds) / 2


# Who wrote it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602])
def test_kernels_of_a_file_that_others_can_write(good: Path, mode: int) -> None:
    good.chmod(mode)
    [reason] = Bundle.read(good).reasons_untrusted
    assert reason == f"others can write to {good}: `chmod -R go-w {good}`"
    assert artifact.read(good) == (winner(),)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_kernels_of_another_users_file(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    assert Bundle.read(good).reasons_untrusted == ()  # root's serve everybody
    monkeypatch.undo()
    os.chown(good, STRANGER, -1)
    [reason] = Bundle.read(good).reasons_untrusted
    assert reason == f"{good} belongs to user {STRANGER}, not 0: `chown -R 0 {good}`"


def test_nothing_is_loaded_from_an_untrusted_file(tmp_path: Path) -> None:
    source = Small(tmp_path / "log").source(1)
    bundle.write(
        tmp_path / "b", artifact.to_bytes([winner()]), [KEY], {bundle.kernel_name(source, 90): source.compile(90)}, {}
    )
    assert Bundle.read(tmp_path / "b").find(source, 90) is not None
    (tmp_path / "b").chmod(0o666)
    assert Bundle.read(tmp_path / "b").find(source, 90) is None


# Signatures ----------------------------------------------------------------------------------------------------------


def test_signatures(tmp_path: Path, good: Path) -> None:
    (private, public), (_, other) = keys(tmp_path / "ours"), keys(tmp_path / "theirs")
    path = plain(tmp_path / "signed", [winner()], key=private)
    assert Bundle.read(path, public).signed
    assert Bundle.read(path).signed
    assert plain(tmp_path / "again", [winner()], key=private).read_bytes() == path.read_bytes()
    with pytest.raises(ArtifactError, match="signature is not by the key"):
        Bundle.read(path, other)
    with pytest.raises(ArtifactError, match="it is not signed"):
        Bundle.read(good, public)
    artifact.publish([winner()], tmp_path / "winners.sqlite")
    with pytest.raises(ArtifactError, match="no bundle, and one signed by"):
        artifact.opened(tmp_path / "winners.sqlite", public)


def test_a_signature_is_of_the_content(tmp_path: Path) -> None:
    """Another bundle under a good bundle's signature."""
    private, public = keys(tmp_path)
    signed = plain(tmp_path / "signed", [winner()], key=private).read_bytes().split(b"\n", 2)
    other = plain(tmp_path / "other", [winner(time_us=1.0)], key=private).read_bytes().split(b"\n", 2)

    head = signed[1] + b"\n" + other[2].split(b"\n", 1)[0] + b"\n"
    forged = b"autotopk bundle 1 " + hashlib.sha256(head).hexdigest().encode() + b"\n" + signed[1] + b"\n" + other[2]
    (tmp_path / "forged").write_bytes(forged)
    Bundle.read(tmp_path / "forged")
    with pytest.raises(ArtifactError, match="signature is not by the key"):
        Bundle.read(tmp_path / "forged", public)


def test_keys_that_are_none(tmp_path: Path, good: Path) -> None:
    private, public = keys(tmp_path)
    signed = plain(tmp_path / "signed", [winner()], key=private)
    (tmp_path / "garbage").write_bytes(b"garbage")
    for key in (private, tmp_path / "garbage", tmp_path / "absent", tmp_path):
        with pytest.raises(ArtifactError, match=f"key {key}: "):
            Bundle.read(signed, key)
    for key in (public, tmp_path / "garbage", tmp_path / "absent", tmp_path):
        with pytest.raises(ArtifactError, match=f"key {key}: "):
            plain(tmp_path / "other", [winner()], key=key)
    assert not (tmp_path / "other").exists()


def test_signatures_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    private, public = keys(tmp_path)
    path = plain(tmp_path / "signed", [winner()], key=private)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert Bundle.read(path).signed
    with pytest.raises(ArtifactError, match="pip install cryptography"):
        Bundle.read(path, public)


# Time ----------------------------------------------------------------------------------------------------------------


def test_two_hundred_winners_are_read_at_once(tmp_path: Path) -> None:
    """10 ms where nothing else runs, of 4 MB; a kernel takes a fraction of one."""
    big = [
        (f"sm_90/{at:032x}", replace(small_kernel(at), cubin=os.urandom(16 << 10) + bytes(48 << 10)))
        for at in range(200)
    ]
    winners = [winner(key=replace(KEY, rows=rows)) for rows in range(1, 201)]
    path = tmp_path / "b"
    bundle.write(path, artifact.to_bytes(winners), [one.key for one in winners], dict(big), {})
    assert path.stat().st_size > 3 << 20
    took, kernels = [], []
    for _ in range(5):
        begun = time.thread_time()
        _, opened = artifact.opened(path)
        took.append(time.thread_time() - begun)
        assert opened is not None
        begun = time.thread_time()
        kernel.Kernel.from_bytes(opened.member(big[7][0], 1 << 20), big[7][0])
        kernels.append(time.thread_time() - begun)
    assert min(took) < 0.02
    assert min(kernels) < 0.005
