"""What becomes of the top-k of an exported program, with tensors that are on no GPU but say so."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram

import autotopk
from autotopk import export
from autotopk.device import H100
from autotopk.errors import SelectionError
from autotopk.export.calls import calls
from tests.export.models import exported

pytestmark = [pytest.mark.requires("c++"), pytest.mark.filterwarnings("ignore")]

aten, ours = torch.ops.aten, torch.ops.autotopk


@pytest.fixture(autouse=True)
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernels that are shipped; nothing is compiled."""
    monkeypatch.delenv("AUTOTOPK_PACKS")
    autotopk.reload()


def program_of(
    function: Callable[..., Any],
    *shape: int,
    dtype: torch.dtype = torch.float32,
    strides: tuple[int, ...] | None = None,
    dynamic: dict[int, Any] | None = None,
) -> ExportedProgram:
    """Of one tensor that says it is on a GPU."""
    with FakeTensorMode():
        x = torch.empty_strided(shape, strides or Tensor.stride(torch.empty(shape)), dtype=dtype, device="cuda")
    return exported(function, x, dynamic=None if dynamic is None else [dynamic])


def targets(program: ExportedProgram) -> list[str]:
    return [node.target.__name__ for node in program.graph.nodes if node.op == "call_function"]


def results(program: ExportedProgram) -> list[tuple[Any, ...]]:
    """Shape, strides and dtype of every output."""
    [output] = program.graph.find_nodes(op="output")
    found = [node.meta["val"] for node in output.args[0]]
    return [(tuple(one.shape), one.stride(), one.dtype) for one in found]


SERVED: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...], str]] = {
    "positional": (lambda x: torch.topk(x, 5, 1, True, True), (64, 128), "lane_merge"),
    "keywords": (lambda x: torch.topk(x, k=5, sorted=False, dim=-1, largest=False), (64, 128), "lane_merge"),
    "first dimension": (lambda x: torch.topk(x, 5, 0), (64, 128), "lane_merge"),
    "middle dimension": (lambda x: x.topk(5, dim=-2), (3, 64, 10), "lane_merge"),
    "long middle dimension": (lambda x: x.topk(5, dim=1), (3, 2000, 10), ""),
    "indices alone": (lambda x: torch.topk(x, 3).indices, (64, 128), "lane_merge"),
    "ours": (lambda x: autotopk.topk(x, 3), (64, 128), "lane_merge"),
    "our indices": (lambda x: autotopk.topk_indices(x, 3, 0), (64, 128), "lane_merge"),
    "three": (lambda x: [torch.topk(x, k).values for k in (1, 2, 3)], (8, 40), "lane_merge"),
}


@pytest.mark.parametrize("way", ["triton", "library"])
@pytest.mark.parametrize("name", SERVED)
def test_a_call_is_replaced_whatever_its_form(name: str, way: export.Way) -> None:
    function, shape, family = SERVED[name]
    program = program_of(function, *shape)
    before = results(program)
    found = export.replace_topk(program, way, device=H100)
    assert results(program) == before
    assert all(site.by.startswith(family) and not site.reason for site in found.sites), found
    operator = "embedded_topk.default" if way == "triton" else "aot_topk.default"
    assert targets(program).count(operator) == (3 if name == "three" else 1)
    assert not {"topk.default", "topk_indices.default"} & {*targets(program)}
    names = {node.name for node in program.graph.nodes}
    assert {one.arg.name for one in program.graph_signature.output_specs} <= names
    assert bool(found.plans) == (way == "library")
    assert ("transpose.int" in targets(program)) == (name == "long middle dimension")


LEFT: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...], dict[str, Any], str]] = {
    "k of a size": (lambda x: torch.topk(x, x.shape[0]), (64, 128), {"dynamic": {0: Dim("rows", max=100)}}, "k is not"),
    "no dimension": (lambda x: torch.topk(x, 1), (), {}, "no dimension"),
    "other dtype": (lambda x: torch.topk(x, 1), (4, 9), {"dtype": torch.uint16}, "uint16 is not one of"),
    "ours, too": (lambda x: autotopk.topk(x, 1), (), {}, "no dimension"),
}


@pytest.mark.parametrize("way", ["triton", "library"])
@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_becomes_torchs_and_says_why(name: str, way: export.Way) -> None:
    function, shape, arguments, reason = LEFT[name]
    program = program_of(function, *shape, **arguments)
    found = export.replace_topk(program, way, device=H100)
    assert [site.by for site in found.sites] == [""]
    assert reason in found.sites[0].reason
    called = {node.target for node in program.graph.nodes if node.op == "call_function"}
    assert aten.topk.default in called
    assert not {ours.topk.default, ours.aot_topk.default} & called


