"""Kernels as they are shipped, none of which is compiled here: tests/packaging holds packs to today's sources."""

from pathlib import Path

from autotopk import packs
from autotopk.kernel import Kernel, KernelSource

PACKS = packs.Packs(Path(packs.__file__).parent)


def shipped(source: KernelSource, arch: int) -> Kernel:
    """The packed kernel of a source."""
    stored = PACKS.packed(source, arch)
    assert stored, f"{source} is not packed for {arch} as it is today: run `make kernels`"
    return Kernel.from_bytes(stored.read(), packs.name_of(source, arch))
