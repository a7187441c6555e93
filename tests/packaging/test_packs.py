"""The packs that are shipped are of the sources beside them."""

import pytest

from autotopk import packs, registry
from autotopk.kernel import Kernel
from autotopk.packs import ARCHS, Packs, file
from tests.packaging.processes import ROOT

FOLDER = ROOT / "autotopk" / "packs"
MOST_BYTES, MOST_BYTES_TOGETHER, MOST_KERNELS = {90: 8_000_000}, 24_000_000, 500
MAKE = "run `make kernels`, and commit what it writes"


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
