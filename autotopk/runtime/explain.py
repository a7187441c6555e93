"""What `topk` would run, and why."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from autotopk.device import Device, device_of
from autotopk.problem import Problem
from autotopk.runtime import dispatch
from autotopk.runtime.dispatch import Choice
from autotopk.runtime.readiness import Readiness
from autotopk.runtime.state import default
from autotopk.runtime.views import View
from autotopk.runtime.winners import is_current

_ORIGINS = {"pack": "shipped compiled", "cache": "in the cache", "compiler": "to be compiled"}


@dataclass(frozen=True)
class Explanation:
    """What `topk` would run for a problem, and why."""

    problem: Problem
    device: Device
    choice: Choice
    scratch_bytes: int = 0
    """Memory beside input and outputs that the choice's kernels use; what torch operators allocate is not known."""

    origins: tuple[str, ...] = ()
    """Where its kernels come from, launch by launch: "pack", "cache", or "compiler"; none of torch operators."""

    @property
    def current(self) -> bool | None:
        """Whether the code that was measured is the code that runs; None where that is not known, or no winner."""
        try:
            return None if self.choice.winner is None else is_current(self.choice.winner)
        except Exception:  # also what a third party's strategy raises
            return None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        choice, winner = self.choice, self.choice.winner
        return {
            "problem": asdict(self.problem),
            "device": {"fingerprint": self.device.fingerprint, **asdict(self.device)},
            "step": choice.step,
            "strategy": choice.candidate.strategy,
            "config": choice.candidate.knobs,
            "scratch_bytes": self.scratch_bytes,
            "kernels": list(self.origins),
            "current": self.current,
            "measured_for": None if winner is None else str(winner.key),
            "measured_on": None if winner is None else winner.device.name,
            "time_us": None if winner is None else winner.time_us,
            "ratio": None if winner is None else winner.ratio,
            "predicted": None if choice.prediction is None else choice.prediction.to_dict(),
            "rejected": list(choice.rejected),
        }

    def __str__(self) -> str:
        choice, winner = self.choice, self.choice.winner
        lines = [
            f"{self.problem}",
            f"  runs {choice.candidate}",
            f"  by {choice.step}",
        ]
        if winner is not None:
            if winner.device.fingerprint != self.device.fingerprint:
                lines[-1] += f", borrowed from {winner.device.name}"
            lines[-1] += (
                f": measured {winner.time_us:.1f} us at {winner.key}, {1 / winner.ratio:.2f}x torch.topk's speed"
            )
            if winner.runner_up and winner.gap is not None:
                lines.append(f"  ahead of {winner.runner_up} by {winner.gap:.1%}")
        if prediction := choice.prediction:
            lines[-1] += f": {prediction}"
            lines.append(f"  at most {prediction.bound - 1:.1%} slower than the best, as points left out show")
        if self.scratch_bytes:
            lines.append(f"  with {self.scratch_bytes} bytes of scratch memory")
        if self.origins:
            lines.append(f"  kernels: {', '.join(_ORIGINS.get(one, f'from the {one}') for one in self.origins)}")
        if self.current is False:
            lines.append("  stale: the strategy compiles to other code since; tune again")
        lines += [f"  not {reason}" for reason in choice.rejected]
        return "\n".join(lines)


def explain(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, stable: bool = False
) -> Explanation:
    """What `topk` would run for these arguments, by which step of the order of choice.

    Raises:
        TypeError: the input is no tensor.
        ValueError: the call goes to torch.topk (0-d, empty, k = 0, bad arguments, other dtypes, devices and layouts).
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"explain(): argument 'input' must be Tensor, not {type(input).__name__}")
    view = None
    try:
        what = f"{input.dtype} tensor of {tuple(input.shape)}"
        if input.layout is torch.strided and type(k) is type(dim) is int:
            view = View.of(input, k, dim, largest, sorted, stable)
    except RuntimeError:  # of tensors that are nested or have names
        what = f"{input.dtype} tensor"
    if view is None:
        raise ValueError(f"k={k}, dim={dim} of a {what} goes to torch.topk")
    device = device_of(input.device)
    return next(_explanations((way.problem for way in view.ways(input)), device))


def explain_problem(problem: Problem, device: Device) -> Explanation:
    """`explain` without a tensor."""
    return next(_explanations([problem], device))


def _explanations(problems: Iterable[Problem], device: Device) -> Iterator[Explanation]:
    """Of what would answer a call now, best first; the last is torch.topk, which always can."""
    failed: list[str] = []
    ready = Readiness(default, device).ready
    choices = ((problem, choice) for problem in problems for choice in dispatch.choices(problem, device, ready=ready))
    for problem, choice in choices:
        try:
            program = choice.program(problem, device)
            scratch_bytes = program.scratch_bytes(problem)
            origins = program.origins(device.arch)
        except Exception as error:  # also what a third party's strategy raises
            failed.append(f"{choice.candidate}: {type(error).__name__}: {error}")
        else:
            told = replace(choice, rejected=(*choice.rejected, *failed))
            yield Explanation(problem, device, told, scratch_bytes, origins)
