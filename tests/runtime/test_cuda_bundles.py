"""A bundle on a GPU: its kernels load, run, and need no compiler."""

from pathlib import Path

import pytest
import torch

import autotopk
from autotopk import registry
from autotopk.cli.bundles import write_bundle
from autotopk.cli.verify import verify_file
from autotopk.compilers.triton import TritonSource
from autotopk.device import cuda_device
from autotopk.errors import BuildError
from autotopk.kernel import Kernel
from autotopk.key import TuningKey
from autotopk.problem import Problem
from autotopk.tuning_db.records import Winner
from tests.runtime.same import check, told

pytestmark = pytest.mark.gpu

K = 8


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    """lane_merge by its own rule, as it would be measured on 64x128."""
    device, problem, strategy = cuda_device(0), Problem.contiguous(64, 128, K), registry.get("lane_merge")
    config = strategy.heuristic(problem, device)
    identity = strategy.program(config, problem, device).identity(problem, device.arch)
    candidate = strategy.candidate(config)
    one = Winner(
        device, TuningKey.of(problem), candidate, identity, 5.0, 10.0, 0.5, "aten", "2026-01-01T00:00:00+00:00"
    )
    write_bundle([one], tmp_path / "b.bundle")
    return tmp_path / "b.bundle"


@pytest.fixture
def bare(bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No kernels but the bundle's."""

    def refuse(self: TritonSource, arch: int) -> Kernel:
        raise BuildError("there is no compiler")

    monkeypatch.setattr(TritonSource, "compile", refuse)
    monkeypatch.setenv("AUTOTOPK_CACHE_DIR", str(tmp_path / "bare"))
    monkeypatch.setenv("AUTOTOPK_PACKS", "0")
    monkeypatch.setenv("AUTOTOPK_DB", str(bundled))
    autotopk.reload()
    return bundled


def test_every_kernel_fits(bundled: Path) -> None:
    [entry] = (found := verify_file(bundled, None, torch.device("cuda"))).winners
    assert (entry.resolves, entry.loads, entry.fits, entry.current) == (True, True, True, True)
    assert found.good


def test_a_machine_without_compilers(bare: Path) -> None:
    x = torch.randn(64, 128, device="cuda")
    assert told(lambda: check(x, K)) == []
    assert autotopk.explain(x, K).choice.step == "exact"
    assert not any((bare.parent / "bare").rglob("*.kernel*"))


def test_one_flipped_bit(bare: Path) -> None:
    content = bytearray(bare.read_bytes())
    content[-100] ^= 4  # of a kernel
    bare.write_bytes(content)
    autotopk.reload()
    messages = told(lambda: check(torch.randn(64, 128, device="cuda"), K))
    assert messages[0].startswith(f"AUTOTOPK_DB cannot be used: {bare}: ")
    assert sum(message.startswith("AUTOTOPK_DB") for message in messages) == 1
