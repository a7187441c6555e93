"""Results have the very strides of torch.topk's, so that they can be viewed in every way that those can."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import autotopk
from autotopk.candidate import knobs_json
from autotopk.device import Device
from autotopk.problem import Problem
from autotopk.program import HostProgram
from autotopk.runtime.views import View, even_row_stride, fresh_strides
from autotopk.strategies.torch_fallback import strategy as fallback
from tests.runtime.conftest import Planted, PlantedConfig
from tests.runtime.same import unwarned

pytestmark = unwarned

anything = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Strided(Planted):
    """Returns what torch.sort leaves: neither contiguous nor, for one row or one column, with usual strides."""

    def program(self, config: PlantedConfig, problem: Problem, device: Device) -> HostProgram:
        def run(x: Tensor) -> tuple[Tensor, Tensor]:
            self.answers += 1
            values, indices = torch.sort(x.t(), dim=0, descending=problem.largest)
            return values[: problem.k].t(), indices[: problem.k].t()

        return HostProgram(run)


@pytest.fixture(params=[Planted, Strided])
def strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Planted:
    planted: Planted = request.getfixturevalue("planted")
    monkeypatch.setattr(planted, "program", lambda *asked: request.param.program(planted, *asked))
    return planted


@st.composite
def layouts(draw: st.DrawFn) -> Tensor:
    """Contiguous, permuted, sliced, stepped, expanded; with dimensions of size 1 among them."""
    shape = draw(st.lists(st.sampled_from([1, 1, 2, 3, 6]), min_size=1, max_size=4))
    x = torch.randn([2 * size for size in shape])
    x = x[tuple(slice(draw(st.integers(0, 1)), None, draw(st.integers(1, 2))) for _ in shape)]
    x = x[tuple(slice(size) for size in shape)]
    x = x.permute(draw(st.permutations(range(len(shape)))))
    if draw(st.booleans()):
        x = x.contiguous()
    if draw(st.booleans()):
        dim = draw(st.integers(0, x.dim()))
        x = x.unsqueeze(dim).expand(*x.shape[:dim], draw(st.integers(1, 3)), *x.shape[dim:])
    if x.dim() == 4 and draw(st.booleans()):
        x = x.contiguous(memory_format=torch.channels_last)
    return x


@anything
@given(x=layouts(), data=st.data())
def test_strides_of_every_layout(x: Tensor, data: st.DataObject, strategy: Planted) -> None:
    dim = data.draw(st.integers(-x.dim(), x.dim() - 1))
    k = data.draw(st.sampled_from(sorted({1, x.shape[dim], max(1, x.shape[dim] // 2)})))
    before, order = strategy.answers, data.draw(st.booleans())
    ours, theirs = autotopk.topk(x, k, dim, order), torch.topk(x, k, dim, order)
    assert strategy.answers == before + 1
    for own, their in zip(ours, theirs, strict=True):
        assert own.shape == their.shape
        assert own.stride() == their.stride()
        assert torch.equal(own.view(torch.uint8), own.contiguous().view(torch.uint8))
    assert torch.equal(ours.values, theirs.values)
    alone = autotopk.topk_indices(x, k, dim, order)
    assert alone.stride() == theirs.indices.stride()


@anything
@given(size=st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_strides_of_what_kernels_write(size: list[int]) -> None:
    assert fresh_strides(size) == torch.empty(size).stride()


@anything
@given(x=layouts(), data=st.data())
def test_sizes_of_results(x: Tensor, data: st.DataObject) -> None:
    """Also of rows side by side, which only kernels of a GPU read in place."""
    dim = data.draw(st.integers(-x.dim(), x.dim() - 1))
    view = View.of(x, 1, dim, True, True)
    assert view is not None
    for way in view.ways(x):
        assert way.result_size == torch.topk(x, 1, dim).values.shape


@anything
@given(x=layouts(), data=st.data())
def test_rows_are_as_far_apart_as_strides_say(x: Tensor, data: st.DataObject) -> None:
    dim = data.draw(st.integers(-x.dim(), x.dim() - 1))
    view, stride = View.of(x, 1, dim, True, True), even_row_stride(x.movedim(dim, -1))
    assert view is not None
    assert view.copied == (stride is None)
    assert view.problem.layout.row_stride == (x.shape[dim] if stride is None else stride)


def test_one_column_along_the_first_dimension(planted: Planted) -> None:
    result = autotopk.topk(torch.randn(1, 5).t(), 3, 0)
    assert result.values.stride() == (1, 1)
    assert result.values.view(torch.uint8).shape == (3, 4)


@pytest.mark.parametrize("config", [{"method": "sort", "chunk": 0}, {"method": "chunked", "chunk": 512}], ids=str)
def test_strides_of_torchs_operators(
    config: dict[str, str | int], planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = fallback.parse_config(knobs_json(config))
    monkeypatch.setattr(planted, "program", lambda _, problem, device: fallback.program(parsed, problem, device))
    for x, dim in ((torch.randn(2, 1, 2048), -1), (torch.randn(2048, 1), 0), (torch.randn(2, 2048, 1, 3), 1)):
        for own, their in zip(autotopk.topk(x, 7, dim), torch.topk(x, 7, dim), strict=True):
            assert own.stride() == their.stride()
            assert torch.equal(own, their)
