"""Cases of routing: what is asked, how logits lie in memory, and how an answer is judged."""

import itertools
from collections.abc import Iterator
from ctypes import c_float, c_int32
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from autotopk.oracle.inputs import make, make_bias, names_for
from autotopk.oracle.routing import problems_with_routes
from autotopk.problem import WEIGHTS, Answer, Problem
from autotopk.routing import LOGITS, Routing
from autotopk.runtime.views import View

SCALE = 2.5


@dataclass(frozen=True)
class Route:
    """One question to ask of a strategy."""

    rows: int
    experts: int
    k: int
    rule: str
    dtype: str = "float32"
    values: str = "random"
    answer: Answer = "weights"
    padded: bool = False
    """Rows are apart by an odd distance."""

    def __str__(self) -> str:
        layout = "-padded" if self.padded else ""
        return f"{self.rows}x{self.experts}-k{self.k}-{self.rule}-{self.dtype}-{self.values}-{self.answer}{layout}"

    @property
    def routing(self) -> Routing:
        return Routing.parse(self.rule)

    def logits(self, device: str) -> Tensor:
        """(rows, experts), amid NaNs where rows are apart."""
        x = make(self.values, self.rows, self.experts, self.k, getattr(torch, self.dtype), device, seed=self.experts)
        if not self.padded:
            return x
        memory = torch.full((self.rows + 1, self.experts + 3), torch.nan, dtype=x.dtype, device=device)
        return memory.view(-1)[1:].as_strided(x.shape, (self.experts + 3, 1)).copy_(x)

    def bias(self, device: str) -> Tensor | None:
        return make_bias(self.experts, device) if self.routing.biased else None

    def problem(self, x: Tensor) -> Problem:
        """The problem that the operation makes of the logits, on a GPU."""
        view = View.of(x, self.k, -1, True, True)
        assert view is not None
        return replace(view.problem, routing=self.routing, answer=self.answer, device_type="cuda")

    def problems_with(self, x: Tensor, answer: tuple[Tensor, Tensor]) -> list[str]:
        """What the oracle says."""
        return problems_with_routes(x, self.bias(str(x.device)), *answer, self.k, self.routing, SCALE)


def scale_bits() -> int:
    """The scale as kernels take it."""
    return c_int32.from_buffer(c_float(SCALE)).value


def routes(rows: int) -> Iterator[Route]:
    """Every input of every dtype, in turn by every kind of rule, of few experts."""
    shapes = itertools.cycle(
        [
            (72, 5, "softmax"),
            (64, 6, "sigmoid+bias:4of8"),
            (67, 3, "softmax:raw"),
            (60, 6, "softmax:2of5"),
            (64, 4, "sqrtsoftplus"),
            (72, 8, "sqrtsoftplus+bias:raw"),
            (60, 7, "softmax+bias:2of6:raw"),
            (128, 4, "softmax+bias"),
            (64, 6, "softmax:2of8"),
        ]
    )
    answers, padded = itertools.cycle(WEIGHTS), itertools.cycle([False, False, True])
    for dtype in LOGITS:
        for name in names_for(getattr(torch, dtype)):
            for _ in range(3):
                experts, k, rule = next(shapes)
                yield Route(rows, experts, k, rule, dtype, name, next(answers), next(padded))
