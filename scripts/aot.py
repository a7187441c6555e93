"""Models of one top-k, compiled by AOTInductor and run by a C++ program: ours beside torch.topk in the same process.

`make test-aot ARGS="--out docs/figures/aot"` builds every shape four ways, checks the answers against eager ones and
times them in turn:

torch       as exported
triton      with a Triton kernel of ours embedded
library     with calls of the C++ library, direct
dispatched  the same by torch's dispatcher, as any custom operator

Exit code 1 where an answer is wrong, where a package of ours asks for torch's own top-k, or where it is not fast
enough: in geometric mean `FASTER` times torch.topk's GPU time, and no whole call slower than torch.topk's.
"""

import json
import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import torch

from autotopk import export
from autotopk.cli import bench
from autotopk.oracle.reference import problems_with
from autotopk.workloads import tagged

WAYS = ("torch", "triton", "library", "dispatched")
OURS = WAYS[1:]
SHAPES = [*((one.rows, one.cols, one.k) for one in tagged("executorch") if one.sorted), (64, 4096, 64)]
FASTER = 5.0
COMMAND = 'make test-aot ARGS="--out docs/figures/aot"'
TORCHS = re.compile(r" U aoti_torch_(?:cpu|cuda)_topk$", re.MULTILINE)

Shape = tuple[int, int, int]


class Model(torch.nn.Module):
    """Top k of rows."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = torch.topk(x, self.k)
        return values, indices


@dataclass(frozen=True)
class Built:
    """A package, and what is beside it."""

    way: str
    shape: Shape
    package: Path
    plans: Path | None
    by: str
    asks_torch: bool
    """It calls torch's own top-k."""


def build(way: str, shape: Shape, folder: Path, device: str) -> Built:
    """Compile one model."""
    rows, cols, k = shape
    name = f"{way}_{rows}x{cols}_{k}"
    program = torch.export.export(Model(k), (torch.randn(rows, cols, device=device),))
    plans, by, configs = None, "torch.topk", {}
    if way != "torch":
        found = export.replace_topk(program, "triton" if way == "triton" else "library", always=True)
        by = str(found.sites[0])
        configs = {} if way == "dispatched" else dict(found.inductor_configs)
        plans = found.write_plans(folder / f"{name}.plans") if found.plans else None
    package = folder / f"{name}.pt2"
    torch._inductor.aoti_compile_and_package(program, package_path=str(package), inductor_configs=configs)
    return Built(way, shape, package, plans, by, asks_torch(package))


def asks_torch(package: Path) -> bool:
    """Whether a package's code has torch's own top-k among its undefined symbols."""
    with TemporaryDirectory() as folder, ZipFile(package) as archive:
        for name in archive.namelist():
            if name.endswith(".so"):
                symbols = subprocess.run(["nm", "-D", archive.extract(name, folder)], capture_output=True, text=True)
                if TORCHS.search(symbols.stdout):
                    return True
    return False


def run(built: Sequence[Built], folder: Path, device: str, rounds: int) -> list[dict[str, Any]]:
    """Run and time all packages in one process without Python; its lines, in the order of the packages."""
    command = [str(export.runner()), "--device", device, "--rounds", str(rounds)]
    if any(one.way in ("library", "dispatched") for one in built):
        command += ["--library", str(export.library())]
    for one in built:
        rows, cols, k = one.shape
        command += [str(one.package), str(folder / f"{rows}x{cols}.pt"), str(one.package.with_suffix(""))]
    plans = ":".join(str(one.plans) for one in built if one.plans)
    environment = {**os.environ, "AUTOTOPK_PLANS": plans}
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    sys.stderr.write(found.stderr)
    if found.returncode:
        done = len(found.stdout.splitlines())
        raise SystemExit(f"the runner ended with {found.returncode} after {done} of {len(built)} packages")
    return [json.loads(line) for line in found.stdout.splitlines()]


def wrong(one: Built, folder: Path, device: str) -> list[str]:
    """What is wrong with a package's answer."""
    rows, cols, k = one.shape
    values, indices = (torch.load(one.package.with_suffix(f".{at}.pt")).to(device) for at in (0, 1))
    return problems_with(torch.load(folder / f"{rows}x{cols}.pt").to(device), values, indices, k)


