"""`autotopk.topk_softmax`: what engines' routers answer, derivatives, transforms, compilers, and what it refuses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

import autotopk
from autotopk.device import Device
from autotopk.oracle import inputs
from autotopk.oracle.routing import problems_with_routes
from autotopk.problem import WEIGHTS, Problem
from autotopk.program import HostProgram
from autotopk.routing import SCORINGS, Routing
from autotopk.runtime import explain, routers
from autotopk.strategy import Features, Strategy
from tests.registered import registered
from tests.runtime.same import unwarned

pytestmark = unwarned

OPERATOR = torch.ops.autotopk.topk_softmax.default

RULES: list[tuple[int, int, dict[str, Any]]] = [
    (64, 8, {}),
    (64, 8, {"renormalize": False, "scale": 3.0}),
    (64, 6, {"scoring": "sigmoid", "bias": True, "n_group": 8, "topk_group": 4, "scale": 2.5}),
    (48, 6, {"scoring": "sqrtsoftplus", "bias": True, "scale": 1.5}),
    (60, 6, {"n_group": 6, "topk_group": 2, "renormalize": False}),
    (40, 4, {"scoring": "softmax", "bias": True, "renormalize": False}),
    (16, 3, {"scoring": "sigmoid", "bias": True, "n_group": 16, "topk_group": 5}),
    (9, 9, {"scoring": "sqrtsoftplus", "renormalize": False}),
]
"""Experts, k, and what is asked for."""


def logits(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2


def asked(experts: int, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments, with a bias where one is asked for."""
    bias = torch.randn(experts, generator=torch.Generator().manual_seed(experts)) / 5
    return {name: bias if name == "bias" else value for name, value in given.items()}


