"""`topk_indices` names the elements that `topk` returns, whoever writes the indices."""

import pytest
import torch

import autotopk
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from tests.runtime.conftest import Planted

ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)


def wrong(x: torch.Tensor, indices: torch.Tensor, k: int, dim: int, largest: bool, sorted: bool) -> list[str]:
    """What the oracle says of the elements at the indices."""
    assert indices.dtype == torch.int32
    places = indices.to(torch.int64)
    values = torch.gather(x, dim, places)
    return problems_with(x, values, places.contiguous(), k, dim=dim, largest=largest, sorted=sorted)


@pytest.mark.parametrize("device", ["cpu", ON_GPU])
@pytest.mark.parametrize("sorted", [True, False])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("shape", "k", "dim"),
    [
        ((3, 100), 7, -1),
        ((100, 3), 7, 0),
        ((2, 3, 40), 40, -1),
        ((64, 4096), 128, -1),
        ((1, 140_000), 2000, 1),
        ((9,), 2, 0),
    ],
)
def test_names_the_elements(shape: tuple[int, ...], k: int, dim: int, largest: bool, sorted: bool, device: str) -> None:
    cols = shape[dim]
    rows = torch.Size(shape).numel() // cols
    for name in ("random", "ties", "nan"):
        x = inputs.make(name, rows, cols, k, torch.float32, device).view(*(s for s in shape if s != cols), cols)
        x = x.movedim(-1, dim)
        found = autotopk.topk_indices(x, k, dim, largest, sorted)
        assert not wrong(x, found, k, dim, largest, sorted), name


@pytest.mark.parametrize("device", ["cpu", ON_GPU])
def test_takes_what_topk_takes(device: str) -> None:
    x = torch.randn(4, 50, device=device)
    assert autotopk.topk_indices(x, 0).shape == (4, 0)
    assert autotopk.topk_indices(torch.tensor(1.0, device=device), 1).item() == 0
    weights = x.clone().requires_grad_()
    assert torch.equal(autotopk.topk_indices(weights, 5), autotopk.topk_indices(x, 5))
    with pytest.raises(RuntimeError, match="out of range"):
        autotopk.topk_indices(x, 51)


def test_follows_topk_to_another_strategy(planted: Planted) -> None:
    """One that writes values too is asked for both, and its indices are converted."""
    x = torch.randn(4, 50)
    assert torch.equal(autotopk.topk_indices(x, 5).to(torch.int64), torch.topk(x, 5).indices)
    assert planted.answers == 1


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["block_radix", "cluster_radix"])
def test_kernels_write_indices_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No values are allocated, and converting would take a second allocation."""
    monkeypatch.setenv("AUTOTOPK_STRATEGY", name)
    autotopk.reload()
    x = torch.randn(4, 140_000, device="cuda")
    autotopk.topk_indices(x, 2048)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    found = autotopk.topk_indices(x, 2048)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before + 1
    assert not wrong(x, found, 2048, -1, True, True)
