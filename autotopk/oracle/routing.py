"""The oracle of routing: what is wrong with the experts and weights of a row, by float64 arithmetic.

Kernels compute in float32. So where scores decide, two of them may change places if they are nearer to each other than
float32 tells; where logits decide, nothing may. Weights are within some roundings of those of the experts chosen.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from autotopk.oracle.reference import layout_problems, report
from autotopk.routing import Routing

CHOICE_ERROR = 2.0**-20
"""Of a float32 score and of its sum with a bias, as a fraction: eight roundings."""

WEIGHT_ERROR, EXPONENT_ERROR = 4e-6, 3e-7
"""Of a weight, as a fraction: so much, and so much for every unit of the exponent that it is made of."""

LEAST_SCORE = {"softmax": 1e-37, "sigmoid": 1e-37, "sqrtsoftplus": 1e-18}
"""Scores below it may be anything below it: they, or what they are the root of, are less than float32 holds in full."""


@dataclass(frozen=True)
class _Interval:
    """Numbers (rows, n) in torch's order, NaN above everything, known up to an error."""

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, numbers: Tensor, error: Tensor) -> "_Interval":
        error = torch.where(numbers.isfinite(), error, 0.0)
        return cls(_ordered(numbers - error), _ordered(numbers + error))


def problems_with_routes(
    x: Tensor, bias: Tensor | None, weights: Tensor, indices: Tensor, k: int, routing: Routing, scale: float = 1.0
) -> list[str]:
    """What is wrong with float32 `weights` and `indices` (rows, k) of logits (rows, experts); empty where right.

    Right is: k distinct experts, none of a group left out, none worse than one passed over, in order; contiguous
    tensors where x is. Which of equals is chosen is free.
    """
    shape = torch.Size((x.shape[0], k))
    index_dtype = torch.int32 if indices.dtype == torch.int32 else torch.int64
    problems = [
        *layout_problems("weights", weights, shape, torch.float32, x.device),
        *layout_problems("indices", indices, shape, index_dtype, x.device),
    ]
    if problems or weights.numel() == 0:
        return problems
    experts, indices = x.shape[1], indices.detach().long()
    ordered = indices.sort(1).values
    problems += report((indices < 0) | (indices >= experts), f"an index outside [0, {experts})", indices)
    problems += report(ordered[:, 1:] == ordered[:, :-1], "an index more than once", ordered[:, 1:])
    if problems:
        return problems
    logits = x.detach().double()
    scores = _scores(logits, routing)
    choice, error = logits, torch.zeros_like(logits)
    if bias is not None:
        choice = scores + bias.double()
        error = CHOICE_ERROR * (scores.abs() + choice.abs())
    problems += _wrongly_chosen(choice, error, indices, routing)
    return problems + _wrongly_weighed(logits, scores, weights.detach(), indices, routing, scale)


def _wrongly_chosen(choice: Tensor, error: Tensor, indices: Tensor, routing: Routing) -> list[str]:
    each = _Interval.of(choice, error)
    chosen = torch.zeros_like(choice, dtype=torch.bool).scatter_(1, indices, True)
    low, high = each.low.gather(1, indices), each.high.gather(1, indices)
    found = report(low[:, 1:] > high[:, :-1], "experts in the wrong order", indices[:, 1:])
    worst = high.amin(1, keepdim=True)  # of the chosen, the least that any may be
    missed = ~chosen & (each.low > worst)
    if routing.keeps_all:
        return found + report(missed, "a better expert that was not chosen", choice)

    groups, kept = routing.n_group, routing.topk_group
    best = _group_scores(choice, error, routing)
    used = chosen.unflatten(1, (groups, -1)).any(2)  # (rows, groups)
    above = best.low.unsqueeze(1) > best.high.unsqueeze(2)  # [row, one, other]: the other is surely better
    beside = best.high.unsqueeze(1) >= best.low.unsqueeze(2)  # it may be at least as good
    surely_out = above.sum(2) >= kept
    surely_in = beside.sum(2) <= kept  # it is beside itself
    kept_groups = used | surely_in
    missed_in = missed.unflatten(1, (groups, -1)).any(2)
    spare = ~kept_groups & ~surely_out & ~missed_in  # may have stayed without giving an expert
    found += report(used & surely_out, "an expert of a group left out", best.low)
    found += report(kept_groups & missed_in, "a better expert that was not chosen", best.low)
    count = kept_groups.sum(1, keepdim=True)
    found += report(count > kept, f"experts of more than {kept} groups", count)
    return found + report(count + spare.sum(1, keepdim=True) < kept, f"experts of fewer than {kept} groups", count)


def _group_scores(choice: Tensor, error: Tensor, routing: Routing) -> _Interval:
    grouped, its_error = choice.unflatten(1, (routing.n_group, -1)), error.unflatten(1, (routing.n_group, -1))
    order = _ordered(grouped).argsort(2, descending=True)[:, :, : 2 if routing.biased else 1]
    best = grouped.gather(2, order)
    return _Interval.of(best.sum(2), its_error.amax(2) * (3 if routing.biased else 1))


def _wrongly_weighed(
    logits: Tensor, scores: Tensor, weights: Tensor, indices: Tensor, routing: Routing, scale: float
) -> list[str]:
    """Where weights are not those of the chosen, however they were chosen."""
    chosen, expected = logits.gather(1, indices), scores.gather(1, indices)
    total = torch.ones_like(expected[:, :1])
    exponent = chosen.abs()
    if routing.scoring == "softmax":
        exponent = logits.amax(1, keepdim=True) - chosen
        if routing.renormalize:
            expected = chosen.softmax(1)
    elif routing.renormalize:
        total = expected.sum(1, keepdim=True)
        expected = expected / torch.where(total == 0, 1.0, total)
    expected, found = expected * scale, weights.double()
    error = expected.abs() * (WEIGHT_ERROR + EXPONENT_ERROR * exponent.nan_to_num(0.0, 1e4, 1e4).clamp(max=1e4))
    tiny = LEAST_SCORE[routing.scoring] / total.clamp(min=1e-300).nan_to_num(1.0)
    error = error + abs(scale) * tiny.clamp(max=1.0)
    same = (found == expected) | (found.isnan() & expected.isnan()) | ((found - expected).abs() <= error)
    return report(~same, "a weight other than that of its expert", found, expected)


def _scores(logits: Tensor, routing: Routing) -> Tensor:
    if routing.scoring == "softmax":
        return logits.softmax(1)
    return logits.sigmoid() if routing.scoring == "sigmoid" else softplus(logits, threshold=40).sqrt()


def _ordered(numbers: Tensor) -> Tensor:
    """Finite numbers of the same order, NaN above infinity."""
    return numbers.clamp(-1e300, 1e300).masked_fill(numbers == torch.inf, 1e301).nan_to_num(1e302)
