"""Random problems beside torch.topk: `python scripts/random_problems.py [COUNT [SEED]] [--json FILE]`, on a GPU.

300 problems by default, rows, columns and k alike in every order of magnitude, mostly of shapes that nobody tuned. What
`autotopk.topk` answers, as users call it, is checked exactly, and timed beside torch.topk in CUDA graphs. Printed are
the problems where it is slower, and those that a kernel of torch answers.
"""

import json
import random
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import exp, fsum, log
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

import autotopk
from autotopk.device import device_of
from autotopk.errors import MeasurementError
from autotopk.oracle.inputs import make
from autotopk.oracle.reference import problems_with
from autotopk.problem import DTYPE_BYTES, Problem
from autotopk.torch_topk import torch_topk
from autotopk.tuning import timing

DTYPES = ("float32", "bfloat16", "float16")
MAX_ROWS = 4096
MIN_COLS, MAX_COLS = 2048, 30_000_000
MAX_BYTES = 4 << 30
"""Of an input. torch.topk and the oracle take several times as much beside it."""

ROUNDS, ROUNDS_S = 3, 0.3
"""How often both are timed in turn, unless that takes longer; of each the best counts."""

TOLERANCE = 1.03
"""Times torch.topk's time that is not called slower."""


class Order(TypedDict):
    """Which elements, and in which order."""

    largest: bool
    sorted: bool


@dataclass(frozen=True)
class Answered:
    """One problem. Times are microseconds, None where memory was too short to measure."""

    rows: int
    cols: int
    k: int
    dtype: str
    largest: bool
    sorted: bool
    kernel: str
    strategy: str
    step: str
    """How it was chosen, see `autotopk.runtime.dispatch`."""
    wrong: tuple[str, ...] | None
    """What the oracle says: nothing where all is right; None where it was not asked."""
    us: float | None
    torch_us: float | None
    note: str
    """Why it was not asked, or nothing was measured."""

    @property
    def ratio(self) -> float | None:
        """Of torch.topk's time; below 1 is faster."""
        return self.us / self.torch_us if self.us and self.torch_us else None

    @property
    def slower(self) -> bool:
        """By more than measurements differ."""
        return self.ratio is not None and self.ratio > TOLERANCE

    @property
    def ours(self) -> bool:
        """Whether a kernel of this package answers."""
        return self.strategy != "torch_fallback"

    def line(self) -> str:
        """Of the table."""
        order = ("largest" if self.largest else "smallest") + ("" if self.sorted else ", any order")
        measured = f"{self.note} | |"
        if self.us and self.torch_us:
            measured = f"{self.us:.1f} | {self.torch_us:.1f} | {self.us / self.torch_us:.2f}"
        exact = "not checked" if self.wrong is None else "; ".join(self.wrong) or "yes"
        shape = f"{self.rows:,} x {self.cols:,}, {self.k:,}"
        return f"| {shape} | {self.dtype} | {order} | {self.kernel} | {measured} | {exact} |"


HEAD = """\
| rows x columns, k | dtype | | kernel | us | torch.topk us | ratio | exact |
|---|---|---|---|--:|--:|--:|---|"""


def drawn(count: int, seed: int, max_bytes: int = MAX_BYTES) -> Iterator[Problem]:
    """Problems on "cuda", the same for the same arguments."""
    draw = random.Random(seed)

    def between(least: int, most: int) -> int:
        return min(most, int(exp(draw.uniform(log(least), log(most + 1)))))

    while count:
        rows, cols, dtype = between(1, MAX_ROWS), between(MIN_COLS, MAX_COLS), draw.choice(DTYPES)
        k, largest, order = between(1, cols), draw.random() < 0.5, draw.random() < 0.5
        if rows * cols * DTYPE_BYTES[dtype] <= max_bytes:
            count -= 1
            yield Problem.contiguous(rows, cols, k, dtype, largest=largest, sorted=order)


