"""The oracle of routing accepts what float32 gives, and says what is wrong with anything else."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from autotopk.oracle.inputs import make_bias
from autotopk.oracle.routing import problems_with_routes
from autotopk.routing import Routing
from autotopk.strategies.torch_fallback.routed import choose, scores, weigh

K, SCALE = 4, 2.0
RULES = [
    Routing(),
    Routing(renormalize=False),
    Routing("sigmoid", True, n_group=4, topk_group=2),
    Routing("sqrtsoftplus", True),
    Routing("sigmoid", n_group=8, topk_group=3),
]


def question(rule: Routing) -> tuple[Tensor, Tensor | None]:
    x = torch.randn(6, 32, generator=torch.Generator().manual_seed(1))
    return x, make_bias(32, "cpu") if rule.biased else None


def right(rule: Routing) -> tuple[Tensor, Tensor]:
    x, bias = question(rule)
    indices = choose(x, bias, K, rule)
    return weigh(x, indices, SCALE, rule), indices


def wrong_with(rule: Routing, weights: Tensor, indices: Tensor) -> list[str]:
    x, bias = question(rule)
    return problems_with_routes(x, bias, weights, indices, K, rule, SCALE)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_right_is_right(rule: Routing) -> None:
    weights, indices = right(rule)
    assert wrong_with(rule, weights, indices) == []
    assert wrong_with(rule, weights, indices.to(torch.int32)) == []


def swapped(indices: Tensor) -> Tensor:
    """The first two of one row in the wrong order."""
    changed = indices.clone()
    changed[2, :2] = indices[2, [1, 0]]
    return changed


def another(indices: Tensor) -> Tensor:
    """The last of one row is an expert that was not chosen."""
    changed = indices.clone()
    changed[2, -1] = next(one for one in range(32) if one not in indices[2].tolist())
    return changed


def twice(indices: Tensor) -> Tensor:
    changed = indices.clone()
    changed[2, 1] = indices[2, 0]
    return changed


def outside(indices: Tensor) -> Tensor:
    changed = indices.clone()
    changed[2, 1] = 32
    return changed


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (swapped, "1 of 6 rows hold experts in the wrong order; first in row 2 at position 0"),
        (another, "row 2"),
        (twice, "an index more than once"),
        (outside, r"an index outside \[0, 32\)"),
    ],
)
def test_wrong_experts(rule: Routing, change: Callable[[Tensor], Tensor], told: str) -> None:
    _, indices = right(rule)
    changed = change(indices)
    x, _ = question(rule)
    [first, *_] = wrong_with(rule, weigh(x, changed.clamp(max=31), SCALE, rule), changed)
    assert re.search(told, first), first


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_wrong_weights(rule: Routing) -> None:
    weights, indices = right(rule)
    for changed in (
        weights * (1 + 2e-5),
        weights / SCALE,
        weights.flip(1),
        weights.masked_fill(weights > 0, torch.nan),
    ):
        assert any("a weight other than that of its expert" in told for told in wrong_with(rule, changed, indices))
    assert wrong_with(rule, weights.double(), indices) == ["weights are torch.float64, not torch.float32"]


def test_experts_of_groups() -> None:
    """A group that should have been left out, and one that should have stayed."""
    rule = Routing("sigmoid", n_group=4, topk_group=2)
    x = torch.zeros(1, 32)
    x[0, [0, 1, 2, 8, 9, 16]] = torch.tensor([9.0, 8.0, 7.0, 6.0, 5.0, 5.5])
    for chosen, right_ in (([0, 1, 2, 8], True), ([0, 1, 2, 16], False), ([0, 1, 2, 3], False)):
        indices = torch.tensor([chosen])
        told = problems_with_routes(x, None, weigh(x, indices, 1.0, rule), indices, 4, rule)
        assert (told == []) == right_, told
    x[0, [8, 16]] = 6.0  # which of the two stays is free
    for chosen in ([0, 1, 2, 8], [0, 1, 2, 16]):
        indices = torch.tensor([chosen])
        assert problems_with_routes(x, None, weigh(x, indices, 1.0, rule), indices, 4, rule) == []


def test_what_float32_cannot_tell_is_free() -> None:
    """Scores with a bias that round to the same float32, and no others."""
    rule = Routing("sigmoid", True)
    x, bias = torch.tensor([[20.0, 21.0, 0.0, -1.0]]), torch.zeros(4)
    for order in ([0, 1], [1, 0]):
        indices = torch.tensor([order])
        assert problems_with_routes(x, bias, weigh(x, indices, 1.0, rule), indices, 2, rule) == []
    assert scores(x, rule)[0, 0] == scores(x, rule)[0, 1]
    free = Routing("sigmoid")  # by the logits, which differ
    indices = torch.tensor([[0, 1]])
    assert problems_with_routes(x, None, weigh(x, indices, 1.0, free), indices, 2, free) != []
