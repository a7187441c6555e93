"""What a call costs the CPU beside torch.topk: `python scripts/host_times.py FILE`, on a GPU.

Bursts of calls, which the GPU follows behind, are timed in turns: plain, with gradients, with `out=`, torch.topk under
`patch()`, and what falls back. A time is the median over rounds; a ratio the median over rounds of one over the other.
First calls are of drawn shapes that nobody tuned, each timed once, where the kernel was loaded by another shape before.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import torch
from rich.progress import track
from torch import Tensor

import autotopk
from autotopk.cli import bench
from autotopk.runtime import launch
from autotopk.runtime.state import default
from autotopk.workloads import spread

ROUNDS = 41
BURST = 40
"""Calls that wait on the GPU at once."""

FIRST, FIRST_BYTES = 700, 64_000_000
"""Shapes of each way to come by a first call, and bytes of the largest."""

SHAPES = (
    (4, 8, 2),
    (64, 128, 5),
    (4096, 256, 8),
    (64, 4096, 128),
    (10_000, 1000, 10),
    (32, 128_256, 50),
    (64, 32_768, 2048),
    (1, 131_072, 2048),
)
"""Rows, columns, k; float32."""


class Call(NamedTuple):
    """Something to time, whole."""

    run: Callable[[], Any]
    patched: bool = False


class Pair(NamedTuple):
    """Two ways to the same answer."""

    name: str
    ours: Call
    torchs: Call


@dataclass(frozen=True)
class Figure:
    """One pair on one shape."""

    call: str
    shape: str
    autotopk_us: float
    torch_us: float
    ratio: float


def pairs_of(rows: int, cols: int, k: int) -> Iterator[Pair]:
    """The ways to ask for one shape."""
    x = torch.randn(rows, cols, device="cuda")
    leaf = x.clone().requires_grad_()
    out = torch.empty(rows, k, device="cuda"), torch.empty(rows, k, dtype=torch.int64, device="cuda")
    plain = Call(partial(torch.topk, x, k))
    yield Pair("plain", Call(partial(autotopk.topk, x, k)), plain)
    order = Call(partial(torch.topk, x, k, sorted=False))
    yield Pair("any order", Call(partial(autotopk.topk, x, k, sorted=False)), order)
    yield Pair("indices", Call(partial(autotopk.topk_indices, x, k)), plain)
    yield Pair("requires_grad", Call(partial(autotopk.topk, leaf, k)), Call(partial(torch.topk, leaf, k)))
    yield Pair("out=", Call(partial(autotopk.topk, x, k, out=out)), Call(partial(torch.topk, x, k, out=out)))
    yield Pair("patched", plain._replace(patched=True), plain)
    method = Call(partial(x.topk, k))
    yield Pair("patched method", method._replace(patched=True), method)
    graded, into = Call(partial(torch.topk, leaf, k)), Call(partial(torch.topk, x, k, out=out))
    yield Pair("patched requires_grad", graded._replace(patched=True), graded)
    yield Pair("patched out=", into._replace(patched=True), into)


def fallbacks() -> Iterator[tuple[str, Pair]]:
    """What torch.topk answers."""
    asked: Mapping[str, tuple[Tensor, int]] = {
        "no column (64x0 k0)": (torch.empty(64, 0, device="cuda"), 0),
        "k0 (64x128)": (torch.randn(64, 128, device="cuda"), 0),
        "a conjugated view's imaginary part (64x128 k5)": (
            torch.randn(64, 128, device="cuda", dtype=torch.complex64).conj().imag,
            5,
        ),
    }
    for shape, (x, k) in asked.items():
        theirs = Call(partial(torch.topk, x, k))
        yield shape, Pair("falls back", Call(partial(autotopk.topk, x, k)), theirs)
        yield shape, Pair("falls back, patched", theirs._replace(patched=True), theirs)


def first_calls() -> Iterator[Figure]:
    """Of shapes that were not met before, among `FIRST`: one after the other, and each amid calls of a known one.

    What is loaded in its call is left out, and most are in the beginning.
    """
    memory, known = torch.zeros(FIRST_BYTES, dtype=torch.uint8, device="cuda"), torch.randn(64, 128, device="cuda")
    drawn = [one for one in spread(3 * FIRST, seed=3) if one.bytes <= FIRST_BYTES][: 2 * FIRST]
    for name, some in (("one after the other", drawn[:FIRST]), ("amid others", drawn[FIRST:])):
        times = list[tuple[float, float]]()
        for workload in track(some, disable=not sys.stderr.isatty()):
            x = memory[: workload.bytes].view(getattr(torch, workload.dtype)).view(workload.rows, workload.cols)
            if name == "amid others":
                while default.afterwards.pending:
                    time.sleep(0.001)
                burst(Call(partial(autotopk.topk, known, 5)))
            loaded = launch.loaded()
            taken = [once(partial(topk, x, workload.k, sorted=workload.sorted)) for topk in (autotopk.topk, torch.topk)]
            if launch.loaded() == loaded:
                times.append((taken[0], taken[1]))
        ours, theirs = zip(*times, strict=True)
        yield Figure("first call", f"{len(times)} shapes, {name}", median(ours), median(theirs), _ratio(times))


def _ratio(times: Sequence[tuple[float, float]]) -> float:
    return median(mine / other for mine, other in times)


def once(call: Callable[[], object]) -> float:
    """Microseconds of a call."""
    begun = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - begun)


def burst(call: Call) -> float:
    """Microseconds of one call."""
    with autotopk.patch() if call.patched else nullcontext():
        call.run()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(BURST):
            call.run()
        taken = time.perf_counter() - begun
        torch.cuda.synchronize()
    return 1e6 * taken / BURST


def figure(shape: str, pair: Pair) -> Figure:
    """Both in turns."""
    for call in (pair.ours, pair.torchs):
        burst(call)
    rounds = [(burst(pair.ours), burst(pair.torchs)) for _ in range(ROUNDS)]
    ours, theirs = zip(*rounds, strict=True)
    return Figure(pair.name, shape, median(ours), median(theirs), _ratio(rounds))


def main(file: str) -> None:
    """Measure and write."""
    warnings.simplefilter("ignore")
    asked = [(f"{rows}x{cols} k{k}", pair) for rows, cols, k in SHAPES for pair in pairs_of(rows, cols, k)]
    found = [figure(shape, pair) for shape, pair in track([*asked, *fallbacks()], disable=not sys.stderr.isatty())]
    found += first_calls()
    for name in dict.fromkeys(one.call for one in found):
        ratios = [one.ratio for one in found if one.call == name]
        ours = [one.autotopk_us for one in found if one.call == name]
        told = f"{geometric_mean(ratios):.2f} of torch.topk's time, at most {max(ratios):.2f}"
        print(f"{name}: {told}; {median(ours):.1f} us")
    document = bench.document([], torch.device("cuda"), f"python scripts/host_times.py {file}")
    document.pop("summary")
    document["rows"] = [asdict(one) for one in found]
    Path(file).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
