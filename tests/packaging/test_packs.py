"""The packs that are shipped are of the sources beside them."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from autotopk import packs, registry
from autotopk.device import H100, Device
from autotopk.kernel import Kernel
from autotopk.packs import ARCHS, Packs, file
from autotopk.problem import ANSWERS, DTYPE_BYTES, WINDOWS, Problem
from tests.packaging.processes import ROOT

FOLDER = ROOT / "autotopk" / "packs"
MOST_BYTES, MOST_BYTES_TOGETHER, MOST_KERNELS = {90: 11_150_000}, 39_800_000, 1067
MAKE = "run `make kernels`, and commit what it writes"


DEVICES = (
    Device("cuda", "A100", (8, 0), 108, shared_bytes=163 << 10),
    Device("cuda", "A10", (8, 6), 72, shared_bytes=99 << 10),
    Device("cuda", "Orin", (8, 7), 16, shared_bytes=163 << 10),
    Device("cuda", "L40S", (8, 9), 142, shared_bytes=99 << 10),
    H100,
    replace(H100, name="H20", processors=78),
    Device("cuda", "B200", (10, 0), 148, shared_bytes=227 << 10),
    Device("cuda", "RTX 5090", (12, 0), 170, shared_bytes=99 << 10),
)


def test_what_is_shipped() -> None:
    assert tuple(sorted(Packs(FOLDER).made)) == ARCHS


@pytest.mark.parametrize("arch", ARCHS)
def test_every_rung_is_packed_as_it_is_today(arch: int) -> None:
    shipped = Packs(FOLDER)
    made, pack = shipped.made.get(arch), shipped.pack(arch)
    wanted = [source for strategy in registry.built_in() for source in strategy.rungs(arch)]
    names = {packs.name_of(source, arch) for source in wanted}
    assert len(names) == len(wanted) <= MOST_KERNELS
    packed = set() if pack is None else {*pack.kernels}
    edited = {
        files
        for files, digest in (source.device_code() for source in wanted)
        if made is None or made.device_code.get(files) != digest
    }
    assert not edited, f"device files were edited since sm_{arch}.pack was made: {MAKE}"
    assert names == packed, f"{len(names - packed)} kernels are missing in sm_{arch}.pack: {MAKE}"


def drawn(draw: random.Random) -> Problem:
    """Rows, cols and k alike in every order of magnitude."""
    rows, cols = int(2 ** draw.uniform(0, 20)), int(2 ** draw.uniform(0, 24))
    k = min(cols, int(2 ** draw.uniform(0, 24 * draw.random())))
    dtype, largest, order = draw.choice([*DTYPE_BYTES]), draw.random() < 0.5, draw.random() < 0.5
    return Problem.contiguous(
        rows, cols, k, dtype, largest=largest, sorted=order, answer=draw.choice((*ANSWERS, WINDOWS))
    )


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_random_problems_have_their_kernels_shipped(device: Device) -> None:
    """Of every family that serves them."""
    count, draw, shipped = 10_000, random.Random(device.name), Packs(FOLDER)
    shipped.unchecked = True
    served = 0
    for _ in range(count):
        problem = drawn(draw)
        for strategy in registry.built_in():
            if strategy.name == "torch_fallback" or strategy.reasons_unable(problem, device):
                continue
            served += 1
            rungs = strategy.ladder(problem, device)
            assert rungs, f"{strategy.name} has no rung for {problem} on {device.name}"
            for source in strategy.program(rungs[0], problem, device).sources:
                assert shipped.find(source, device.arch), f"{strategy.name} {rungs[0]} of {problem} is not shipped"
    assert served > count / 2


def test_packs_are_small_and_belong_to_their_sources() -> None:
    sizes = {path.stem: path.stat().st_size for path in FOLDER.glob("*.pack")}
    assert {*sizes} == {f"sm_{arch}" for arch in Packs(FOLDER).made}
    assert all(sizes.get(f"sm_{arch}", 0) <= most for arch, most in MOST_BYTES.items())
    assert sum(sizes.values()) <= MOST_BYTES_TOGETHER


def test_packs_hold_machine_code_alone() -> None:
    """A driver that compiles PTX is a compiler in the call."""
    for path in FOLDER.glob("*.pack"):
        found = file.read(path)
        for name in found.kernels:
            stored = found.find(name)
            assert stored is not None
            kernel = Kernel.from_bytes(stored.read(), name)
            assert kernel.cubin.startswith(b"\x7fELF")
            assert b".version" not in kernel.cubin
            assert kernel.code == stored.code


def test_checks_are_readable() -> None:
    for path in FOLDER.glob("*.check"):
        check = packs.read_check(path)
        assert check is not None
        assert path.stem.removeprefix("sm_").isdigit()
        assert check.to_json() == path.read_text()


def test_all_kernels_were_checked_where_some_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Others are not served until a user's GPU has checked them."""
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(tmp_path))
    archs = [int(path.stem.removeprefix("sm_")) for path in FOLDER.glob("*.check")]
    assert archs
    assert not set[str]().union(*(Packs(FOLDER).untried(arch) for arch in archs)), "run scripts.ship with its check"