Times = dict[str, dict[str, dict[str, float]]]
"""By shape, way, and what was timed: call_us, host_us, gpu_us."""


def ratios(times: Times, way: str, what: str) -> float:
    """How many times as fast as torch.topk, in geometric mean over shapes."""
    return geometric_mean(ways["torch"][what] / ways[way][what] for ways in times.values())


def page(content: dict[str, Any]) -> str:
    """What was measured, as a page."""
    times: Times = content["times_us"]
    ways = [way for way in WAYS if all(way in one for one in times.values())]
    heads = [f"{way}, {what}" for what in ("GPU", "call") for way in ways]
    where, torchs = content["device"]["name"], content["versions"]["torch"]
    lines = [
        f"{where}, torch {torchs}, {content['date'][:10]}, commit {content['commit'][:10]},",
        f"`{content['command']}`: microseconds of one call, sorted float32.",
        "",
        "| rows, cols, k | " + " | ".join(heads) + " |",
        "|---" * (1 + len(heads)) + "|",
    ]
    for shape, one in times.items():
        cells = [one[way][what] for what in ("gpu_us", "call_us") for way in ways]
        lines.append(f"| {shape.strip('()')} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")
    lines.append("")
    for way in ways[1:]:
        told = ", ".join(
            f"{ratios(times, way, what):.1f} {where}"
            for what, where in (("gpu_us", "on the GPU"), ("call_us", "in whole calls"), ("host_us", "on the host"))
        )
        lines.append(f"- {way}: times torch.topk's speed, in geometric mean: {told}.")
    return "\n".join(lines) + "\n"


def write(folder: Path, content: dict[str, Any]) -> None:
    """The measurements and their page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "times.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "times.md").write_text(page(content))


def main() -> int:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, help="folder for a JSON file of all times")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=min(14, os.cpu_count() or 1))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="so many of them")
    options = parser.parse_args()
    shapes, device = SHAPES[-options.shapes :], options.device
    ways = WAYS if device == "cuda" else ("torch", "library", "dispatched")
    export.library(), export.runner()
    with TemporaryDirectory() as name:
        folder = Path(name)
        for rows, cols, k in shapes:
            torch.manual_seed(rows + cols + k)
            torch.save(torch.randn(rows, cols), folder / f"{rows}x{cols}.pt")
        pool = ProcessPoolExecutor(options.processes, mp_context=get_context("spawn"))
        with pool:
            jobs = [pool.submit(build, way, shape, folder, device) for shape in shapes for way in ways]
            built = [job.result() for job in jobs]
        print(f"{len(built)} packages built", flush=True)
        lines = run(built, folder, device, options.rounds)
        faults = [f"{one.way} {one.shape}: {what}" for one in built for what in wrong(one, folder, device)]
    faults += [
        f"{one.way} {one.shape} asks for torch's top-k" for one in built if one.way != "torch" and one.asks_torch
    ]
    times: Times = {str(shape): {} for shape in shapes}
    for one, line in zip(built, lines, strict=True):
        times[str(one.shape)][one.way] = {key: value for key, value in line.items() if key != "model"}
    for one in built:
        print(f"{one.way}: {one.by}")
    if device == "cuda":
        faults += slow(times)
        content = bench.document([], torch.device(device), COMMAND) | {"times_us": times}
        content["by"] = {f"{one.way} {one.shape}": one.by for one in built}
        content["commit"] = content["commit"] or "unknown"
        for name in ("rows", "summary"):
            del content[name]
        print(page(content))
        if options.out:
            write(options.out, content)
    print("\n".join(faults) or "every answer right")
    return 1 if faults else 0


def slow(times: Times) -> list[str]:
    """Where ours is not fast enough."""
    ways = [way for way in OURS if all(way in one for one in times.values())]
    found = [
        f"{way} is {speed:.2f} times as fast on the GPU, not {FASTER}"
        for way in ways
        if (speed := ratios(times, way, "gpu_us")) < FASTER
    ]
    return found + [
        f"{way} {shape}: a call takes {one[way]['call_us']:.1f} us, torch.topk's {one['torch']['call_us']:.1f}"
        for shape, one in times.items()
        for way in ways
        if one[way]["call_us"] > one["torch"]["call_us"]
    ]


if __name__ == "__main__":
    sys.exit(main())