def as_engines_do(
    x: Tensor,
    k: int,
    bias: Tensor | None = None,
    scoring: str = "softmax",
    renormalize: bool = True,
    scale: float = 1.0,
    n_group: int = 1,
    topk_group: int = 1,
) -> tuple[Tensor, Tensor]:
    """Scores of all, groups masked out, topk, gather: in the precision of x (tokens, experts), with derivatives."""
    scores = x.sigmoid()
    if scoring != "sigmoid":
        scores = x.softmax(-1) if scoring == "softmax" else softplus(x).sqrt()
    choice = scores if bias is None else scores + bias
    groups = choice.reshape(len(x), n_group, -1)
    best = groups.amax(-1) if bias is None else groups.topk(min(2, groups.shape[-1]), -1)[0].sum(-1)
    kept = torch.zeros_like(best, dtype=torch.bool).scatter_(1, best.topk(topk_group, -1)[1], True)
    masked = groups.masked_fill(~kept.unsqueeze(-1), -torch.inf).reshape(x.shape)
    indices = masked.topk(k, -1)[1]
    weights = scores.gather(-1, indices)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * scale, indices


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("experts", "k", "given"), RULES)
def test_as_engines_do(experts: int, k: int, given: dict[str, Any], dtype: torch.dtype) -> None:
    x, arguments = logits(50, experts).to(dtype), asked(experts, given)
    weights, indices = autotopk.topk_softmax(x, k, **arguments)
    assert (weights.dtype, indices.dtype) == (torch.float32, torch.int64)
    exact: dict[str, Any] = {name: one.double() if isinstance(one, Tensor) else one for name, one in arguments.items()}
    expected, its_indices = as_engines_do(x.double(), k, **exact)
    alike = (indices == its_indices) | (x.gather(1, indices) == x.gather(1, its_indices))  # ties of 16 bits
    if dtype == torch.float32 or arguments.get("bias") is None:
        assert alike.all()
    torch.testing.assert_close(weights[alike.all(1)].double(), expected[alike.all(1)], rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize("name", inputs.names_for(torch.float32))
@pytest.mark.parametrize(("experts", "k", "given"), RULES)
def test_every_input(experts: int, k: int, given: dict[str, Any], name: str) -> None:
    x, arguments = inputs.make(name, 7, experts, k, torch.float32, "cpu"), asked(experts, given)
    answer = autotopk.topk_softmax(x, k, **arguments)
    bias, scale = arguments.pop("bias", None), arguments.pop("scale", 1.0)
    rule = Routing(biased=bias is not None, **arguments)
    assert problems_with_routes(x, bias, *answer, k, rule, scale) == []


def test_any_leading_dimensions_and_layouts() -> None:
    x, bias = logits(2, 3, 32), logits(64)[::2]
    for one in (x, x[0, 0], x.transpose(0, 1), torch.cat((x, x), -1)[..., 5:37], logits(32, 6).t()):
        weights, indices = autotopk.topk_softmax(one, 4, bias=bias, scoring="sigmoid", index_dtype=torch.int32)
        assert indices.dtype == torch.int32
        assert weights.shape == indices.shape == (*one.shape[:-1], 4)
        expected, its_indices = as_engines_do(one.reshape(-1, 32), 4, bias, "sigmoid")
        assert torch.equal(indices.reshape(-1, 4).long(), its_indices)
        torch.testing.assert_close(weights.reshape(-1, 4), expected)
    weights, indices = autotopk.topk_softmax(x[:, :0], 4)
    assert weights.shape == indices.shape == (2, 0, 4)


def test_padding_and_what_is_not_finite() -> None:
    """Padded experts weigh nothing; a row with a NaN, infinite or all padding has NaNs, as softmax has."""
    low, high, nan = -torch.inf, torch.inf, torch.nan
    x = torch.tensor([[1.0, low, 2.0, low], [low] * 4, [0.0, high, 1.0, 2.0], [0.0, nan, 1.0, 2.0]])
    weights, indices = autotopk.topk_softmax(x, 3)
    assert indices[0, :2].tolist() == [2, 0]
    torch.testing.assert_close(weights[0], torch.tensor([2.0, 1.0, low]).softmax(0))
    assert weights[1:].isnan().all()
    assert indices[2:, 0].tolist() == [1, 1]
    weights, indices = autotopk.topk_softmax(x, 2, scoring="sigmoid")
    assert weights[1].tolist() == [0.0, 0.0]  # their sum is 0
    assert indices[2].tolist() == [1, 3]


def test_experts_of_groups_left_out_are_never_chosen() -> None:
    x = torch.full((3, 8), -torch.inf)
    x[:, 6] = 1.0
    _, indices = autotopk.topk_softmax(x, 2, n_group=4, topk_group=1)
    assert sorted(indices[0].tolist()) == [6, 7]


# Derivatives


@pytest.mark.parametrize(("experts", "k", "given"), RULES)
def test_derivatives(experts: int, k: int, given: dict[str, Any]) -> None:
    """First and second, backward; forward; those of plain torch."""
    arguments, factors = asked(experts, given), logits(5, k, seed=1)

    def loss(x: Tensor, route: Any) -> Tensor:
        total: Tensor = (route(x, k, **arguments)[0] * factors).pow(2).sum()
        return total

    found: list[Tensor] = []
    expected: list[Tensor] = []
    routes: list[tuple[Any, list[Tensor]]] = [(autotopk.topk_softmax, found), (as_engines_do, expected)]
    for route, gradients in routes:
        x = logits(5, experts).requires_grad_()
        [first] = torch.autograd.grad(loss(x, route), x, create_graph=True)
        [second] = torch.autograd.grad(first.pow(2).sum(), x)
        tangent = torch.func.jvp(partial(loss, route=route), (x.detach(),), (torch.ones_like(x),))[1]
        gradients += [first.detach(), second, tangent]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_bias_has_no_derivative() -> None:
    x, bias = logits(3, 16).requires_grad_(), logits(16).requires_grad_()
    weights, indices = autotopk.topk_softmax(x, 4, bias=bias, scoring="sigmoid")
    assert not indices.requires_grad
    weights.pow(2).sum().backward()
    assert x.grad is not None
    assert bias.grad is None


def test_training_with_half_precision() -> None:
    x = logits(4, 32).bfloat16().requires_grad_()
    autotopk.topk_softmax(x, 4)[0].pow(2).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16
    assert x.grad.any()


# Torch's machinery


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("experts", "k", "given"), RULES[:4])
def test_opcheck(experts: int, k: int, given: dict[str, Any], requires_grad: bool) -> None:
    more = {"bias": None, "scoring": "softmax", "renormalize": True, "scale": 1.0, "n_group": 1, "topk_group": 1}
    arguments = {**more, **asked(experts, given)}
    torch.library.opcheck(OPERATOR, (logits(5, experts).requires_grad_(requires_grad), k, *arguments.values()))


