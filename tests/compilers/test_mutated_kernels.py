"""Whatever the cache holds, `load` returns the compiled kernel, or one that its own writer made launchable."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from autotopk.kernel import Kernel, Parameter
from tests.compilers.mutations import is_launchable, mutants
from tests.compilers.small_sources import KERNEL, CountingSource
from tests.compilers.test_identity import masking_source

OTHER = replace(KERNEL, cubin=b"\x7fELF of another", threads=1024, parameters=(Parameter("values", "pointer"),))


def survive(kernel: Kernel, count: int, seed: int, log: Path) -> Counter[str]:
    """How often each kind of file was compiled again, and "served"."""
    source = CountingSource(log, log.name, kernel)
    path, compiled, outcomes = source.cache_path(90), source.load(90), Counter[str]()
    for mutant in mutants(compiled, path.name, OTHER, count, seed):
        path.write_bytes(mutant.data)
        before = source.compilations
        loaded = source.load(90)
        if source.compilations > before:
            outcomes[mutant.kind] += 1
            assert loaded == compiled
            assert path.read_bytes() == compiled.to_bytes(path.name)
        else:
            outcomes["served"] += 1
            assert mutant.is_forged, mutant
            assert is_launchable(loaded), mutant
    return outcomes


def triton_kernel() -> Kernel:
    pytest.importorskip("triton")
    return masking_source().compile(90)


def test_a_small_kernel(tmp_path: Path) -> None:
    outcomes = survive(KERNEL, 300, 1, tmp_path / "log")
    assert outcomes["served"] < 60
    assert len(outcomes) == 9


@pytest.mark.compile
def test_a_kernel_of_triton(tmp_path: Path) -> None:
    assert survive(triton_kernel(), 100, 2, tmp_path / "log")["served"] < 20


@pytest.mark.slow
@pytest.mark.compile
def test_thousands(tmp_path: Path) -> None:
    small = survive(KERNEL, 3000, 3, tmp_path / "small")
    real = survive(triton_kernel(), 1000, 4, tmp_path / "real")
    print(dict(small), dict(real))
    assert small["served"] < 600
    assert real["served"] < 200