def answered(problem: Problem, device: torch.device, seed: int) -> Answered:
    """Ask, check and time one problem, as far as memory suffices."""
    dtype, size = getattr(torch, problem.dtype), (problem.rows, problem.cols, problem.k)
    order: Order = {"largest": problem.largest, "sorted": problem.sorted}
    wrong, note = None, ""
    times: tuple[float | None, float | None] = None, None
    try:
        x = make("random", *size, dtype, str(device), seed)
        wrong = _problems(x, problem.k, order)
        times = timed(x, problem.k, order)
    except (torch.OutOfMemoryError, MeasurementError) as error:
        note = timing.first_line(error)
    except Exception as error:
        error.add_note(f"asked {problem}, seed {seed}")
        raise
    choice = autotopk.explain_problem(problem, device_of(device)).choice
    name, step = choice.strategy.name, choice.step
    return Answered(
        *size,
        problem.dtype,
        **order,
        kernel=str(choice.candidate),
        strategy=name,
        step=step,
        wrong=wrong,
        us=times[0],
        torch_us=times[1],
        note=note,
    )


def _problems(x: Tensor, k: int, order: Order) -> tuple[str, ...]:
    """What the oracle says, of as many rows at a time as its memory suffices for."""
    values, indices = autotopk.topk(x, k, **order)
    step = max(1, (256 << 20) // x.shape[1])  # sorting takes some 20 bytes of each element, and of each answer
    found = (
        f"from row {first}: {one}"
        for first in range(0, len(x), step)
        for one in problems_with(
            x[first : first + step], values[first : first + step], indices[first : first + step], k, **order
        )
    )
    return tuple(found)


def timed(x: Tensor, k: int, order: Order) -> tuple[float, float]:
    """Microseconds of ours and of torch.topk, in turn. The data are cold: inputs together exceed the L2."""
    copies = timing.input_count(x.nbytes, x.device) - 1
    timer = timing.timer_for([x, *(x.clone() for _ in range(copies))])
    calls = partial(autotopk.topk, k=k, **order), partial(torch_topk, k=k, **order)
    samples = [timer.prepare(call) for call in calls]
    rounds: list[list[float]] = []
    until = time.perf_counter() + ROUNDS_S
    while not rounds or (len(rounds) < ROUNDS and time.perf_counter() < until):
        rounds.append([sample() for sample in samples])
    ours, torchs = map(min, zip(*rounds, strict=True))
    return ours, torchs


def summary(rows: Sequence[Answered]) -> str:
    """What is to be said of all."""
    ratios = [row.ratio for row in rows if row.ratio]
    wrong, checked = sum(bool(row.wrong) for row in rows), sum(row.wrong is not None for row in rows)
    slower, ours = sum(row.slower for row in rows), sum(row.ours for row in rows)
    lines = [
        f"{len(rows)} problems: {checked - wrong} exact, {wrong} wrong, {len(rows) - checked} not checked",
        f"{slower} of {len(ratios)} measured are slower than torch.topk by more than {TOLERANCE - 1:.0%}",
        f"{ours} are answered by kernels of our own",
        f"answered by {dict(Counter(row.strategy for row in rows))}, by step {dict(Counter(row.step for row in rows))}",
    ]
    if ratios:
        mean = exp(fsum(map(log, ratios)) / len(ratios))
        lines.append(f"{1 / mean:.2f} times as fast in geometric mean, {1 / max(ratios):.2f} at worst")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile what is lacking, ask, and tell."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=300)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES, help="of an input")
    options = parser.parse_args(arguments)
    device = torch.empty(0, device=options.device).device  # with its index
    problems = list(drawn(options.count, options.seed, options.max_bytes))
    if device.type == "cuda":
        warmed = autotopk.warmup(problems, device=device)
        print(warmed.conclusion, flush=True)
    rows = []
    for number, problem in enumerate(problems):
        rows.append(answered(problem, device, options.seed + number))
        if device.type == "cuda":
            torch.cuda.empty_cache()
    print(HEAD)
    for row in sorted(
        (row for row in rows if row.slower or not row.ours or row.wrong or row.note), key=lambda row: -(row.ratio or 0)
    ):
        print(row.line())
    print(summary(rows))
    if options.json:
        place = device_of(device)
        document = {
            "seed": options.seed,
            "device": {**asdict(place), "fingerprint": place.fingerprint},
            "rows": [{**asdict(row), "ratio": row.ratio} for row in rows],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
