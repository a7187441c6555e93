"""What a shipped kernel must answer rightly before it is used on a kind of GPU that nobody has tried it on.

Every kernel of the ladders has a problem here that it serves, and answers every named input of `oracle.inputs`: pairs
and indices alone, largest and smallest, sorted and not, as far as one kernel does it all. `self_check` runs this module
as a process of its own, because a broken kernel takes its process with it.
"""

import json
import random
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from autotopk import packs, registry
from autotopk.device import Device, cuda_device
from autotopk.errors import AutotopkError, WrongAnswerError
from autotopk.oracle.inputs import make, names_for
from autotopk.oracle.reference import problems_with
from autotopk.problem import (
    ANSWERS,
    DTYPE_BYTES,
    KTH,
    MERGED,
    VECTOR_BYTES,
    WEIGHTS,
    WINDOWS,
    MemoryLayout,
    Problem,
    vector_width,
)
from autotopk.program import KernelProgram
from autotopk.routing import LOGITS, SCORINGS, Routing
from autotopk.runtime.launch import bind
from autotopk.runtime.trial import Trial
from autotopk.runtime.views import Run
from autotopk.strategy import Config, Strategy
from autotopk.workloads import tagged

MAX_BYTES = 32 << 20
"""Largest input."""

DRAWS = 20_000
"""Problems that are looked at for kernels that none has been found for."""

_COLS = (1, 2, 3, 5, 8, 13, 16, 31, 32, 33, 64, 100, 128, 200, 256, 300, 512, 700, 1000, 1024, 1500, 2048, 3000, 4096)
_LONG = (
    5000,
    8192,
    10_000,
    16_384,
    20_000,
    32_768,
    50_000,
    65_536,
    100_000,
    131_072,
    262_144,
    500_000,
    1 << 20,
    8 << 20,
)
_KS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1000, 1024, 2048, 4096, 8192, 16_384)
_ROWS = (1, 3, 16, 100, 1000, 10_000, 50_000)


@dataclass(frozen=True)
class Case:
    """A problem of some kernels."""

    strategy: Strategy
    config: Config
    problem: Problem
    kernels: tuple[str, ...]
    """Names in the pack, launch by launch."""

    def variants(self, device: Device) -> list[Problem]:
        """The problem, and what else the same kernels answer."""
        one = self.problem
        others: Iterable[Problem]
        if one.operation in (WINDOWS, MERGED):
            others = (replace(one, largest=largest) for largest in (True, False))
        elif one.routing is None:
            orders = product((True, False), (True, False), (*ANSWERS, KTH))
            others = (replace(one, largest=largest, sorted=order, answer=answer) for largest, order, answer in orders)
        else:
            rules = [
                replace(one.routing, scoring=scoring, renormalize=raw)
                for scoring, raw in product(SCORINGS, (True, False))
            ]
            others = (replace(one, routing=rule, answer=answer) for rule, answer in product(rules, WEIGHTS))
        own = self._sources(self.problem, device)
        return [one for one in others if self._sources(one, device) == own]

    def _sources(self, problem: Problem, device: Device) -> tuple[Any, ...] | None:
        if self.strategy.reasons_unable(problem, device) or not self.strategy.valid(self.config, problem, device):
            return None  # what sorts nothing may answer in any order alone
        return self.strategy.program(self.config, problem, device).sources


def cases(device: Device, names: Collection[str], arch: int, problems: Iterator[Problem] | None = None) -> list[Case]:
    """Cases that all kernels of these names occur in, as far as one is found, of a pack's compute capability."""
    found: list[Case] = []
    missing = {
        strategy.name: {packs.name_of(source, arch) for source in strategy.rungs(device.arch)} & {*names}
        for strategy in registry.built_in()
    }
    for problem in _problems() if problems is None else problems:
        for strategy in registry.built_in():
            if missing[strategy.name] and not strategy.reasons_unable(problem, device):
                for config in strategy.ladder(problem, device):
                    kernels = _kernels(strategy.program(config, problem, device), arch)
                    if missing[strategy.name].intersection(kernels) and {*names}.issuperset(kernels):
                        missing[strategy.name].difference_update(kernels)
                        found.append(Case(strategy, config, problem, kernels))
        if not any(missing.values()):
            break
    return found


