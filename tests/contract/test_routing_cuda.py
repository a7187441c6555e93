"""Kernels that route, and `topk_softmax`, answer right on the GPU."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import autotopk
from autotopk import registry
from autotopk.compilers.triton import TritonSource
from autotopk.device import H100, cuda_device
from autotopk.kernel import Kernel
from autotopk.oracle import inputs
from autotopk.oracle.routing import problems_with_routes
from autotopk.problem import Problem
from autotopk.routing import Routing
from autotopk.runtime import launch
from autotopk.strategies.lane_merge import LaneConfig
from tests.compilers.shipped import shipped
from tests.contract.routes import SCALE, Route, routes

GPU = cuda_device(0) if torch.cuda.is_available() else H100

ROUTERS = [
    (1000, 256, 8, "softmax"),
    (1000, 128, 4, "softmax:raw"),
    (1000, 512, 10, "softmax"),
    (1000, 256, 8, "sigmoid+bias:4of8"),
    (1000, 384, 8, "sigmoid+bias"),
    (1000, 896, 16, "sqrtsoftplus+bias"),
    (1000, 160, 6, "softmax:3of8"),
    (1000, 250, 7, "softmax+bias:raw"),
]


@pytest.mark.gpu
@pytest.mark.parametrize("route", list(routes(9)), ids=str)
def test_every_family_answers_right(route: Route) -> None:
    x = route.logits("cuda")
    problem, bias = route.problem(x), route.bias("cuda")
    able = [one for one in registry.available() if not one.reasons_unable(problem, GPU)]
    assert able
    for strategy in able:
        for config in list(strategy.shortlist(problem, GPU))[:2]:
            run = launch.bind(strategy.program(config, problem, GPU), problem, GPU)
            if strategy.name != "torch_fallback":
                assert route.problems_with(x, run(x, bias, SCALE)) == [], config


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "experts", "k", "rule"), ROUTERS)
def test_topk_softmax_is_right_on_every_input(
    rows: int, experts: int, k: int, rule: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTOPK_BUILD", "wait")
    routing = Routing.parse(rule)
    bias = inputs.make_bias(experts, "cuda") if routing.biased else None
    given: dict[str, Any] = {"scoring": routing.scoring, "renormalize": routing.renormalize, "scale": SCALE}
    given |= {"n_group": routing.n_group, "topk_group": routing.topk_group, "bias": bias}
    for name in inputs.names_for(dtype):
        x = inputs.make(name, rows, experts, k, dtype, "cuda")
        for index_dtype in (torch.int32, torch.int64):
            weights, indices = autotopk.topk_softmax(x, k, index_dtype=index_dtype, **given)
            assert indices.dtype == index_dtype
            assert problems_with_routes(x, bias, weights, indices, k, routing, SCALE) == [], name


@pytest.mark.gpu
def test_a_captured_call_replays_with_new_data() -> None:
    x, bias = torch.randn(64, 256, device="cuda"), torch.randn(256, device="cuda")
    given: dict[str, Any] = {"bias": bias, "scoring": "sigmoid", "n_group": 8, "topk_group": 4}
    for _ in range(2):
        autotopk.topk_softmax(x, 8, **given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weights, indices = autotopk.topk_softmax(x, 8, **given)
    for seed in range(3):
        x.normal_(generator=torch.Generator("cuda").manual_seed(seed))
        bias.normal_(generator=torch.Generator("cuda").manual_seed(-1 - seed + 2**32))
        graph.replay()
        rule = Routing("sigmoid", True, True, 8, 4)
        assert problems_with_routes(x, bias, weights, indices, 8, rule) == []


@pytest.mark.compile
@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (LaneConfig(32, 2, 8, False), "float32"),
        pytest.param(LaneConfig(32, 1, 16, False), "bfloat16", marks=pytest.mark.slow),
        pytest.param(LaneConfig(32, 1, 16, False), "float32", marks=pytest.mark.slow),
    ],
)
def test_no_reduction_is_predicated(config: LaneConfig, dtype: str, tmp_path: Path) -> None:
    """Ptxas 12.8 predicates those of short branches wrongly; the source has none there."""
    problem = Problem.contiguous(8192, 512, 10, dtype, routing=Routing())
    source = registry.get("lane_route").program(config, problem, H100).sources[0]
    assert isinstance(source, TritonSource)
    check_reductions(source.compile(90), tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_reduction_of_what_is_shipped_is_predicated(dtype: str, tmp_path: Path) -> None:
    problem, strategy = Problem.contiguous(8192, 512, 10, dtype, routing=Routing()), registry.get("lane_route")
    check_reductions(
        shipped(strategy.program(strategy.ladder(problem, H100)[0], problem, H100).sources[0], 90), tmp_path
    )


def check_reductions(kernel: Kernel, folder: Path) -> None:
    """In the machine code."""
    triton = pytest.importorskip("triton")
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        pytest.skip("this Triton brings no cuobjdump")
    file = folder / "kernel.cubin"
    file.write_bytes(kernel.cubin)
    code = subprocess.run([tool, "-sass", file], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"REDUX", code)
    assert re.findall(r"@!?U?P\d+ +(?:REDUX|SHFL)[^;]*;", code) == []
