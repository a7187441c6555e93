"""A sweep that nobody measured: plausible times on every point of the lattices of the tag `sweep`."""

import random
from collections.abc import Mapping
from functools import cache
from math import exp

from autotopk.candidate import Candidate, Knob
from autotopk.device import H100
from autotopk.tuning.candidates import candidates, lattice
from autotopk.workloads import Workload, tagged

FAMILIES = (
    "lane_merge",
    "masked_argmax",
    "block_radix",
    "cluster_radix",
    "split_radix",
    "wide_radix",
    "torch_fallback",
)
"""Whose valleys are made up: another family would make up others everywhere."""

ROUGHNESS = 0.02
"""Standard deviation of what no knob explains, as a fraction."""

FAILURES = 0.02
"""Share of the points that fail."""

WIDEST = 1.2
"""Most that one knob is worth from end to end, as a logarithm."""


@cache
def sweep(seed: int) -> dict[Workload, dict[Candidate, float | None]]:
    """Ratios to torch.topk by workload and candidate; None for what failed."""
    draw = random.Random(seed)
    return {workload: _ratios(workload, draw) for workload in tagged("sweep")}


def _ratios(workload: Workload, draw: random.Random) -> dict[Candidate, float | None]:
    """By family: a valley a step or so from a point of the shortlist, its knobs bound to each other in pairs."""
    problem = workload.problem("cuda")
    points, shortlist = lattice(problem, H100, FAMILIES), candidates(problem, H100, FAMILIES)
    found: dict[Candidate, float | None] = {}
    for name in dict.fromkeys(one.strategy for one in points):
        mine = [one for one in points if one.strategy == name]
        knobs = [knob for knob in mine[0].knobs if all(knob in one.knobs for one in mine)]  # but sizes of rungs
        scales = {knob: sorted({one.knobs[knob] for one in mine}, key=str_or_number) for knob in knobs}
        near = _place(draw.choice([one for one in shortlist if one.strategy == name]), scales)
        bottom = {knob: x + draw.choice((-1, 0, 0, 1)) / max(1, len(scales[knob]) - 1) for knob, x in near.items()}
        slopes = {knob: draw.uniform(0.1, WIDEST) for knob in scales}
        twists = {(a, b): draw.uniform(-1, 1) * min(slopes[a], slopes[b]) for a in scales for b in scales if a < b}
        base = 0.8 if name == "torch_fallback" else draw.uniform(0.1, 0.3)
        for one in mine:
            away = {knob: x - bottom[knob] for knob, x in _place(one, scales).items()}
            cost = sum(slopes[knob] * far**2 for knob, far in away.items())
            cost += sum(twist * away[a] * away[b] for (a, b), twist in twists.items())
            fails = draw.random() < FAILURES and name != "torch_fallback"
            found[one] = None if fails else base * exp(max(0.0, cost) + draw.gauss(0, ROUGHNESS))
    return {one: found[one] for one in points}


def _place(candidate: Candidate, scales: Mapping[str, list[Knob]]) -> dict[str, float]:
    """Where it stands on the scale of each knob, from 0 to 1."""
    return {knob: scale.index(candidate.knobs[knob]) / max(1, len(scale) - 1) for knob, scale in scales.items()}


def str_or_number(value: Knob) -> tuple[str, Knob]:
    """Values of one kind in their order."""
    return (type(value).__name__, value)
