"""The kernels that are shipped: `python -m scripts.kernels [--arch 90]... [--out FOLDER]` compiles what has changed.

All rungs of all strategies of this package, for each architecture, by all cores. A kernel is taken from the pack that
is there where its device files, its constants and the compilers are what they were.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from autotopk import packs, registry
from autotopk.compilers import nvcc, tilelang, triton
from autotopk.cubin import without_debug
from autotopk.device import cores
from autotopk.errors import BuildError
from autotopk.files import write_atomically
from autotopk.kernel import Kernel, KernelSource, distribution_version
from autotopk.packs import ARCHS, Made, Packs, file
from autotopk.strategy import Strategy
from autotopk.tuning.worker import live_with_parent


@dataclass(frozen=True)
class Rung:
    """A kernel to be packed."""

    family: str
    source: KernelSource
    arch: int

    @property
    def name(self) -> str:
        """In its pack."""
        return packs.name_of(self.source, self.arch)


@dataclass(frozen=True)
class Built:
    """A kernel as it is packed, or why there is none."""

    content: bytes = b""
    code: str = ""
    registers: int = 0
    spill_bytes: int = 0
    seconds: float = 0.0
    """Of compilation; 0 where it was in the pack already."""
    error: str = ""


def rungs(arch: int, strategies: Iterable[Strategy]) -> Iterator[Rung]:
    """Of all families for a compute capability, each kernel once."""
    for strategy in strategies:
        for source in dict.fromkeys(strategy.rungs(arch)):
            yield Rung(strategy.name, source, arch)


def compilers() -> dict[str, str]:
    """Versions and flags of what compiles here."""
    found = nvcc.find()
    told = (
        subprocess.run([str(found), "--version"], capture_output=True, text=True, check=False).stdout if found else ""
    )
    switches = {name: os.environ[name] for name in (*nvcc.SWITCHES, *triton.SWITCHES) if name in os.environ}
    return {
        "nvcc": " ".join([*(word for word in told.replace(",", " ").split() if word.startswith("V")), *nvcc.FLAGS]),
        "tilelang": f"{distribution_version('tilelang')} {tilelang.PASSES}",
        "triton": distribution_version("triton"),
        **switches,
    }


def build(rungs: Sequence[Rung]) -> list[Built]:
    """Compile one source for the architectures of its rungs. In a process of the pool."""
    done: list[Built] = []
    begun = time.perf_counter()
    try:
        for rung, compiled in zip(rungs, rungs[0].source.compile_for([rung.arch for rung in rungs]), strict=True):
            kernel = replace(compiled, cubin=without_debug(compiled.cubin))
            seconds, begun = time.perf_counter() - begun, time.perf_counter()
            done.append(Built(kernel.to_bytes(rung.name), kernel.code, kernel.registers, kernel.spill_bytes, seconds))
    except (BuildError, ValueError) as error:
        done += [Built(error=str(error))] * (len(rungs) - len(done))
    return done


def kept(rung: Rung, old: Packs, made: Made) -> Built | None:
    """The kernel in the pack that is there, if it would be compiled to the same again."""
    before, pack = old.made.get(rung.arch), old.pack(rung.arch)
    files, digest = rung.source.device_code()
    if before is None or pack is None or before.compilers != made.compilers or before.device_code.get(files) != digest:
        return None
    if (found := pack.find(rung.name)) is None:
        return None
    content = found.read()
    kernel = Kernel.from_bytes(content, found.name)
    return Built(content, kernel.code, kernel.registers, kernel.spill_bytes)


def make(archs: Sequence[int], folder: Path, jobs: int, console: Console) -> list[str]:
    """Build the packs of a folder; returns what could not be compiled, and is not in them."""
    versions = compilers()
    wanted = [rung for arch in archs for rung in rungs(arch, registry.built_in())]
    made = {arch: Made(_device_code(rung.source for rung in wanted if rung.arch == arch), versions) for arch in archs}
    old = Packs(folder)
    done = {rung: built for rung in wanted if (built := kept(rung, old, made[rung.arch])) is not None}
    todo = [rung for rung in wanted if rung not in done]
    try:
        _compile(todo, done, jobs, console)
    finally:  # what is done by Ctrl-C is kept
        for arch in archs:
            ours = sorted((one for one, built in done.items() if one.arch == arch and not built.error), key=_kinship)
            if ours:
                contents = {one.name: (done[one].content, done[one].code) for one in ours}
                file.write(packs.pack_path(folder, arch), contents)
        told = {**old.made, **{arch: one for arch, one in made.items() if packs.pack_path(folder, arch).exists()}}
        text = json.dumps({str(arch): asdict(told[arch]) for arch in sorted(told)}, indent=1, sort_keys=True)
        write_atomically(folder / packs.SOURCES, text.encode() + b"\n")
    console.print(_table(wanted, done, folder))
    return [f"{one.family} for sm_{one.arch}: {done[one].error}\n  {one.source}" for one in wanted if done[one].error]


def _compile(todo: Sequence[Rung], done: dict[Rung, Built], jobs: int, console: Console) -> None:
    tasks: defaultdict[tuple[KernelSource, int], list[Rung]] = defaultdict(list)
    for rung in todo:
        tasks[rung.source, 0 if rung.source.shares_work else rung.arch].append(rung)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[at]}"),
    )
    with (
        Progress(*columns, console=console) as progress,
        ProcessPoolExecutor(max(1, min(jobs, len(tasks))), get_context("spawn"), live_with_parent) as pool,
    ):
        bar = progress.add_task("", total=len(todo), at="")
        futures = {pool.submit(build, ours): ours for ours in tasks.values()}
        try:
            for future in as_completed(futures):
                ours = futures[future]
                done |= zip(ours, future.result(), strict=True)
                progress.update(bar, advance=len(ours), at=ours[0].family)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _kinship(rung: Rung) -> str:
    """What is alike is compressed together: its function, then its constants."""
    return repr(rung.source)


def _device_code(sources: Iterable[KernelSource]) -> dict[str, str]:
    return dict(sorted({source.device_code() for source in sources}))


def _table(wanted: Sequence[Rung], done: dict[Rung, Built], folder: Path) -> Table:
    table = Table(
        "pack", "family", "kernels", "compiled", "failed", "KB unpacked", "CPU s", "most registers", "spilling"
    )
    groups: defaultdict[tuple[int, str], list[Built]] = defaultdict(list)
    for rung in wanted:
        groups[rung.arch, rung.family].append(done[rung])
    for (arch, family), built in groups.items():
        table.add_row(
            f"sm_{arch}",
            family,
            str(sum(bool(one.content) for one in built)),
            str(sum(one.seconds > 0 for one in built)),
            str(sum(bool(one.error) for one in built)),
            f"{sum(len(one.content) for one in built) / 1000:,.0f}",
            f"{sum(one.seconds for one in built):,.0f}",
            str(max(one.registers for one in built)),
            str(sum(one.spill_bytes > 0 for one in built)),
        )
    for arch in sorted({rung.arch for rung in wanted}):
        if (path := packs.pack_path(folder, arch)).exists():
            table.add_row(path.name, "", "", "", "", f"{path.stat().st_size / 1000:,.0f}", "", "", "", style="bold")
    return table


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="scripts.kernels", description=__doc__)
    parser.add_argument("--arch", type=int, action="append", choices=ARCHS, help="of these alone")
    parser.add_argument("--out", type=Path, default=Path(packs.__file__).parent, help="folder of the packs")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes, one a core")
    return parser.parse_args()


def main() -> int:
    """Exit status 1 where a kernel could not be compiled."""
    arguments, console = _arguments(), Console()
    begun = time.monotonic()
    failed = make(arguments.arch or ARCHS, arguments.out, arguments.jobs, console)
    for one in failed:
        console.print(one, style="red", markup=False, soft_wrap=True)
    console.print(f"{time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
