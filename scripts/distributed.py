"""Check and time top-k over ranks: `torchrun --nproc-per-node=2 -m scripts.distributed [--json FILE]`, by NCCL or gloo.

Beside it, what a program would do without: gather all columns and take torch.topk; take torch.topk of every shard and
of what is gathered of these. The floor is the local top-k and one all-gather of the bytes that are exchanged. A time
is the median over turns of the slowest rank's, in microseconds. Aimed at are a third of what gathering all columns
takes, and less than torch.topk before and after a gather.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import autotopk
from autotopk import distributed
from autotopk.cli import bench
from autotopk.lists import lists_of
from autotopk.runtime.agreement import gather_into

SHAPES = ((1, 8_000_000, 100), (64, 65_536, 2048), (32, 65_536, 50))
"""Rows, columns of a shard, k; float32."""
SMALL = ((1, 20_000, 100), (4, 1000, 1500))

EXCHANGED = "sizes exchanged"
GATHERED, LOCAL, FLOOR = "gather, torch.topk", "torch.topk, gather, torch.topk", "floor"
BARS = {GATHERED: 3.0, LOCAL: 1.0}
"""How many times as long as our calls they are to take, at least."""

BACK_TO_BACK = 10
"""Calls of a turn. A call alone, from idle, takes the host several times as long: its caches are cold then."""

STEP_NS = 500_000
"""Of a clock, at whose next but one step all ranks begin."""

Way = Callable[[], Any]


@dataclass
class Row:
    """Of one shape: microseconds by name, of calls back to back, of one from idle, and of replays of a graph."""

    rows: int
    cols: int
    """Of a shard."""
    k: int
    eager_us: dict[str, float] = field(default_factory=dict)
    idle_us: dict[str, float] = field(default_factory=dict)
    graph_us: dict[str, float] = field(default_factory=dict)

    def ratios(self) -> list[str]:
        """Lines that say how our calls compare."""
        lines = []
        for kind, times in {"eager": self.eager_us, "from idle": self.idle_us, "graph": self.graph_us}.items():
            for name in (one for one in times if one not in (*BARS, FLOOR)):
                told = [
                    f"{times[other] / times[name]:.2f}x faster than {other} (bar {bar:g}x)"
                    for other, bar in BARS.items()
                ]
                lines.append(f"  {kind}, {name}: {'; '.join(told)}; {times[name] / times[FLOOR]:.2f}x the floor")
        return lines


def gathered(x: Tensor) -> Tensor:
    """(rows, columns of all ranks)."""
    world = dist.get_world_size()
    everyone = x.new_empty(world * len(x), x.shape[1])
    gather_into(everyone, x)
    return everyone.view(world, *x.shape).transpose(0, 1).flatten(1)


def by_all_columns(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, indices = torch.topk(gathered(x), k)
    return values, indices


def by_local_topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, indices = torch.topk(x, min(k, x.shape[1]))
    all_values, all_indices = gathered(values), gathered(indices + dist.get_rank() * x.shape[1])
    values, places = torch.topk(all_values, k)
    return values, all_indices.gather(1, places)


def floor(x: Tensor, k: int) -> Tensor:
    """Local top-k, and one collective of as many bytes as are exchanged."""
    autotopk.topk(x, min(k, x.shape[1]))
    size = lists_of(len(x), k, [x.shape[1]], x.element_size()).part_bytes
    ours = torch.empty(size, dtype=torch.uint8, device=x.device)
    everyone = ours.new_empty(dist.get_world_size() * ours.numel())
    gather_into(everyone, ours)
    return everyone


def captured(way: Way) -> Way:
    """The same as one CUDA graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            way()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        way()
    return graph.replay


def seconds(way: Way, device: torch.device, calls: int) -> float:
    """Of a call, among so many back to back, between CUDA events, or on the host where there is no GPU."""
    if device.type == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            way()
        return (time.perf_counter() - start) / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        way()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / calls


