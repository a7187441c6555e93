"""The named inputs are what their names say."""

import pytest
import torch

from autotopk.oracle import inputs

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
EVERY = [(name, dtype) for dtype in FLOATS + INTEGERS for name in inputs.names_for(dtype)]


def different(x: torch.Tensor) -> int:
    return len(set(x.flatten().tolist()))


@pytest.mark.parametrize(("name", "dtype"), EVERY, ids=lambda value: str(value).removeprefix("torch."))
@pytest.mark.parametrize(("rows", "cols", "k"), [(1, 1, 1), (3, 7, 7), (5, 300, 10), (2, 9001, 64)])
def test_shape_and_repeatability(name: str, dtype: torch.dtype, rows: int, cols: int, k: int) -> None:
    x = inputs.make(name, rows, cols, k, dtype, "cpu", seed=4)
    assert x.shape == (rows, cols)
    assert x.dtype == dtype
    assert x.is_contiguous()
    again = inputs.make(name, rows, cols, k, dtype, "cpu", seed=4)
    assert torch.equal(x.view(torch.uint8), again.view(torch.uint8))
    assert x.isnan().any().item() <= ("nan" in name)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_meaning(dtype: torch.dtype) -> None:
    def make(name: str) -> torch.Tensor:
        return inputs.make(name, 6, 400, 8, dtype, "cpu")

    assert (make("all_equal") == 1).all()
    assert ((make("all_but_k_minus_1_equal") == 2).sum(1) == 7).all()
    assert different(make("narrow")) <= 16
    near = make("near_ties").double() if dtype.is_floating_point else make("near_ties").to(torch.int64)
    assert ((near[0, ::2] - near[0, 1::2]).abs() <= near[0, ::2].abs() * 2.0**-6 + 8).all()
    assert ((near[1, :200] - near[1, 200:]).abs() <= near[1, :200].abs() * 2.0**-6 + 8).all()
    assert different(near) > 20
    top = make("scales").sort(1, descending=True).values
    assert (top[:, 0] > top[:, 1]).all()
    assert (top[:, 1] > top[:, 2]).all()
    assert different(top[:, 2:]) == 4
    assert (make("ascending").diff() >= 0).all()
    assert torch.equal(make("descending"), make("ascending").flip(1))
    assert different(make("ten_values")) == 10
    ties = make("ties")
    kth = ties.topk(8).values[:, -1:]
    assert ((ties >= kth).sum(1) > 8).all()
    lowest = float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min
    padded = make("minus_inf_padding")
    assert (padded[0] == lowest).all()
    assert (padded[:, -1] == lowest).all()
    masked = make("half_masked") == lowest
    half = masked.shape[1] // 2
    assert masked[::2, half:].all()
    assert masked[1::2, :half].all()
    assert masked[::2, :half].float().mean() < 0.1
    peaks, holes = make("sampler_peaks"), make("sampler_holes")
    assert (peaks[:, ::2].min() > peaks[:, 1::2].max()).item()
    assert (holes[:, ::2].max() < holes[:, 1::2].min()).item()


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_hashed_places(dtype: torch.dtype) -> None:
    """One load in each of 128 stretches where k is large; else in each of 1,024, and four in each of 256."""
    load = 16 // dtype.itemsize
    cols = 1024 * 5 * load
    for name in ("hashed_peaks", "hashed_holes"):
        for k in (8, cols // load):
            x = inputs.make(name, 2, cols, k, dtype, "cpu").double()
            sampled = x > 93 if name == "hashed_peaks" else x < 30
            if dtype.is_floating_point:
                sampled = x.abs() > 30
            loads = sampled.view(2, -1, load)
            assert torch.equal(loads.any(2), loads.all(2))
            few, many = loads.any(2).view(2, 128, 40).sum(2), loads.any(2).view(2, 1024, 5).sum(2)
            assert (few == 1).all() if k > 8 else (many >= 1).all()
            assert k > 8 or 1024 + 512 < many[0].sum() <= 2048
            assert torch.equal(loads[0], loads[1])
            assert len(set(loads[0].any(1).view(128, 40).int().argmax(1).tolist())) > 3, "at no stride"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_meaning_of_floats(dtype: torch.dtype) -> None:
    def make(name: str) -> torch.Tensor:
        return inputs.make(name, 6, 400, 8, dtype, "cpu")

    infinite = make("infinities").isinf()
    assert infinite.any(1).all()
    assert not infinite.all(1).any()
    nan = make("nan").isnan()
    assert nan.any(1).all()
    assert not nan.all(1).any()
    all_nan = make("all_nan")
    assert all_nan.isnan().all()
    assert set(all_nan.signbit().flatten().tolist()) == {True, False}
    zeros = make("signed_zeros")
    assert set(zeros[zeros == 0].signbit().tolist()) == {True, False}
    denormals = make("denormals")
    assert (denormals != 0).all()
    assert (denormals.abs().double() < torch.finfo(dtype).smallest_normal).all()


def test_integers_that_doubles_cannot_tell_apart() -> None:
    x = inputs.make("extremes", 8, 400, 8, torch.int64, "cpu")
    assert {(1 << 53), (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)} <= set(x.flatten().tolist())


def test_seed_matters() -> None:
    first, second = (inputs.make("random", 2, 50, 3, torch.float32, "cpu", seed) for seed in (0, 1))
    assert not torch.equal(first, second)


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"input 'nan' is not one of random, .*torch\.int32"):
        inputs.make("nan", 1, 1, 1, torch.int32, "cpu")


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    for name, dtype in EVERY:
        assert inputs.make(name, 2, 300, 5, dtype, "cuda").is_cuda