def test_vmap() -> None:
    x, biases = logits(3, 5, 16), logits(3, 16, seed=2)

    def route(x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return autotopk.topk_softmax(x, 4, bias=bias, scoring="sigmoid")

    cases: list[tuple[tuple[int | None, int | None], list[tuple[Tensor, Tensor]]]] = [
        ((0, None), [(one, biases[0]) for one in x]),
        ((1, None), [(one, biases[0]) for one in x.unbind(1)]),
        ((0, 0), list(zip(x, biases, strict=True))),
        ((None, 0), [(x[0], bias) for bias in biases]),
    ]
    for in_dims, each in cases:
        given = x if in_dims[0] is not None else x[0], biases if in_dims[1] is not None else biases[0]
        found = torch.vmap(route, in_dims)(*given)
        for one, other in zip(found, zip(*(route(*pair) for pair in each), strict=True), strict=True):
            torch.testing.assert_close(one, torch.stack(other))
    per_token = torch.func.vmap(torch.func.grad(lambda row: autotopk.topk_softmax(row, 4)[0].pow(2).sum()))(x[0])
    together = x[0].clone().requires_grad_()
    autotopk.topk_softmax(together, 4)[0].pow(2).sum().backward()
    torch.testing.assert_close(per_token, together.grad)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool) -> None:
    """Without a break, with derivatives, whatever the number of tokens."""
    bias = logits(32)

    def gate(x: Tensor) -> tuple[Tensor, Tensor]:
        return autotopk.topk_softmax(x * 2, 4, bias=bias, scoring="sigmoid", n_group=4, topk_group=2)

    compiled = torch.compile(gate, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for tokens in (3, 5):
        x = logits(tokens, 32).requires_grad_()
        weights, indices = compiled(x)
        expected, its_indices = gate(x)
        assert torch.equal(indices, its_indices)
        torch.testing.assert_close(weights, expected)
        [found] = torch.autograd.grad(weights.pow(2).sum(), x)
        torch.testing.assert_close(found, torch.autograd.grad(expected.pow(2).sum(), x)[0])


def test_export() -> None:
    class Gate(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return autotopk.topk_softmax(x, 4, renormalize=False)

    tokens = torch.export.Dim("tokens", min=2, max=100)
    program = torch.export.export(Gate(), (logits(3, 16),), dynamic_shapes=({0: tokens},))
    assert [node.target for node in program.graph.nodes if node.op == "call_function"][:1] == [OPERATOR]
    x = logits(7, 16)
    for found, expected in zip(program.module()(x), autotopk.topk_softmax(x, 4, renormalize=False), strict=True):
        torch.testing.assert_close(found, expected)


def test_fake_and_meta_tensors_tell_shapes() -> None:
    weights, indices = autotopk.topk_softmax(torch.empty(3, 5, 64, device="meta"), 8, index_dtype=torch.int32)
    assert (weights.shape, weights.dtype, weights.device.type) == ((3, 5, 8), torch.float32, "meta")
    assert (indices.shape, indices.dtype, indices.device.type) == ((3, 5, 8), torch.int32, "meta")


# What is refused


@pytest.mark.parametrize(
    ("error", "told", "changes"),
    [
        (TypeError, "logits are a Tensor, not list", {"x": [1.0]}),
        (TypeError, "logits are float32, float16, bfloat16, not torch.float64", {"x": torch.ones(2, 8).double()}),
        (ValueError, "not a number", {"x": torch.tensor(1.0)}),
        (TypeError, "k=2.0 is not a whole number", {"k": 2.0}),
        (TypeError, "k=True is not a whole number", {"k": True}),
        (ValueError, "k=0 is not from 1 to 8", {"k": 0}),
        (ValueError, "k=9 is not from 1 to 8", {"k": 9}),
        (ValueError, "k=3 is not from 1 to 2, which 1 of 4 groups hold", {"k": 3, "n_group": 4}),
        (ValueError, "8 experts are not in n_group=3 groups of equal size", {"n_group": 3}),
        (ValueError, "n_group=0 is not a positive integer", {"n_group": 0}),
        (ValueError, "topk_group=3 is more than n_group=2", {"n_group": 2, "topk_group": 3}),
        (ValueError, "scoring='tanh' is not one of softmax, sigmoid, sqrtsoftplus", {"scoring": "tanh"}),
        (ValueError, "renormalize=1 is not True or False", {"renormalize": 1}),
        (TypeError, "scale='2' is not a number", {"scale": "2"}),
        (TypeError, "bias is a Tensor or None, not float", {"bias": 0.5}),
        (ValueError, r"torch.float64 of \(8,\) on cpu, not torch.float32 of \(8,\)", {"bias": torch.ones(8).double()}),
        (ValueError, r"torch.float32 of \(7,\) on cpu", {"bias": torch.ones(7)}),
        (ValueError, r"of \(8,\) on meta, not torch.float32 of \(8,\) on cpu", {"bias": torch.ones(8, device="meta")}),
        (ValueError, "index_dtype=torch.int16 is not torch.int64 or torch.int32", {"index_dtype": torch.int16}),
    ],
)
def test_refusals_name_the_value(error: type[Exception], told: str, changes: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"x": torch.ones(2, 8), "k": 2, **changes}
    for _ in range(2):
        with pytest.raises(error, match=told):
            autotopk.topk_softmax(**arguments)


# Strategies


@dataclass(frozen=True)
class Config:
    """Without a knob."""

    knob: int = 0


class PlantedRouter(Strategy):
    """Routes as engines do, counts its answers, and may fail."""

    name = "planted_router"
    config_type = Config
    preference = 1000
    features = Features(answers=frozenset(WEIGHTS))

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.error: Exception | None = None

    def reasons_unsupported(self, problem: Problem, device: Device) -> list[str]:
        return []

    def shortlist(self, problem: Problem, device: Device) -> Sequence[Config]:
        return [Config()]

    def heuristic(self, problem: Problem, device: Device) -> Config:
        return Config()

    def program(self, config: Config, problem: Problem, device: Device) -> HostProgram:
        def run(x: Tensor, bias: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
            if self.error is not None:
                raise self.error
            self.problems.append(problem)
            rule = problem.routing
            assert rule is not None
            groups = rule.n_group, rule.topk_group
            return as_engines_do(x.float(), problem.k, bias, rule.scoring, rule.renormalize, scale, *groups)

        return HostProgram(run)


@pytest.fixture
def planted() -> Any:
    with registered(PlantedRouter()) as strategy:
        autotopk.reload()
        yield strategy
    autotopk.reload()


def test_strategies_that_route_answer(planted: PlantedRouter) -> None:
    """With the bias and the scale of each call, in the form that is asked for; others do not see it."""
    x, bias = logits(6, 32), logits(32)
    for scale in (1.0, 2.5):
        plain: dict[str, Any] = {}
        for given in (plain, {"bias": bias, "scoring": "sigmoid"}):
            weights, indices = autotopk.topk_softmax(x, 4, scale=scale, index_dtype=torch.int32, **given)
            expected, its_indices = as_engines_do(x, 4, scale=scale, **given)
            torch.testing.assert_close(weights, expected)
            assert indices.dtype == torch.int32
            assert torch.equal(indices.long(), its_indices)
    assert len(planted.problems) == 4
    assert {str(one.routing) for one in planted.problems} == {"softmax", "sigmoid+bias"}
    autotopk.topk(x, 4)
    assert len(planted.problems) == 4
    weights, _ = autotopk.topk_softmax(x.clone().requires_grad_(), 4)
    assert weights.requires_grad
    assert len(planted.problems) == 5
    autotopk.topk_softmax(logits(32, 6).t(), 4)  # copied first
    assert len(planted.problems) == 6


@pytest.mark.filterwarnings("ignore:planted_router")
def test_a_strategy_that_fails_costs_its_place(planted: PlantedRouter) -> None:
    planted.error = RuntimeError("no")
    x = logits(6, 32)
    with pytest.warns(autotopk.AutotopkWarning, match="planted_router .* failed and is left out: no"):
        _, indices = autotopk.topk_softmax(x, 4)
    assert torch.equal(indices, as_engines_do(x, 4)[1])
    planted.error = None
    autotopk.topk_softmax(x, 4)
    assert planted.problems == []


def test_explain(planted: PlantedRouter) -> None:
    problem = Problem.contiguous(6, 32, 4, device_type="cpu", routing=Routing("sigmoid", True))
    told = explain.explain_problem(problem, Device("cpu", "some CPU"))
    assert told.choice.strategy is planted
    assert "k=4 (sigmoid+bias)" in str(told)
    assert told.to_dict()["problem"]["routing"]["scoring"] == "sigmoid"


# The rule


@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("groups", [(1, 1), (8, 4), (8, 8)])
def test_rules_are_texts(scoring: Any, biased: bool, groups: tuple[int, int]) -> None:
    rule = Routing(scoring, biased, not biased, *groups)
    assert Routing.parse(str(rule)) == rule


@pytest.mark.parametrize("text", ["", "softmix", "softmax:4of", "softmax:raw:raw", "softmax:0of4", "softmax:5of4"])
def test_other_texts_are_no_rules(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not SCORING|topk_group"):
        Routing.parse(text)


def test_problems_and_answers_fit() -> None:
    problem = Problem.contiguous(4, 64, 8, routing=Routing())
    assert problem.answer == "weights"
    for changes in ({"answer": "pairs"}, {"routing": None}, {"largest": False}, {"dtype": "int32"}, {"k": 65}):
        with pytest.raises(ValueError, match=r"does not fit|routing needs|k"):
            replace(problem, **changes)


def test_a_rule_is_made_once() -> None:
    assert routers.rule("softmax", False, True, 1, 1) is routers.rule("softmax", False, True, 1, 1)


def test_refusals_are_the_same_once_a_plan_is_known(planted: PlantedRouter) -> None:
    """And cost no kernel its place."""
    x = logits(4, 16)
    weights, _ = autotopk.topk_softmax(x, 2)
    for k, scale in ((2, "2"), (2, None), (2.0, 1.0), (True, 1.0)):
        with pytest.raises(TypeError, match=r"is not a (whole )?number"):
            autotopk.topk_softmax(x, k, scale=scale)  # type: ignore[arg-type]
    asked = len(planted.problems)
    torch.testing.assert_close(autotopk.topk_softmax(x, 2, scale=3)[0], 3 * weights)
    assert len(planted.problems) == asked + 1
