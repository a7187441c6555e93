"""What the constants of the radix families decide, measured on this GPU.

`python scripts/radix.py FILE [CONSTANT]...` writes JSON, of all constants or of those alone. Around every threshold
it times both sides of the decision, each as it would run where nothing was measured.
"""

import importlib
import json
import multiprocessing
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.progress import track

from autotopk import registry
from autotopk.cli import bench
from autotopk.device import Device, device_of
from autotopk.errors import AutotopkError
from autotopk.kernel import Kernel, KernelSource
from autotopk.oracle import inputs
from autotopk.problem import Problem
from autotopk.program import KernelProgram
from autotopk.runtime import launch
from autotopk.strategies._radix.limits import most_items
from autotopk.strategies._radix.shortlists import SORTED, least_cluster, usual_items, wanted_capacity
from autotopk.strategies._radix.strategy import RadixStrategy
from autotopk.strategies.block_radix import BlockRadixConfig
from autotopk.strategies.cluster_radix import ClusterRadixConfig
from autotopk.strategy import Config
from autotopk.tuning import timing

CROWD_MODULE = "autotopk.strategies._radix.device.intervals"
CLUSTERS = (2, 4, 8, 16)
TORCH = "torch.topk"


@dataclass(frozen=True)
class Side:
    """One side of a decision: a configuration of a strategy, or of a kernel with another CROWD than is written."""

    strategy: str
    config: Config
    crowd: int | None = None


@dataclass(frozen=True)
class Question:
    """What a constant decides for one problem."""

    constant: str
    at: int
    """Where the problem lies, in the constant's unit; 0 where the sides differ in that."""
    problem: Problem
    sides: Mapping[str, Side]
    names: tuple[str, ...] = ("random",)
    """Inputs to time."""
    torch: bool = False
    """Whether torch.topk is one of the sides."""


@dataclass(frozen=True)
class Build:
    """What compiling a side gave: a kernel, or why there is none."""

    kernel: Kernel | None
    error: str = ""


Builds = Mapping[tuple[KernelSource, int | None], Build]
"""By what is compiled, and with which CROWD."""


@dataclass(frozen=True)
class Built(KernelSource):
    """A kernel that was compiled before, and belongs to no cache."""

    kernel: Kernel = field(repr=False)

    def cache_key(self) -> str:
        """Not to be cached."""
        raise NotImplementedError

    def compile(self, arch: int) -> Kernel:
        """See KernelSource."""
        return self.kernel

    def load(self, arch: int) -> Kernel:
        """The kernel as it is."""
        return self.kernel


def questions(device: Device) -> Iterator[Question]:
    """Of every constant, in the order of the report."""
    yield from masked_questions(device)
    yield from min_cols_questions(device)
    yield from lone_questions(device)
    yield from cluster_questions(device)
    yield from crowd_questions()
    yield from owned_questions()
    yield from sorted_questions(device)


