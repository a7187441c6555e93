"""AUTOTOPK_DB=bundle: winners and kernels of a file that somebody may have touched; answers stay right."""

import os
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk.device import H100
from autotopk.tuning_db import artifact, bundle
from autotopk.tuning_db.bundle import kernel_name
from tests.registered import registered
from tests.runtime.same import told, within
from tests.runtime.winners import CHUNKED, SORT, environment, python, winner
from tests.tuning_db.bundles import Small, keys, mutated, parts, plain, sealed

X = torch.randn(4, 1024, generator=torch.Generator().manual_seed(0))
K = 8
EXPECTED = torch.topk(X, K).values


def deploy(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTOPK_DB", str(path))
    autotopk.reload()
    return path


def answered() -> None:
    """By every door, twice."""
    for _ in range(2):
        values, indices = autotopk.topk(X, K)
        assert torch.equal(values, EXPECTED)
        assert torch.equal(X.gather(1, indices), EXPECTED)
        assert torch.equal(X.gather(1, autotopk.topk_indices(X, K).long()), EXPECTED)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Winners for X, for what is near it and for an H100, and kernels."""
    shapes = product((2, 4), (1024, 4096), ((8, CHUNKED), (9, SORT)))
    here = [winner(rows, cols, k, config) for rows, cols, (k, config) in shapes]
    return plain(tmp_path / "good.bundle", [*here, *(replace(one, device=H100) for one in here)])


def test_winners_of_a_bundle_are_followed(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(good, monkeypatch)
    assert told(answered) == []
    choice = autotopk.explain(X, K).choice
    assert (choice.step, choice.candidate.config) == ("exact", CHUNKED)


def test_in_a_process_of_its_own(good: Path, tmp_path: Path) -> None:
    """Neither the command line nor what writes bundles is imported."""
    code = (
        "import sys, torch, autotopk; x = torch.randn(4, 1024); "
        "print(torch.equal(autotopk.topk(x, 8).values, torch.topk(x, 8).values), autotopk.explain(x, 8).choice.step, "
        "*{'sqlalchemy', 'cryptography', 'triton', 'typer'} & {*sys.modules})"
    )
    assert python(code, environment(tmp_path / "cache", AUTOTOPK_DB=str(good))) == "True exact\n"


# Touched files -------------------------------------------------------------------------------------------------------


def refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one warning of a file that is not used."""
    deploy(path, monkeypatch)
    [message] = told(answered)
    assert message.startswith(f"AUTOTOPK_DB cannot be used: {path}: ")
    assert message.isprintable()
    assert autotopk.explain(X, K).choice.step == "torch"
    return message


def test_one_flipped_bit(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anywhere: in the first lines, the manifest, winners, kernels."""
    content = bytearray(good.read_bytes())
    for bit in range(0, 8 * len(content), 8 * len(content) // 300):
        content[bit // 8] ^= 1 << bit % 8
        good.write_bytes(content)
        refused(good, monkeypatch)
        content[bit // 8] ^= 1 << bit % 8
    good.write_bytes(content)
    deploy(good, monkeypatch)
    assert told(answered) == []


def test_what_is_no_bundle(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = good.read_bytes()
    for changed in (content[:-1], content + b"x", content[:200], b"autotopk bundle ", b"autotopk bundle 1 " * 9999):
        good.write_bytes(changed)
        refused(good, monkeypatch)
    good.write_bytes(sealed(*parts(content), first=b"autotopk bundle 9 "))
    assert "upgrade autotopk" in refused(good, monkeypatch)


SOME = range(150)
ALL = [pytest.param(range(at, at + 500), marks=pytest.mark.slow) for at in range(0, 4000, 500)]


@pytest.mark.parametrize("seeds", [SOME, *ALL], ids=str)
def test_mutated_bundles(seeds: range, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, path = good.read_bytes(), tmp_path / "mutated"
    steps: set[str] = set()
    for seed in seeds:
        done, changed = mutated(content, seed, tmp_path)
        path.write_bytes(changed)
        deploy(path, monkeypatch)
        with warnings.catch_warnings(record=True) as caught, within(20):
            warnings.simplefilter("always")
            answered()
            explanation = autotopk.explain(X, K)
        steps.add(explanation.choice.step)
        messages = [str(one.message) for one in caught]
        assert len(messages) <= 2, (done, messages)  # of the file, and that nothing was tuned
        for text in [*messages, *str(explanation).splitlines()]:
            assert len(text) < 2000, done
            assert text.isprintable(), done
    assert {"exact", "torch"} <= steps  # some changes cost all, some nothing


# Kernels -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    with registered(Small(tmp_path / "log")) as strategy:
        yield strategy


@pytest.fixture
def bundled(small: Small, tmp_path: Path) -> Path:
    """A winner of the strategy with its kernel, beside one for X."""
    winners = [winner(4, 1024, 8, CHUNKED), small.winner(1)]
    source, path = small.source(1), tmp_path / "b.bundle"
    kernels = {kernel_name(source, 90): source.made(90)}
    bundle.write(path, artifact.to_bytes(winners), [one.key for one in winners], kernels, {})
    return path


def test_kernels_come_with_it(bundled: Path, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    source = small.source(1)
    assert not source.is_cached(90)
    deploy(bundled, monkeypatch)
    answered()
    assert source.origin(90) == "bundle"
    assert source.load(90) == source.made(90)
    assert source.compilations == 0
    monkeypatch.delenv("AUTOTOPK_DB")
    autotopk.reload()
    assert not source.is_cached(90)
    answered()
    assert not source.is_cached(90)


def test_its_winners_are_current(bundled: Path, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotopk.runtime.winners import is_current

    assert is_current(small.winner(1)) is None
    deploy(bundled, monkeypatch)
    answered()
    assert is_current(small.winner(1)) is True
    assert is_current(replace(small.winner(1), identity=small.winner(2).identity)) is False
    assert is_current(small.winner(2)) is None


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602])
def test_kernels_of_a_file_that_others_can_write(
    mode: int, bundled: Path, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled.chmod(mode)
    deploy(bundled, monkeypatch)
    [message] = told(answered)
    cure = f"others can write to {bundled}: `chmod -R go-w {bundled}`"
    assert message == f"kernels are not loaded from AUTOTOPK_DB: {cure}"
    assert autotopk.explain(X, K).choice.step == "exact"
    assert not small.source(1).is_cached(90)
    bundled.chmod(0o644)
    autotopk.reload()
    assert told(answered) == []
    assert small.source(1).is_cached(90)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_kernels_of_another_users_file(bundled: Path, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(bundled, 12_345, -1)
    deploy(bundled, monkeypatch)
    [message] = told(answered)
    assert f"{bundled} belongs to user 12345, not 0: `chown -R 0 {bundled}`" in message
    assert not small.source(1).is_cached(90)


def test_a_kernel_that_nobody_exported(bundled: Path, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under digests that hold: it is compiled, or something slower runs."""
    manifest, members = parts(bundled.read_bytes())
    name = kernel_name(small.source(1), 90)
    for content in (b"", b"x", zlib.compress(b"x"), zlib.compress(small.source(1).made(90).to_bytes("another"))):
        bundled.write_bytes(sealed(manifest, {**members, name: content}))
        deploy(bundled, monkeypatch)
        assert told(answered) == []
        [message] = told(lambda: small.source(1).cached(90))
        assert message.startswith("a compiled kernel is not used: ")


def test_only_the_file_that_was_named_brings_kernels(bundled: Path, small: Small, cache_dir: Path) -> None:
    """Where the user's winners belong a bundle is no more than its winners."""
    cache_dir.mkdir()
    bundled.rename(cache_dir / "winners.sqlite")
    autotopk.reload()
    answered()
    assert autotopk.explain(X, K).choice.step == "exact"
    assert not small.source(1).is_cached(90)


def test_processes_that_replace_a_bundle(bundled: Path, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read stays what it was."""
    deploy(bundled, monkeypatch)
    answered()
    bundled.write_bytes(b"")
    assert small.source(1).load(90) == small.source(1).made(90)
    bundled.unlink()
    assert small.source(1).load(90) == small.source(1).made(90)


# Signatures ----------------------------------------------------------------------------------------------------------


def test_a_signature_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (private, public), (_, other) = keys(tmp_path / "ours"), keys(tmp_path / "theirs")
    one = winner(4, 1024, 8, CHUNKED)
    signed, unsigned = plain(tmp_path / "signed", [one], key=private), plain(tmp_path / "unsigned", [one])
    artifact.publish([one], tmp_path / "winners.sqlite")
    monkeypatch.setenv("AUTOTOPK_DB_KEY", str(public))
    deploy(signed, monkeypatch)
    assert told(answered) == []
    assert autotopk.explain(X, K).choice.step == "exact"
    assert "it is not signed" in refused(unsigned, monkeypatch)
    assert "no bundle, and one signed by" in refused(tmp_path / "winners.sqlite", monkeypatch)
    monkeypatch.setenv("AUTOTOPK_DB_KEY", str(other))
    assert "signature is not by the key" in refused(signed, monkeypatch)
    for key in (tmp_path / "absent", private, tmp_path):
        monkeypatch.setenv("AUTOTOPK_DB_KEY", str(key))
        assert f"key {key}: " in refused(signed, monkeypatch)


def test_a_key_concerns_only_what_is_deployed(tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact.publish([winner(4, 1024, 8, CHUNKED)], cache_dir / "winners.sqlite")
    monkeypatch.setenv("AUTOTOPK_DB_KEY", str(tmp_path / "absent"))
    autotopk.reload()
    assert told(answered) == []
    assert autotopk.explain(X, K).choice.step == "exact"
