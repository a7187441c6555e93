"""torch's own samples of topk under `patch()`: every dtype, on the CPU and on a GPU; each sample is a subtest."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import autotopk
from tests.runtime.conftest import Planted
from tests.runtime.same import outcome, unwarned

samples = pytest.importorskip("torch.testing._internal.common_methods_invocations", exc_type=ImportError)

pytestmark = [unwarned, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")]

[OPINFO] = [op for op in samples.op_db if op.name == "topk"]
DTYPES = sorted(OPINFO.supported_dtypes("cpu"), key=str)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

TopK = Callable[..., Any]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Patched; a CPU's torch.topk is what a planted strategy makes of it."""
    if request.param == "cpu":
        request.getfixturevalue("planted")
    with autotopk.patch(request.param):
        yield request.param


def of_sample(topk: TopK, sample: Any) -> Any:
    return topk(sample.input, *sample.args, **sample.kwargs)


def check(sample: Any, found: Any) -> None:
    """Values as sorting has them; indices at which they are, each once."""
    x, values, indices = sample.input.detach(), found[0].detach(), found[1]
    k, dim, largest = (*sample.args, *(-1, True)[max(0, len(sample.args) - 1) :])[:3]
    dim, largest = sample.kwargs.get("dim", dim), sample.kwargs.get("largest", largest)
    if x.dim() == 0:
        assert torch.equal(values, x)
        return
    wanted = torch.sort(x, dim=dim, descending=largest).values.narrow(dim, 0, k)
    ordered = values.sort(dim=dim, descending=largest).values
    torch.testing.assert_close(ordered, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(x.gather(dim, indices).nan_to_num(1.5), values.nan_to_num(1.5))
    in_order = indices.sort(dim=dim).values
    assert not in_order.diff(dim=dim).eq(0).any()


@pytest.mark.parametrize("kind", ["sample", "reference"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_and_indices(kind: str, dtype: torch.dtype, device: str, subtests: pytest.Subtests) -> None:
    if dtype not in OPINFO.supported_dtypes(device):
        pytest.skip(f"torch.topk takes no {dtype} on {device}")
    inputs = OPINFO.sample_inputs if kind == "sample" else OPINFO.reference_inputs
    for sample in inputs(device, dtype, requires_grad=False):
        with subtests.test(shape=tuple(sample.input.shape), args=sample.args, kwargs=sample.kwargs):
            check(sample, of_sample(torch.topk, sample))
            check(sample, of_sample(autotopk.topk, sample))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_noncontiguous_and_out(dtype: torch.dtype, device: str, subtests: pytest.Subtests) -> None:
    for sample in OPINFO.sample_inputs(device, dtype, requires_grad=False):
        strided = sample.noncontiguous()
        with subtests.test(shape=tuple(sample.input.shape), args=sample.args, kwargs=sample.kwargs):
            wanted = of_sample(torch.topk, sample)
            check(strided, of_sample(torch.topk, strided))
            for size in (wanted[0].shape, (0,)):
                out = torch.empty(size, dtype=dtype, device=device), torch.empty(size, dtype=torch.int64, device=device)
                given = torch.topk(sample.input, *sample.args, **sample.kwargs, out=out)
                assert given[0] is out[0]
                check(sample, out)
            spread = tuple(
                torch.empty_strided(one.shape, [2 * s for s in one.stride()], dtype=one.dtype, device=device)
                for one in wanted
            )
            torch.topk(sample.input, *sample.args, **sample.kwargs, out=spread)
            check(sample, spread)


def refused(device: str) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """OpInfo has no errors of topk: what is out of range, of another type, or no fit for the outputs."""
    x = torch.arange(55.0, device=device).reshape(5, 11)
    for arguments in ((12,), (-1,), (3, 2), (3, -3), (2.0,), (True,), (None,), ("3",), (3, 0, 1.5), (6, 0)):
        yield (x, *arguments), {}
    yield (x.to(torch.complex64), 2), {}
    yield (x > 3, 2), {}
    yield (x.sum(), 2), {}
    yield (x[0], 3, 1), {}
    values, indices = torch.empty(5, 3, device=device), torch.empty(5, 3, dtype=torch.int64, device=device)
    for out in (
        (values.double(), indices),
        (values, indices.int()),
        (values,),
        (values, values),
        (x[:, :3], indices.cpu()),
    ):
        yield (x.clone().requires_grad_(out[0] is values), 3), {"out": out}


@pytest.mark.parametrize("on", DEVICES)
def test_errors(on: str, request: pytest.FixtureRequest, subtests: pytest.Subtests) -> None:
    """In torch's own words."""
    if on == "cpu":
        request.getfixturevalue("planted")
    before = [outcome(torch.topk, *arguments, **named) for arguments, named in refused(on)]
    with autotopk.patch(on):
        for (arguments, named), wanted in zip(refused(on), before, strict=True):
            with subtests.test(arguments=str(arguments[1:]), out=str(named)[:60]):
                assert outcome(torch.topk, *arguments, **named) == wanted
                assert outcome(autotopk.topk, *arguments, **named) == wanted


def values_of(topk: TopK, sample: Any) -> Callable[[Tensor], Tensor]:
    def values(x: Tensor) -> Tensor:
        found: Tensor = topk(x, *sample.args, **sample.kwargs)[0]
        return found

    return values


@pytest.mark.parametrize("order", ["first", "second"])
@pytest.mark.parametrize("topk", [torch.topk, autotopk.topk], ids=["patched", "ours"])
def test_derivatives(topk: TopK, order: str, device: str, subtests: pytest.Subtests) -> None:
    """Backward and forward, also of batches of tangents."""
    for sample in OPINFO.sample_inputs(device, torch.float64, requires_grad=True):
        with subtests.test(shape=tuple(sample.input.shape), args=sample.args, kwargs=sample.kwargs):
            values = values_of(topk, sample)
            if order == "first":
                assert torch.autograd.gradcheck(values, sample.input, check_forward_ad=True, check_batched_grad=True)
            else:
                assert torch.autograd.gradgradcheck(values, sample.input, check_fwd_over_rev=True)


@pytest.mark.parametrize("topk", [torch.topk, autotopk.topk], ids=["patched", "ours"])
def test_vmap(topk: TopK, device: str, subtests: pytest.Subtests) -> None:
    for sample in OPINFO.sample_inputs(device, torch.float32, requires_grad=False):
        with subtests.test(shape=tuple(sample.input.shape), args=sample.args, kwargs=sample.kwargs):
            batch = torch.stack([sample.input, sample.input.flip(-1) if sample.input.dim() else sample.input])
            found = torch.vmap(lambda x, sample=sample: tuple(topk(x, *sample.args, **sample.kwargs)))(batch)
            for at, x in enumerate(batch):
                check(type(sample)(x, args=sample.args, kwargs=sample.kwargs), (found[0][at], found[1][at]))


@pytest.mark.parametrize("topk", [torch.topk, autotopk.topk], ids=["patched", "ours"])
def test_compiled_and_exported(topk: TopK, device: str, subtests: pytest.Subtests) -> None:
    for sample in OPINFO.sample_inputs(device, torch.float32, requires_grad=False):

        class Model(torch.nn.Module):
            def forward(self, x: Tensor, sample: Any = sample) -> tuple[Tensor, Tensor]:
                found = topk(x, *sample.args, **sample.kwargs)
                return found[0], found[1]

        with subtests.test(shape=tuple(sample.input.shape), args=sample.args, kwargs=sample.kwargs):
            torch.compiler.reset()
            check(sample, torch.compile(Model(), fullgraph=True, dynamic=False)(sample.input))
            check(sample, torch.export.export(Model(), (sample.input,)).module()(sample.input))


def test_ours_answers(planted: Planted) -> None:
    """Else nothing here would test it."""
    with autotopk.patch("cpu"):
        for sample in OPINFO.sample_inputs("cpu", torch.float32, requires_grad=False):
            of_sample(torch.topk, sample)
    assert planted.answers > 5


@pytest.mark.parametrize("topk", [torch.topk, autotopk.topk], ids=["patched", "ours"])
@pytest.mark.parametrize(
    ("shape", "dim"), [((4, 5), -2), ((4, 5), 1), ((4, 5, 6), -3), ((4, 5, 6), 2), ((4,), -2), ((4,), 1)]
)
def test_vmap_refuses_the_batch_dimension(topk: TopK, shape: tuple[int, ...], dim: int, planted: Planted) -> None:
    with autotopk.patch("cpu"), pytest.raises(IndexError, match=f"Dimension out of range .* got {dim}"):
        torch.vmap(lambda x: tuple(topk(x, 1, dim)))(torch.zeros(shape))
