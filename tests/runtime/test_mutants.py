"""Whatever a winners file holds, calls are answered as torch.topk answers them, at once."""

import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

import autotopk
from autotopk.device import H100
from autotopk.tuning_db import artifact
from tests.runtime.same import within
from tests.runtime.winners import CHUNKED, SORT, winner
from tests.tuning_db.mutants import OF_WINNERS, mutate

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


ALL = [pytest.param(range(at, at + 500), marks=pytest.mark.slow) for at in range(0, 3000, 500)]


@pytest.mark.parametrize("seeds", [range(150), *ALL], ids=str)
def test_mutated_winners(seeds: range, good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mutated.sqlite"
    monkeypatch.setenv("AUTOTOPK_DB", str(path))
    steps: set[str] = set()
    for seed in seeds:
        done = mutate(good, path, seed, OF_WINNERS)
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
    assert {"exact", "bucket", "torch"} <= steps  # some changes cost all, some a row, some nothing
