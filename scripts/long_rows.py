"""Long rows: `python scripts/long_rows.py [--json FILE] [--adversarial] [--every STRATEGY]`, on a GPU.

Each shape is asked of `autotopk.topk` in order and in any order and of `autotopk.topk_indices` in any order, whichever
kernel dispatch chooses, beside torch.topk: microseconds of a call in a CUDA graph, data cold where many inputs exceed
the L2. `bar` is what is aimed at. With `--adversarial` every named input is answered by that kernel, checked, and timed
as a multiple of the time for random data. `--every` times, in order, the configurations that a strategy shortlists
instead.
"""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import autotopk
from autotopk import registry
from autotopk.device import device_of
from autotopk.oracle import inputs
from autotopk.oracle.reference import problems_with
from autotopk.problem import Problem
from autotopk.runtime import launch
from autotopk.strategy import Config, Strategy
from autotopk.torch_topk import torch_topk
from autotopk.tuning import timing
from autotopk.tuning.compile_pool import CompilePool

SAMPLES = 5
MOST_ADVERSARIAL = 40_000_000
"""Elements of the largest inputs that named ones are made for: making them takes several times their memory."""


class Shape(NamedTuple):
    """A question, with the microseconds that are aimed at."""

    rows: int
    cols: int
    k: int
    dtype: str
    bar_any: float
    """In any order."""
    bar: float
    """In order."""

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}, {self.k}, {self.dtype}"

    def problem(self, device: torch.device, order: bool = True) -> Problem:
        """The same on a device."""
        return Problem.contiguous(self.rows, self.cols, self.k, self.dtype, device.type, sorted=order)


SHAPES = (
    Shape(64, 4096, 128, "float32", 3.2, 3.7),
    Shape(64, 8192, 128, "float32", 4.2, 4.7),
    Shape(64, 8192, 256, "float32", 4.4, 4.9),
    Shape(64, 32_768, 1024, "float32", 8.8, 9.2),
    Shape(64, 32_768, 2048, "float32", 9.8, 10.5),
    Shape(64, 32_768, 2048, "bfloat16", 9.8, 10.5),
    Shape(128, 32_768, 256, "float32", 9.5, 10),
    Shape(1, 131_072, 2048, "float32", 7.6, 9.5),
    Shape(1, 262_144, 2048, "float32", 9, 11),
    Shape(1, 524_288, 2048, "float32", 11, 13),
    Shape(8, 131_072, 2048, "float32", 9.8, 12),
    Shape(16, 1_048_576, 2048, "float32", 38, 41),
    Shape(256, 131_072, 2048, "float32", 55, 65),
    Shape(4096, 8192, 2048, "float32", 82, 135),
    Shape(4096, 4096, 1024, "float32", 56, 85),
    Shape(1, 128_256, 50, "float32", 5.3, 5.5),
    Shape(32, 128_256, 50, "float32", 14, 14),
    Shape(32, 128_256, 50, "bfloat16", 11, 11),
    Shape(256, 151_936, 64, "float32", 47, 49),
    Shape(256, 151_936, 64, "bfloat16", 26, 27),
    Shape(512, 32_000, 256, "float32", 28, 30),
    Shape(1000, 100_000, 10, "float32", 115, 115),
    Shape(100, 1_000_000, 64, "float32", 105, 105),
    Shape(1, 1_048_576, 100, "float32", 11, 11.5),
    Shape(1, 10_000_000, 100, "float32", 30, 31),
    Shape(1, 100_000_000, 32, "float32", 160, 160),
)


@dataclass(frozen=True)
class Row:
    """Of one shape. Times are microseconds."""

    rows: int
    cols: int
    k: int
    dtype: str
    bar_any: float
    bar: float
    kernel: str
    """What answers in order."""
    step: str
    sorted_us: float
    any_us: float
    indices_us: float
    torch_us: float
    cold: bool
    wrong: tuple[str, ...]
    """What the oracle says, with the name of the input; empty where all is right."""
    named: dict[str, float] = field(default_factory=dict)
    """Times of named inputs over that of random data."""

    def line(self) -> str:
        """Of the table."""
        worst = max(self.named, key=self.named.__getitem__, default="")
        cells = (
            f"{self.rows:,} x {self.cols:,}, {self.k:,}",
            self.dtype,
            f"{self.bar_any:g}",
            f"{self.any_us:.1f}",
            f"{self.bar:g}",
            f"{self.sorted_us:.1f}",
            f"{self.indices_us:.1f}",
            f"{self.torch_us:.1f}",
            self.kernel,
            f"{worst} {self.named[worst]:.2f}" if worst else "",
            "; ".join(self.wrong) or "yes",
        )
        return f"| {' | '.join(cells)} |"


