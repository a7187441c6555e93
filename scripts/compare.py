"""Is one checkout as fast as another? `python scripts/compare.py OLD NEW FILE [--tag TAG]...` asks both in turn.

Each checkout serves `autotopk.topk` in a process of its own on one GPU. In every round both are sampled once, in a new
shuffled order, so that clocks and heat disturb them alike; a shape's ratio is the median over rounds of NEW's time over
OLD's. Where kernels and tensors lie in memory is worth some percent and differs from process to process: everything is
done PAIRS times with new processes. Winners are those that OLD_DB and NEW_DB name, as AUTOTOPK_DB does; host times are
of whole calls, the best of all bursts.
"""

import json
import os
import random
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch
from rich.progress import track

from autotopk.problem import DTYPE_BYTES
from autotopk.tuning import timing
from autotopk.tuning.race import estimate
from autotopk.workloads import Workload, tagged

PAIRS = 3
ROUNDS = 9
"""Of a pair of processes."""

SERVER = r"""
import json, sys, time, warnings
from itertools import cycle, islice
import torch
import autotopk
warnings.simplefilter("ignore")
torch.manual_seed(0)
stream, graph, calls, call, x = torch.cuda.Stream(), None, 1, None, None

def open_shape(rows, cols, k, dtype, order, inputs, graph_calls):
    global graph, calls, call, x
    graph = x = None
    torch.cuda.empty_cache()
    dtype = getattr(torch, dtype)
    xs = [torch.randn(rows, cols, device="cuda").to(dtype) for _ in range(inputs)]
    call, x, calls = (lambda y: autotopk.topk(y, k, sorted=order)), xs[0], graph_calls
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for y in xs[:3]:
            call(y)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for y in islice(cycle(xs), calls):
                call(y)
    for _ in range(3):
        sample()
    choice = autotopk.explain(x, k, sorted=order)
    return str(choice).splitlines()[1].strip()

def sample(warm_s=0.004):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun, replays = time.perf_counter(), 0
    with torch.cuda.stream(stream):
        while time.perf_counter() - begun < warm_s:  # the GPU idled while the other process was asked
            graph.replay()
            stream.synchronize()
            replays += 1
        start.record(stream)
        for _ in range(replays):
            graph.replay()
        end.record(stream)
        end.synchronize()
    return start.elapsed_time(end) * 1e3 / calls / replays

def host(burst=50):
    for _ in range(burst):
        call(x)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(burst):
        call(x)
    taken = time.perf_counter() - begun
    torch.cuda.synchronize()  # the other process is asked next
    return taken / burst * 1e6

for line in sys.stdin:
    method, *arguments = json.loads(line)
    answer = {"open": open_shape, "sample": sample, "host": host}[method](*arguments)
    print("=" + json.dumps(answer), flush=True)
"""
"""One checkout's end: answers each line of its input with a line. It uses what every version of autotopk has."""


class Checkout:
    """A process that serves one checkout."""

    def __init__(self, folder: Path, winners: str | None) -> None:
        variables = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        variables["AUTOTOPK_BUILD"] = "wait"  # what was measured is compared, not what answers until it is compiled
        if winners:
            variables["AUTOTOPK_DB"] = winners
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *request: Any) -> Any:
        """One request, one answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("="):
                return json.loads(line[1:])
        raise RuntimeError(f"the process ended: exit code {self._process.wait()}")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@dataclass
class Times:
    """Of one workload: microseconds of GPU and of host time, round by round, old beside new."""

    gpu: list[tuple[float, float]] = field(default_factory=list)
    host: list[tuple[float, float]] = field(default_factory=list)
    runs: tuple[str, str] = ("", "")

    def add(self, workload: Workload, checkouts: tuple[Checkout, Checkout], draw: random.Random) -> None:
        """Ask a pair of processes, old and new."""
        shape = (workload.rows, workload.cols, workload.k, workload.dtype, workload.sorted)
        bytes_ = workload.rows * workload.cols * DTYPE_BYTES[workload.dtype]
        inputs = timing.input_count(bytes_, torch.device("cuda"))
        calls = timing.graph_calls(inputs, bytes_)
        old, new = (checkout.ask("open", *shape, inputs, calls) for checkout in checkouts)
        self.runs = (old, new)
        for _ in range(ROUNDS):
            for method, times in (("sample", self.gpu), ("host", self.host)):
                told = {at: checkouts[at].ask(method) for at in draw.sample((0, 1), 2)}
                times.append((told[0], told[1]))

    def row(self, workload: Workload) -> dict[str, Any]:
        """What is to be said of the workload."""
        old, new = zip(*self.gpu, strict=True)
        old_host, new_host = (min(times) for times in zip(*self.host, strict=True))
        gpu = estimate(new, old)
        return {
            "workload": str(workload),
            "old": self.runs[0],
            "new": self.runs[1],
            "old_us": median(old),
            "new_us": median(new),
            "ratio": gpu.ratio,
            "margin": gpu.margin,
            "old_host_us": old_host,
            "new_host_us": new_host,
            "host_ratio": new_host / old_host,
        }


def told(rows: Sequence[dict[str, Any]]) -> str:
    """The geometric means, and the shapes where NEW is slower by more than the margin and 1 %."""
    gpu, host = (geometric_mean(row[name] for row in rows) for name in ("ratio", "host_ratio"))
    lines = [f"{len(rows)} workloads, new over old in geometric mean: GPU time {gpu:.4f}, host time {host:.4f}"]
    slower = [row for row in rows if row["ratio"] - 1 > max(0.01, row["margin"])]
    lines += [
        f"slower: {row['workload']}: {row['old_us']:.2f} -> {row['new_us']:.2f} us, {row['ratio']:.3f} "
        f"+- {row['margin']:.3f}; {row['old']} -> {row['new']}"
        for row in sorted(slower, key=lambda row: -row["ratio"])
    ]
    return "\n".join(lines)


def main() -> None:
    """Compare, print what is to be said, and write every row."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tag", action="append", default=[])
    options = parser.parse_args()
    workloads = dict.fromkeys(one for tag in options.tag or ["seeds", "serving"] for one in tagged(tag))
    times = {workload: Times() for workload in workloads}
    draw = random.Random(0)
    for _ in range(PAIRS):
        pair = Checkout(options.old, os.environ.get("OLD_DB")), Checkout(options.new, os.environ.get("NEW_DB"))
        for workload in track(list(workloads)):
            times[workload].add(workload, pair, draw)
        for checkout in pair:
            checkout.close()
    rows = [its.row(workload) for workload, its in times.items()]
    command = " ".join(["python", *sys.argv])
    document = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "command": command, "rows": rows}
    options.file.write_text(json.dumps(document, indent=1) + "\n")
    print(told(rows))


if __name__ == "__main__":
    main()
