"""Whatever a winners file holds, calls are answered as torch.topk answers them, at once."""

import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk.device import H100, cpu_device
from autotopk.fitted import rows_of
from autotopk.key import TuningKey
from autotopk.prediction import Model, Point, Region, cell_of, kind_of, place_of
from autotopk.tuning_db import artifact
from tests.runtime.same import within
from tests.runtime.winners import CHUNKED, SORT, coefficients, winner
from tests.tuning_db.mutants import OF_FITS, OF_WINNERS, Mutation, mutate

X = torch.randn(4, 1024, generator=torch.Generator().manual_seed(0))
K = 8
EXPECTED = torch.topk(X, K).values


@pytest.fixture
def good(tmp_path: Path) -> bytes:
    """Winners for X, for what is near it, and for an H100."""
    shapes = product((2, 4), (1024, 4096), ((8, CHUNKED), (9, SORT)))
    here = [winner(rows, cols, k, config) for rows, cols, (k, config) in shapes]
    path = tmp_path / "good.sqlite"
    artifact.publish([*here, *(replace(one, device=H100) for one in here)], path)
    return path.read_bytes()


@pytest.fixture
def fitted(tmp_path: Path) -> bytes:
    """Predictions for X, and a winner that is far from it."""
    key = TuningKey("float32", 4, 1024, K, True)
    chunked = f"torch_fallback {CHUNKED}"
    model = Model(
        strategies={"torch_fallback": coefficients("torch_fallback", 100.0, 0.5)},
        candidates={chunked: 3},
        points=[Point(place_of(key), {"torch_fallback": 0.1, chunked: -3.0})],
        regions={cell_of(key): Region(1.05, 4)},
    )
    path = tmp_path / "good.sqlite"
    artifact.publish([winner(64, 100_000, 300)], path, rows_of(model, cpu_device().fingerprint, kind_of(key, "cpu")))
    return path.read_bytes()


ALL = [pytest.param(range(at, at + 500), marks=pytest.mark.slow) for at in range(0, 3000, 500)]


@pytest.mark.parametrize("seeds", [range(150), *ALL], ids=str)
def test_mutated_winners(seeds: range, good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = steps_of(seeds, good, OF_WINNERS, tmp_path, monkeypatch)
    assert {"exact", "bucket", "torch"} <= steps  # some changes cost all, some a row, some nothing


@pytest.mark.parametrize("seeds", [range(150), *ALL], ids=str)
def test_mutated_fits(seeds: range, fitted: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"predicted", "torch"} <= steps_of(seeds, fitted, OF_FITS, tmp_path, monkeypatch)


def steps_of(
    seeds: range, good: bytes, mutations: list[Mutation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    """What answered beside mutated files, always as torch.topk does."""
    path = tmp_path / "mutated.sqlite"
    monkeypatch.setenv("AUTOTOPK_DB", str(path))
    steps: set[str] = set()
    for seed in seeds:
        done = mutate(good, path, seed, mutations)
        autotopk.reload()
        with warnings.catch_warnings(record=True) as caught, within(20):
            warnings.simplefilter("always")
            for _ in range(2):
                values, indices = autotopk.topk(X, K)
                assert torch.equal(values, EXPECTED), done
                assert torch.equal(X.gather(1, indices), EXPECTED), done
                assert torch.equal(X.gather(1, autotopk.topk_indices(X, K).long()), EXPECTED), done
            explanation = autotopk.explain(X, K)
        steps.add(explanation.choice.step)
        told = [str(one.message) for one in caught]
        assert len(told) <= 2, (done, told)  # of the file, and that nothing was tuned
        for text in [*told, *str(explanation).splitlines()]:
            assert len(text) < 2000, done
            assert text.isprintable(), done
    return steps