def masked_questions(device: Device) -> Iterator[Question]:
    """masked_argmax against block_radix by k times the columns; integers, which lane_merge leaves to them."""
    for rows in (1, 1024):
        for cols in (256, 1024, 4096):
            for work in (1 << bits for bits in range(10, 17)):
                if 1 <= (k := work // cols) <= 128:
                    problem = Problem.contiguous(rows, cols, k, "int32")
                    masked = Side("masked_argmax", registry.get("masked_argmax").heuristic(problem, device))
                    sides = {"masked_argmax": masked, "block_radix": lone(problem, device)}
                    yield Question("MASKED", work, problem, sides)


def min_cols_questions(device: Device) -> Iterator[Question]:
    """A block against clusters for one short row."""
    for cols in (2048, 3072, 4096, 6144, 8192, 12288, 16384):
        problem = Problem.contiguous(1, cols, 100)
        yield Question("MIN_COLS", cols, problem, {"block_radix": lone(problem, device), **clusters(problem, device)})


def lone_questions(device: Device) -> Iterator[Question]:
    """A block against torch.topk for one long row."""
    for size in (1 << bits for bits in range(18, 24)):
        problem = Problem.contiguous(1, size // 4, 100)
        yield Question("MAX_LONE_BYTES", size, problem, {"block_radix": lone(problem, device)}, torch=True)


def cluster_questions(device: Device) -> Iterator[Question]:
    """A block against clusters for few rows."""
    for rows in (1, 8, 33):
        for size in (1 << bits for bits in range(14, 20)):
            problem = Problem.contiguous(rows, size // 4, 100)
            sides = {"block_radix": lone(problem, device), **clusters(problem, device)}
            yield Question("MIN_CLUSTER_BYTES", size, problem, sides)


def crowd_questions() -> Iterator[Question]:
    """How many survivors of one interval are compared with each other before it is divided again."""
    shapes = (
        (Problem.contiguous(4096, 4096, 1024), BlockRadixConfig(256, 16, 11, 2048, 4)),
        (Problem.contiguous(64, 32768, 2048), BlockRadixConfig(1024, 32, 11, 4096, 4)),
    )
    for problem, config in shapes:
        sides = {str(crowd): Side("block_radix", config, crowd) for crowd in (16, 32, 48, 64, 96)}
        yield Question("CROWD", 0, problem, sides, names=inputs.names_for(torch.float32))


def owned_questions() -> Iterator[Question]:
    """How many survivors a thread can sort: as many for fewer threads, and more for as many threads."""
    for rows in (64, 4096):
        problem = Problem.contiguous(rows, 4096, 1024)
        layouts = {
            "8 of 512": BlockRadixConfig(512, 8, 11, 4096, 4),
            "16 of 256": BlockRadixConfig(256, 16, 11, 4096, 4),
            "32 of 128": BlockRadixConfig(128, 32, 11, 4096, 4),
            "8 of 256": BlockRadixConfig(256, 16, 11, 2048, 4),
            "32 of 256": BlockRadixConfig(256, 16, 11, 8192, 4),
        }
        sides = {name: Side("block_radix", config) for name, config in layouts.items()}
        yield Question("MAX_OWNED", 0, problem, sides)


def sorted_questions(device: Device) -> Iterator[Question]:
    """Many rows longer than registers: blocks that sample more or less of them, clusters, and split_radix."""
    for rows, cols in product((64, 256), (1 << 16, 1 << 17, 1 << 18)):
        for k in (1 << bits for bits in range(8, 13)):
            problem = Problem.contiguous(rows, cols, k)
            sides = {}
            for threads in (512, 1024):
                block = BlockRadixConfig(threads, most_items(problem), 11, 0, problem.layout.vector)
                capacity = min(SORTED * threads, wanted_capacity(block, problem, device))
                sides[f"{threads} threads"] = Side("block_radix", replace(block, capacity=capacity))
            blocks = least_cluster(problem)
            cluster = ClusterRadixConfig(1024, most_items(problem), 11, 4096, problem.layout.vector, blocks)
            sides[f"{blocks} blocks"] = Side("cluster_radix", cluster)
            sides["split_radix"] = Side("split_radix", registry.get("split_radix").ladder(problem, device)[0])
            yield Question("SORTED", k * cols, problem, sides)


def lone(problem: Problem, device: Device) -> Side:
    """One block a row, as where nothing was measured."""
    strategy = registry.get("block_radix")
    assert isinstance(strategy, RadixStrategy)
    return Side(strategy.name, strategy.ladder(problem, device)[0])


def clusters(problem: Problem, device: Device) -> dict[str, Side]:
    """Pairs of blocks, and larger clusters where all run at once, each laid out as where nothing was measured."""
    found = {}
    for blocks in CLUSTERS:
        if blocks == CLUSTERS[0] or problem.rows * blocks <= device.processors:
            items = usual_items(problem, blocks * 1024)
            config = ClusterRadixConfig(1024, items, 11, 0, problem.layout.vector, blocks)
            config = replace(config, capacity=wanted_capacity(config, problem, device))
            if registry.get("cluster_radix").valid(config, problem, device):
                found[f"{blocks} blocks"] = Side("cluster_radix", config)
    return found


def program(side: Side, problem: Problem, device: Device) -> KernelProgram:
    """What runs a side."""
    found = registry.get(side.strategy).program(side.config, problem, device)
    assert isinstance(found, KernelProgram)
    return found


def build(source: KernelSource, crowd: int | None, arch: int) -> Build:
    """Compile in a process of its own; with another CROWD past the cache, which does not know of it."""
    try:
        if crowd is None:
            return Build(source.load(arch))
        importlib.import_module(CROWD_MODULE).CROWD = crowd  # type: ignore[attr-defined]
        return Build(source.compile(arch))
    except AutotopkError as error:
        return Build(None, str(error))


def build_all(asked: list[Question], device: Device) -> Builds:
    """Every kernel once, on all cores; those with another CROWD in processes that end with them."""
    wanted = dict.fromkeys(
        (program(side, question.problem, device).sources[0], side.crowd)
        for question in asked
        for side in question.sides.values()
    )
    context = multiprocessing.get_context("spawn")
    plain, patched = ([key for key in wanted if (key[1] is None) == is_plain] for is_plain in (True, False))
    with ProcessPoolExecutor(mp_context=context) as pool, ProcessPoolExecutor(mp_context=context) as other:
        running = {key: pool.submit(build, *key, device.arch) for key in plain}
        running |= {key: other.submit(build, *key, device.arch) for key in patched}
        return {key: future.result() for key, future in track(running.items(), "compiling")}


def measure(question: Question, builds: Builds, device: Device) -> dict[str, Any]:
    """Microseconds of every side on every input, with registers and spills."""
    problem = question.problem
    runs: dict[str, timing.Run] = {TORCH: partial(torch.topk, k=problem.k)} if question.torch else {}
    kernels: dict[str, dict[str, Any]] = {}
    for name, side in question.sides.items():
        found = program(side, problem, device)
        built = builds[found.sources[0], side.crowd]
        kernels[name] = {"strategy": side.strategy, "config": asdict(side.config), "error": built.error}
        if built.kernel is not None:
            [only] = found.launches
            rebuilt = replace(found, launches=(replace(only, source=Built(built.kernel)),))
            runs[name] = launch.bind(rebuilt, problem, device)
            kernels[name] |= {"registers": built.kernel.registers, "spill_bytes": built.kernel.spill_bytes}
    timer = timing.timer_for(timing.random_inputs(problem, torch.device(device.type)))
    samples = {name: timer.prepare(run) for name, run in runs.items()}
    times = {}
    for name in question.names:
        if name != "random":
            dtype = getattr(torch, problem.dtype)
            timer.fill(inputs.make(name, problem.rows, problem.cols, problem.k, dtype, device.type))
        times[name] = {label: median(sample() for _ in range(5)) for label, sample in samples.items()}
    shape = {"rows": problem.rows, "cols": problem.cols, "k": problem.k, "dtype": problem.dtype}
    return {"constant": question.constant, "at": question.at, **shape, "kernels": kernels, "us": times}


def line(row: Mapping[str, Any]) -> str:
    """A row of the table: times on random data, then of each side the worst input and its time."""
    shape = f"{row['rows']}x{row['cols']} k={row['k']}"
    sides = []
    for side, time in row["us"]["random"].items():
        text = f"{side} {time:.2f}"
        if len(row["us"]) > 1:
            worst = max(row["us"], key=lambda name: row["us"][name][side])
            text += f" ({worst} {row['us'][worst][side]:.1f})"
        if row["constant"] in ("CROWD", "MAX_OWNED"):
            kernel = row["kernels"][side]
            text += f" [{kernel['registers']} registers, {kernel['spill_bytes']} bytes spilled]"
        sides.append(text)
    failed = [f"{side}: {kernel['error']}" for side, kernel in row["kernels"].items() if kernel["error"]]
    return f"{row['constant']:17} {row['at'] or '':>8}  {shape:18} {', '.join(sides + failed)}"


def main(file: Path, *constants: str) -> None:
    """Ask the questions of these constants, or all, print the table and write the file."""
    if not torch.cuda.is_available():
        sys.exit("scripts/radix.py needs a CUDA GPU: torch finds none here")
    device = device_of(torch.device("cuda"))
    asked = [question for question in questions(device) if not constants or question.constant in constants]
    builds = build_all(asked, device)
    torch.zeros(1, device="cuda")  # makes the context that kernels are loaded into
    rows = [measure(question, builds, device) for question in track(asked, "timing")]
    document = bench.document([], torch.device("cuda"), " ".join(["python", *sys.argv]))
    document.pop("summary")
    file.write_text(json.dumps({**document, "rows": rows}, indent=1) + "\n")
    print("constant                at  shape              microseconds of one call on random data")
    for row in rows:
        print(line(row))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