def begin_together(device: torch.device) -> None:
    """Return on all ranks of a host at once, idle; a barrier alone lets some go 0.1 ms before others."""
    dist.barrier()
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = (time.monotonic_ns() // STEP_NS + 2) * STEP_NS  # of one clock for all processes
    while time.monotonic_ns() < start:
        pass


def slowest_us(ways: dict[str, Way], device: torch.device, rounds: int, calls: int) -> dict[str, float]:
    """The median over rounds of the slowest rank's time of a call, of ways that take turns, so many calls a turn."""
    for way in ways.values():
        for _ in range(3):
            way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin_together(device)
            times[name].append(seconds(way, device, calls))
    all_times = torch.tensor([*times.values()], device=device)
    dist.all_reduce(all_times, dist.ReduceOp.MAX)
    return {name: median(found) * 1e6 for name, found in zip(ways, all_times.tolist(), strict=True)}


def check(x: Tensor, k: int, sizes: list[int]) -> None:
    """Raise where an answer is not exact, or not the same on every rank."""
    whole = gathered(x)
    tried: tuple[dict[str, Any], ...] = ({}, {"stable": True}, {"largest": False}, {"sizes": sizes})
    for options in tried:
        values, indices = distributed.topk(x, k, **options)
        expected = torch.topk(whole, k, largest=options.get("largest", True)).values
        assert torch.equal(values, expected), f"{options}: values differ from torch.topk's"
        assert torch.equal(whole.gather(1, indices), values), f"{options}: values are not those at the indices"
        assert bool((indices.sort(1).values.diff(dim=1) > 0).all()), f"{options}: indices come twice"
        everyone = gathered(indices).unflatten(1, (-1, k))
        assert bool((everyone == indices[:, None]).all()), f"{options}: ranks' answers differ"


def measured(rows: int, cols: int, k: int, device: torch.device, calls: int) -> Row:
    """Check and time one shape; the first rank prints."""
    world, rank, on_gpu = dist.get_world_size(), dist.get_rank(), device.type == "cuda"
    torch.manual_seed(rank)
    x = torch.randn(rows, cols, device=device)
    sizes = [cols] * world
    check(x, k, sizes)
    ways: dict[str, Way] = {
        "sizes given": partial(distributed.topk, x, k, sizes=sizes),
        EXCHANGED: partial(distributed.topk, x, k),
        "stable": partial(distributed.topk, x, k, sizes=sizes, stable=True),
        GATHERED: partial(by_all_columns, x, k),
        LOCAL: partial(by_local_topk, x, k),
        FLOOR: partial(floor, x, k),
    }
    say = print if rank == 0 else lambda *_, **__: None
    say(f"{rows}x({world}x{cols}) k={k}: exact, the same on all ranks", flush=True)
    eager_us, idle_us = (slowest_us(ways, device, calls, each) for each in (BACK_TO_BACK, 1))
    row = Row(rows, cols, k, eager_us, idle_us)
    if on_gpu:
        graphs = {name: captured(way) for name, way in ways.items() if name != EXCHANGED}  # for which the host waits
        row.graph_us = slowest_us(graphs, device, calls, BACK_TO_BACK)
    for name in ways:
        replayed = f", as a graph {row.graph_us[name]:9.1f} us" if name in row.graph_us else ""
        say(f"  {name:32} {eager_us[name]:9.1f} us, from idle {idle_us[name]:9.1f} us{replayed}", flush=True)
    say("\n".join(row.ratios()), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="small shapes, as on a CPU")
    parser.add_argument("--calls", type=int, default=50, help="how many turns are timed")
    parser.add_argument("--json", type=Path, help="where the figures go as well")
    asked = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    shapes = SHAPES if on_gpu and not asked.small else SMALL
    rows = [measured(*shape, device, asked.calls) for shape in shapes]
    if asked.json and dist.get_rank() == 0:
        document = bench.document([], device, " ".join(["torchrun", "-m", "scripts.distributed", *sys.argv[1:]]))
        document.pop("summary")
        found = {"world": dist.get_world_size(), "rows": [asdict(row) for row in rows]}
        asked.json.write_text(json.dumps({**document, **found}, indent=1) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
