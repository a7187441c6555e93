"""Packages for a GPU, run without Python, answer as eager torch.topk does, whoever serves them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from autotopk import export
from autotopk.oracle.reference import problems_with
from tests.export.models import exported, package, run

pytestmark = [pytest.mark.gpu, pytest.mark.requires("c++"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is shipped."""
    monkeypatch.delenv("AUTOTOPK_SHIPPED")
    monkeypatch.delenv("AUTOTOPK_PACKS")
    autotopk.reload()


def odd(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Ties, NaNs and infinities among others."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    if not dtype.is_floating_point:
        return (x * 50).to(dtype).cuda()
    flat = x.view(-1)
    if len(flat):
        at = torch.randint(len(flat), (7, 1 + len(flat) // 40), generator=generator)
        for places, value in zip(at, (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.5, 1.5), strict=True):
            flat[places] = value
    return x.to(dtype).cuda()


CALLS: list[tuple[tuple[int, ...], torch.dtype, dict[str, Any]]] = [
    ((64, 128), torch.float32, {"k": 5}),
    ((64, 128), torch.float32, {"k": 5, "largest": False, "sorted": False}),
    ((64, 128), torch.float32, {"k": 7, "dim": 0}),
    ((100, 1001), torch.float16, {"k": 8}),
    ((33, 512), torch.bfloat16, {"k": 20, "largest": False}),
    ((3, 50, 20), torch.float32, {"k": 4, "dim": 1}),
    ((3, 5000, 4), torch.float32, {"k": 9, "dim": -2}),
    ((2, 3, 40), torch.float32, {"k": 40}),
    ((77,), torch.float32, {"k": 1}),
    ((9, 300), torch.int64, {"k": 11}),
    ((9, 300), torch.uint8, {"k": 3, "largest": False}),
    ((5, 70), torch.float64, {"k": 70}),
    ((64, 4096), torch.float32, {"k": 64}),
    ((64, 32768), torch.float32, {"k": 2048}),
    ((1, 1_000_000), torch.float32, {"k": 100}),
    ((2, 300_000), torch.bfloat16, {"k": 50, "sorted": False}),
    ((4, 8), torch.float32, {"k": 0}),
    ((0, 8), torch.float32, {"k": 2}),
    ((), torch.float32, {"k": 1}),
]


def answers(*inputs: Tensor) -> list[Tensor]:
    """All of `CALLS`, of their inputs; the last two are of `autotopk`'s operators."""
    found = [one for x, (*_, given) in zip(inputs, CALLS, strict=True) for one in torch.topk(x, **given)]
    doubled = torch.topk(inputs[0] * 2, 3).values
    return [*found, doubled, *autotopk.topk(inputs[0], 6), autotopk.topk_indices(inputs[0], 6, 0)]


@pytest.mark.parametrize("way", ["library", "dispatched", "triton"])
def test_answers_of_a_package(way: str, tmp_path: Path) -> None:
    inputs = [odd(*shape, dtype=dtype, seed=at) for at, (shape, dtype, _) in enumerate(CALLS)]
    program = exported(answers, *inputs)
    found = export.replace_topk(program, "triton" if way == "triton" else "library", always=way == "triton")
    print(found)
    configs = {} if way == "dispatched" else dict(found.inductor_configs)
    model = package(program, tmp_path / "model.pt2", **configs)
    plans = [found.write_plans(tmp_path / "model.plans")] if found.plans else []
    ran = run([(model, inputs)], tmp_path, plans=plans, device="cuda", rounds=1)
    assert "autotopk" not in ran.told
    [outputs] = ran.outputs
    wrong = {
        f"{way} {tuple(x.shape)} {given}": told
        for at, (x, (*_, given)) in enumerate(zip(inputs, CALLS, strict=True))
        if (told := problems_with(x, values=outputs[2 * at], indices=outputs[2 * at + 1], **given))
    }
    assert wrong == {}
    doubled, values, indices, alone = outputs[2 * len(CALLS) :]
    assert torch.equal(doubled.nan_to_num(), torch.topk(inputs[0] * 2, 3).values.nan_to_num())
    assert problems_with(inputs[0], values, indices, 6) == []
    assert alone.dtype is torch.int32
    assert problems_with(inputs[0], inputs[0].gather(0, alone.long()), alone.long(), 6, dim=0) == []
    served = [site for site in found.sites if site.by]
    assert len(served) >= (15 if way == "triton" else 17), found


@pytest.mark.parametrize("way", ["library", "triton"])
def test_sizes_that_the_model_does_not_know(way: export.Way, tmp_path: Path) -> None:
    rows, cols = torch.export.Dim("rows", max=5000), torch.export.Dim("cols", min=8, max=2000)
    program = exported(
        lambda x: tuple(torch.topk(x, 8)), torch.randn(6, 100, device="cuda"), dynamic=[{0: rows, 1: cols}]
    )
    found = export.replace_topk(program, way, always=True)
    assert found.sites[0].by, found
    model = package(program, tmp_path / "model.pt2", **found.inductor_configs)
    plans = [found.write_plans(tmp_path / "model.plans")] if found.plans else []
    inputs = [odd(*shape) for shape in ((2, 8), (6, 100), (1, 1999), (5000, 128), (999, 1001), (0, 77), (300, 2000))]
    ran = run([(model, [x]) for x in inputs], tmp_path, plans=plans, device="cuda")
    for x, (values, indices) in zip(inputs, ran.outputs, strict=True):
        assert problems_with(x, values, indices, 8) == [], tuple(x.shape)


def test_from_python(tmp_path: Path) -> None:
    """The same package and library in a process with Python, where torch.topk's operators are ours as well."""
    x = odd(64, 2000)
    program = exported(lambda x: tuple(torch.topk(x[:, 1:1001], 30)), x)
    found = export.replace_topk(program)
    model = package(program, tmp_path / "model.pt2", **found.inductor_configs)
    export.load(found.write_plans(tmp_path / "model.plans"))
    loaded = torch._inductor.aoti_load_package(str(model))
    for shifted in (x, odd(64, 2000, seed=1)):
        values, indices = loaded(shifted)
        assert problems_with(shifted[:, 1:1001].contiguous(), values, indices, 30) == []