def check(case: Case, device: Device, place: torch.device) -> None:
    """Ask for everything. Raises WrongAnswerError, and whatever a kernel raises."""
    variants, dtype = case.variants(device), getattr(torch, case.problem.dtype)
    names, runs = names_for(dtype), dict[Problem, Run]()
    for turn, name in enumerate(names * 2):
        problem = variants[(turn + turn // len(names)) % len(variants)]  # another one in the second round
        x = make(name, problem.rows, problem.cols, problem.k, dtype, str(place), turn)
        if problem not in runs:
            run = bind(case.strategy.program(case.config, problem, device), problem, device)
            runs[problem] = Trial.of(problem, str(place)).call(run)
        if wrong := wrong_with(runs[problem], problem, x):
            raise WrongAnswerError(f"{problem}, {name}: {wrong[0]}")


def wrong_with(run: Run, problem: Problem, x: Tensor) -> list[str]:
    """What the oracle says to the answer for rows of a contiguous tensor, laid out as the problem says."""
    layout, rows, cols, k = problem.layout, problem.rows, problem.cols, problem.k
    start = 0 if layout.aligned else 1
    memory = torch.empty(start + layout.extent(rows, cols), dtype=x.dtype, device=x.device)
    outer, beside = rows // layout.inner, layout.inner
    strides = (layout.row_stride, 1, layout.col_stride)
    placed = memory.as_strided((outer, beside, cols), strides, start)
    placed.copy_(x.view(outer, beside, cols))
    answer = run(placed)
    if problem.operation:
        return Trial.of(problem, str(x.device)).problems_with(x, answer)
    if problem.answer == "pairs":
        values, indices = (_rows(one, layout, rows, k) for one in answer)
    else:
        indices = _rows(answer, layout, rows, k).long()
        bits = getattr(torch, f"int{8 * x.itemsize}")  # gathering floats makes signalling NaNs quiet
        values = x.view(bits).gather(1, indices.clamp(0, cols - 1)).view(x.dtype)
    return problems_with(x, values, indices, k, largest=problem.largest, sorted=problem.sorted)


def _rows(answer: Tensor, layout: MemoryLayout, rows: int, k: int) -> Tensor:
    """(rows, k) of what a kernel wrote."""
    if not layout.side_by_side:
        return answer.view(rows, k)
    return answer.view(rows // layout.inner, k, layout.inner).transpose(1, 2).reshape(rows, k).contiguous()


def _kernels(program: Any, arch: int) -> tuple[str, ...]:
    if not isinstance(program, KernelProgram):
        return ()
    return tuple(packs.name_of(source, arch) for source in program.sources)


def _problems() -> Iterator[Problem]:
    """Those that are tuned, in all formats of floats, then drawn ones, the same every time."""
    for tag in ("seeds", "serving", "routing", "selector"):
        for workload in tagged(tag):
            if workload.bytes <= MAX_BYTES:
                for dtype in dict.fromkeys((workload.dtype, "float32", "float16", "bfloat16")):
                    yield replace(workload, dtype=dtype).problem("cuda")
    draw, draw_router = random.Random(0), random.Random(0)
    for _ in range(DRAWS):
        dtype = draw.choice([*DTYPE_BYTES, "float32", "float32", "float16", "bfloat16"])
        cols = draw.choice((*_COLS, *_LONG)) + draw.choice((0, 0, 0, -1, 1))
        cols = max(1, min(cols, MAX_BYTES // DTYPE_BYTES[dtype]))
        rows = min(draw.choice(_ROWS), max(1, MAX_BYTES // DTYPE_BYTES[dtype] // cols))
        k = min(cols, draw.choice((*_KS, cols, max(1, cols // 2))))
        order = draw.random() < 0.7
        problem = Problem.contiguous(rows, cols, k, dtype, largest=draw.random() < 0.5, sorted=order)
        yield replace(problem, layout=_layout(draw.randrange(4), rows, cols, DTYPE_BYTES[dtype]))
        yield replace(problem, answer=MERGED, sorted=True)
        if dtype in LOGITS:
            yield replace(problem, answer=WINDOWS, stable=True)
        if dtype in LOGITS and problem.largest and cols <= 2048:
            yield from _routers(problem, draw_router)
    for _ in range(DRAWS):  # rungs of short rows begin and end at lengths of their own
        cols, dtype = draw.randint(1, 2048), draw.choice(LOGITS)
        k = draw.randint(1, min(cols, draw.choice((4, 16, 64))))
        yield Problem.contiguous(draw.choice(_ROWS[:4]), cols, k, dtype, largest=draw.random() < 0.5)


def _routers(problem: Problem, draw: random.Random) -> Iterator[Problem]:
    """The same of a router: with a bias or without, of all groups or of some."""
    layout = _layout(draw.randrange(3), problem.rows, problem.cols, problem.itemsize)
    sizes = [
        size
        for size in (4, 8, 16, 20, 32, 50, 64, 100, 128, 256)
        if problem.cols % size == 0 and 2 * size <= problem.cols
    ]
    groups = problem.cols // draw.choice(sizes) if sizes and draw.random() < 0.6 else 1
    rule = Routing(draw.choice(SCORINGS), draw.random() < 0.7, True, groups, max(1, groups // 2))
    k = min(problem.k, rule.candidates(problem.cols))
    if k <= 64:
        yield replace(problem, k=k, sorted=True, answer="weights", routing=rule, layout=layout)


def _layout(kind: int, rows: int, cols: int, itemsize: int) -> MemoryLayout:
    """Back to back; apart, beginning nowhere even; apart and aligned; side by side."""
    if kind == 3 and cols > 1:
        inner = next(count for count in (16, 7, 3, 2, 1) if rows % count == 0)
        return MemoryLayout(inner * cols, col_stride=inner, inner=inner)
    row_stride = {1: cols + 3, 2: -(-cols // VECTOR_BYTES) * VECTOR_BYTES + VECTOR_BYTES}.get(kind, cols)
    address = itemsize if kind == 1 else 0
    return MemoryLayout(row_stride, vector=vector_width(address, row_stride, cols, itemsize), aligned=kind != 1)


def serve(names: Collection[str], index: int, tell: Callable[[Mapping[str, Any]], None]) -> None:
    """Check kernels of these names in the pack that serves a device, telling each step and the end."""
    device, place = cuda_device(index), torch.device("cuda", index)
    shipped, served = packs.here(), packs.serving(device.arch)
    pack = None if shipped is None else shipped.pack(device.arch)
    if shipped is None or pack is None or served is None:
        return
    shipped.unchecked = True
    found = cases(device, pack.kernels, served)
    tell({"status": "unasked", "kernels": sorted({*names}.difference(*(case.kernels for case in found)))})
    todo = [case for case in found if {*names}.intersection(case.kernels)]
    torch.cuda.set_device(place)
    for at, case in enumerate(todo):
        told = {"kernels": case.kernels, "left": len(todo) - at, "what": f"{case.strategy.name} {case.problem}"}
        tell({**told, "status": "begun"})
        try:
            check(case, device, place)
            torch.cuda.synchronize(place)
        except (AutotopkError, RuntimeError) as error:
            tell({**told, "status": "failed", "why": f"{type(error).__name__}: {str(error).splitlines()[0]}"})
            if not isinstance(error, AutotopkError):  # an error of CUDA stays with its process
                return
        else:
            tell({**told, "status": "passed"})
    tell({"status": "finished"})


def main() -> None:
    """The process: a line of JSON says what to check, lines of JSON say what happens."""
    request = json.loads(sys.stdin.readline())
    serve(request["names"], request["index"], lambda told: print(json.dumps(told), flush=True))  # noqa: T201


if __name__ == "__main__":
    main()