def test_long_rows_go_to_the_library_alone() -> None:
    for way, family in (("triton", ""), ("library", "cluster_lists")):
        found = export.replace_topk(program_of(lambda x: torch.topk(x, 500), 4, 100_000), way, device=H100)  # type: ignore[arg-type]
        assert family in found.sites[0].by
        assert bool(found.sites[0].by) == bool(family)


def test_nothing_to_find_needs_no_kernel() -> None:
    for shape, k in (((4, 8), 0), ((0, 8), 2)):
        program = program_of(lambda x, k=k: torch.topk(x, k), *shape)
        assert export.replace_topk(program, "triton", device=H100).sites[0].by == "nothing to find"
        assert "embedded_topk.default" in targets(program)
        program = program_of(lambda x, k=k: torch.topk(x, k), *shape)
        assert export.replace_topk(program, "library", device=H100).sites[0].reason == "there is nothing to find"


def test_rows_that_are_not_contiguous() -> None:
    """The library reads rows that are evenly apart; others, and all that Triton reads, are copied first."""
    for strides, way, copies in (
        ((256, 1), "library", 0),
        ((256, 1), "triton", 1),
        ((1, 64), "library", 1),
        ((128, 1), "triton", 0),
    ):
        program = program_of(lambda x: torch.topk(x, 5), 64, 128, strides=strides)
        found = export.replace_topk(program, way, device=H100)  # type: ignore[arg-type]
        assert found.sites[0].by
        assert targets(program).count("clone.default") == copies
        assert {plan.asked.row_stride for plan in found.plans} <= {256 if not copies else None}


def test_sizes_that_are_not_known() -> None:
    bounded = {0: Dim("rows", max=4096)}
    for way in ("library", "triton"):
        program = program_of(lambda x: torch.topk(x, 3), 64, 128, dynamic=bounded)
        found = export.replace_topk(program, way, device=H100)
        assert found.sites[0].by
        assert found.sites[0].asked.startswith("[")
    unbounded = program_of(lambda x: torch.topk(x, 3), 64, 128, dynamic={0: Dim("rows")})
    assert "give the Dim a max" in export.replace_topk(unbounded, "triton", device=H100).sites[0].reason
    served = export.replace_topk(unbounded, "library", device=H100)
    assert min(plan.asked.rows.least for plan in served.plans) == 1
    assert max(plan.asked.rows.most or 0 for plan in served.plans) == 1 << 24


def test_a_cpu_is_torchs_unless_it_is_asked_for() -> None:
    x = torch.randn(4, 9)
    assert export.replace_topk(exported(lambda x: tuple(torch.topk(x, 2)), x)).sites[0].reason == "it is on a CPU"
    program = exported(lambda x: tuple(torch.topk(x, 2)), x)
    assert export.replace_topk(program, always=True).sites[0].by
    assert torch.equal(program.module()(x)[1], torch.topk(x, 2).indices)


def test_a_way_that_is_none_is_refused() -> None:
    with pytest.raises(SelectionError, match="way='cuda' is not one of triton, library"):
        export.replace_topk(exported(lambda x: tuple(torch.topk(x, 2)), torch.randn(4, 9)), "cuda")  # type: ignore[arg-type]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("contiguous", [False, True])
def test_rewritten_graphs_answer_the_same(last: bool, contiguous: bool) -> None:
    x = torch.randn(5, 7, 6).transpose(0, 2)

    def function(x: Tensor) -> tuple[Tensor, ...]:
        values, indices = torch.topk(x, 3, dim=1, largest=False)
        return values + 1, indices, autotopk.topk_indices(x, 2, 0)

    program = exported(function, x)
    for call in list(calls(program)):
        call.become(aten.topk.default, call.largest, call.sorted, contiguous=contiguous, last=last)
    found = program.module()(x)
    for one, expected in zip(found, function(x), strict=True):
        assert torch.equal(one, expected)
        assert one.dtype == expected.dtype
        assert one.stride() == expected.stride()


def test_routing_stays_and_is_told_of() -> None:
    program = program_of(lambda x: autotopk.topk_softmax(x, 8), 64, 256)
    found = export.replace_topk(program)
    assert str(found) == "topk_softmax: (64, 256) torch.float32 k=8: autotopk.topk_softmax (its operator needs Python)"
    assert targets(program).count("topk_softmax.default") == 1