HEAD = """\
| rows x columns, k | dtype | bar, any order | any order | bar, in order | in order | indices | torch.topk | kernel in order | slowest input | exact |
|---|---|--:|--:|--:|--:|--:|--:|---|---|---|"""  # noqa: E501


def measured(shape: Shape, device: torch.device, adversarial: bool) -> Row:
    """Time and check one shape."""
    problem = shape.problem(device)
    xs = timing.random_inputs(problem, device)
    timer = timing.timer_for(xs)
    in_order: timing.Run = partial(autotopk.topk, k=shape.k)
    calls: tuple[timing.Run, ...] = (
        in_order,
        partial(autotopk.topk, k=shape.k, sorted=False),
        partial(autotopk.topk_indices, k=shape.k, sorted=False),
        partial(torch_topk, k=shape.k),
    )
    in_order_us, any_us, indices_us, torch_us = (timer.median_us(call, SAMPLES) for call in calls)
    wrong = [f"random: {one}" for one in _problems(xs[0], in_order, shape.k)]
    choice = autotopk.explain(xs[0], shape.k).choice
    named: dict[str, float] = {}
    if adversarial and shape.rows * shape.cols <= MOST_ADVERSARIAL:
        sample = timer.prepare(in_order)
        for name, x in _named(shape, device):
            wrong += [f"{name}: {one}" for one in _problems(x, in_order, shape.k)]
            timer.fill(x)
            named[name] = min(sample() for _ in range(2)) / in_order_us
    return Row(
        **shape._asdict(),
        kernel=str(choice.candidate),
        step=choice.step,
        sorted_us=in_order_us,
        any_us=any_us,
        indices_us=indices_us,
        torch_us=torch_us,
        cold=timer.cold,
        wrong=tuple(wrong),
        named=named,
    )


def _problems(x: Tensor, run: timing.Run, k: int) -> list[str]:
    values, indices = run(x)
    return problems_with(x, values, indices, k)


def _named(shape: Shape, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    dtype = getattr(torch, shape.dtype)
    for name in inputs.names_for(dtype):
        yield name, inputs.make(name, shape.rows, shape.cols, shape.k, dtype, str(device))


def every(strategy: Strategy, shape: Shape, device: torch.device, pool: CompilePool) -> Iterator[tuple[float, Config]]:
    """(microseconds, configuration) of all that are shortlisted and can be compiled, the quickest first."""
    problem, place = shape.problem(device), device_of(device)
    configs = [] if strategy.reasons_unable(problem, place) else list(strategy.shortlist(problem, place))
    pool.submit(problem, map(strategy.candidate, configs))
    by_candidate = {strategy.candidate(config): config for config in configs}
    xs = timing.random_inputs(problem, device)
    timer, found = timing.timer_for(xs), []
    for candidate, build in pool.ready(problem, by_candidate, float("inf")):
        if build.status != "ok":
            print(f"  {candidate}: {build.error}")
            continue
        program = strategy.program(by_candidate[candidate], problem, place)
        run: Callable[[Tensor], Any] = launch.bind(program, problem, place, index=device.index, build=False)
        for wrong in _problems(xs[0], run, shape.k):
            print(f"  {candidate}: {wrong}")
        found.append((timer.median_us(run, SAMPLES), by_candidate[candidate]))
    yield from sorted(found, key=lambda one: one[0])


def table(shapes: Sequence[Shape], device: torch.device, adversarial: bool) -> Iterator[Row]:
    """Measure, and print a line of every shape."""
    autotopk.warmup(shape.problem(device, order) for shape in shapes for order in (True, False))
    print(HEAD)
    for shape in shapes:
        row = measured(shape, device, adversarial)
        print(row.line(), flush=True)
        yield row
        _free(device)


def compare(strategy: Strategy, shapes: Iterable[Shape], device: torch.device) -> Iterator[dict[str, Any]]:
    """Measure, and print the five best of every shape."""
    pool = CompilePool(device_of(device))
    try:
        for shape in shapes:
            found = list(every(strategy, shape, device, pool))
            print(f"{shape}:", "; ".join(f"{us:.1f} {config}" for us, config in found[:5]) or "none", flush=True)
            yield {**shape._asdict(), "points": [{"us": us, **asdict(config)} for us, config in found]}
            _free(device)
    finally:
        pool.close()


def _free(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None, shapes: Sequence[Shape] = SHAPES) -> None:
    """Measure what is asked for."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--adversarial", action="store_true")
    parser.add_argument("--every", metavar="STRATEGY")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    device = torch.empty(0, device=options.device).device  # with its index
    if options.every:
        rows = list(compare(registry.get(options.every), shapes, device))
    else:
        rows = [asdict(row) for row in table(shapes, device, options.adversarial)]
    if options.json:
        place = device_of(device)
        document = {"device": {**asdict(place), "fingerprint": place.fingerprint}, "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
