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
    peaks, holes = make("sampler_peaks"), make("sampler_holes")
    assert (peaks[:, ::2].min() > peaks[:, 1::2].max()).item()
    assert (holes[:, ::2].max() < holes[:, 1::2].min()).item()


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("shift", [0, 1])
def test_lines_that_a_sampler_looks_at(dtype: torch.dtype, shift: int) -> None:
    """One line of 128 bytes in each of 128 stretches; a row that begins elsewhere has them where its loads are."""
    line, load = 128 // dtype.itemsize, 16 // dtype.itemsize
    cols, rows = 128 * 5 * line + shift * load, 3
    for name in ("line_peaks", "line_holes"):
        x = inputs.make(name, rows, cols, 8, dtype, "cpu")
        sampled = x > 64 + 32 if name == "line_peaks" else x < 30
        if dtype.is_floating_point:
            sampled = x > 30 if name == "line_peaks" else x < -30
        if cols < inputs.STRETCH * 2:
            assert (sampled.sum(1) == 128 * line).all()
        for row in range(rows):
            looked = sampled[row, : 128 * 5 * line].view(128, 5, line)
            assert (looked.any(2).sum(1) >= 1).all()
            assert torch.equal(looked.any(2), looked.all(2))
    places = inputs.make("line_peaks", 1, cols, 8, dtype, "cpu")[0, : 128 * 5 * line].view(128, 5, line)[..., 0]
    assert len(set(places.float().argmax(1).tolist())) == 5, "at no stride"


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
