"""The `autotopk` command: tune, drop, show, explain, warmup, bench, doctor, and those of `deploy` and `fleet`."""

import io
import shlex
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

import autotopk
from autotopk import settings
from autotopk.cli import arguments, deploy, fleet, serving
from autotopk.cli.options import AsJson, Database, OfDevice, plain, print_json, starting
from autotopk.cli.wording import LONGEST_LINE
from autotopk.errors import AutotopkError, MeasurementError, inert
from autotopk.problem import DTYPE_BYTES


class Commands(TyperGroup):
    """Commands whose AutotopkError becomes one red line and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except AutotopkError as error:
            typer.secho(f"error: {inert(error, LONGEST_LINE)}", fg="red", err=True)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich takes longer than all the rest of --help
)


complete = arguments.completes
Words = list[str] | None
Tags = Annotated[
    Words,
    typer.Option(
        "--tag",
        metavar="LIST",
        autocompletion=complete(arguments.known_tags),
        help="Workloads: ci, seeds, serving, ...",
    ),
]
Rows = Annotated[Words, typer.Option("--rows", metavar="LIST", help="Rows: 1,64.")]
Cols = Annotated[Words, typer.Option("--cols", metavar="LIST", help="Columns: 4096,8192.")]
Ks = Annotated[Words, typer.Option("-k", "--k", metavar="LIST", help="How many of each row: 8,64.")]
Dtypes = Annotated[
    Words,
    typer.Option(
        "--dtype",
        metavar="LIST",
        autocompletion=complete(lambda: DTYPE_BYTES),
        help="Dtypes: float32,bfloat16; by default a tag's own, else float32.",
    ),
]
Strategies = Annotated[
    Words,
    typer.Option(
        "--strategy",
        metavar="LIST",
        autocompletion=complete(arguments.known_strategies),
        help="Only these: lane_merge,block_radix.",
    ),
]
Rule = Annotated[
    str | None,
    typer.Option("--routing", metavar="RULE", help="Of a router, as sigmoid+bias:4of8:raw; windows; kth."),
]
RunsOn = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        autocompletion=complete(lambda: arguments.HERE),
        help="cpu, cuda or cuda:1; by default a GPU if there is one.",
    ),
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"autotopk {autotopk.__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """torch.topk with the kernel that was measured fastest for this device, dtype, shape and k."""


@app.command()
def tune(
    tag: Tags = None,
    rows: Rows = None,
    cols: Cols = None,
    k: Ks = None,
    dtype: Dtypes = None,
    effort: Annotated[Literal["quick", "full", "oracle"], typer.Option(help="How much to measure.")] = "quick",
    budget: Annotated[float | None, typer.Option(help="Seconds to stop after.")] = None,
    routing: Rule = None,
    strategy: Strategies = None,
    force: Annotated[bool, typer.Option("--force", help="Measure anew what was measured before.")] = False,
    campaign: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Share the workloads with the tuners of this name on the same database."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            autocompletion=complete(lambda: (*arguments.HERE, "all")),
            help="cpu, cuda, cuda:1, or all: a tuner for every GPU; by default a GPU if there is one.",
        ),
    ] = None,
    db: Database = None,
    from_misses: Annotated[Path | None, typer.Option(help="Tune the problems in AUTOTOPK_MISSES=FILE.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be measured, and how long; measure nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what is fastest here, and publish it.

    By default tags seeds, serving, routing and selector on a GPU, then grid, within six minutes; ci on a CPU.
    `autotopk.topk` serves what is published.
    """
    if not dry_run:
        starting()
    from autotopk.cli.planned import show, wanted
    from autotopk.cli.progress_bar import ProgressBar
    from autotopk.cli.tables import console, tune_report
    from autotopk.database import Server
    from autotopk.device import device_of
    from autotopk.tuning.tuner import tune as run

    budget, strategies = arguments.seconds("--budget", budget), arguments.strategies(strategy or ())
    if device == "all":
        raise typer.Exit(fleet.tune_everywhere(sys.argv[1:], campaign, db, fleet.gpus()))
    place, store = arguments.torch_device(device), db or settings.database()
    sizes, shared = (rows or (), cols or (), k or ()), campaign is not None or isinstance(store, Server)
    asked = wanted(tag or (), sizes, dtype or (), routing, from_misses, budget, place, shared=shared)
    if dry_run:
        options = {"effort": effort, "budget_s": asked.budget_s, "strategies": strategies, "force": force}
        show(asked.listed(), device_of(place), store, as_json, options)
        return
    if place.type == "cpu":
        typer.echo("no GPU in use: tuning torch's CPU operators", err=True)
    if strategies:
        found = f"the fastest of {', '.join(strategies)} and torch.topk"
        typer.echo(f"no other strategy is measured: {found} will serve what nothing was measured for before", err=True)
    with fleet.ending_gently(), ProgressBar(console(stderr=True)) as bar:
        report = run(
            asked.what,
            store_path=store,
            effort=effort,
            budget_s=asked.budget_s,
            device=place,
            strategies=strategies,
            force=force,
            campaign=campaign,
            on_event=bar.tuner_event,
        )
    if as_json:
        print_json(plain(report) | {"counts": report.counts()})
    else:
        out = console()
        for part in tune_report(report):
            out.print(part)
    if report.outcome == "interrupted":
        raise typer.Exit(130)
    if any(result.outcome == "failed" for result in report.results):
        raise typer.Exit(1)


@app.command()
def drop(
    rows: Rows = None,
    cols: Cols = None,
    k: Ks = None,
    dtype: Dtypes = None,
    routing: Rule = None,
    order: Annotated[Literal["sorted", "any"] | None, typer.Option(help="Of one order; by default of both.")] = None,
    device: OfDevice = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Drop the winners of some shapes until they are tuned again.

    What was measured for them is kept, but counts no more.
    """
    from autotopk.cli import transfer

    workloads = arguments.workloads((), rows or (), cols or (), k or (), dtype or (), routing)
    if not workloads:
        raise arguments.SelectionError("--rows, --cols and -k say whose winners to drop")
    keys = [one.key for one in workloads if order is None or one.sorted == (order == "sorted")]
    dropped, published = transfer.drop(keys, device, db)
    if as_json:
        print_json({"dropped": dropped, "published": published})
        return
    for key in dropped:
        typer.echo(f"dropped {key}")
    typer.echo(f"published to {published}")


@app.command()
def show(
    db: Database = None,
    device: OfDevice = None,
    everything: Annotated[bool, typer.Option("--all", help="Every measurement with its status.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the winners, or everything that was measured."""
    from autotopk.cli import transfer
    from autotopk.cli.tables import console, measurements_table, winners_tables

    if everything:
        measurements, source = transfer.measurements(db, device)
        found, tables = list(map(asdict, measurements)), [measurements_table(measurements, source)]
    else:
        winners, source = transfer.winners(db, device)
        found, tables = list(map(asdict, winners)), list(winners_tables(winners, source))
    if as_json:
        print_json(found)
    elif found:
        for table in tables:
            console().print(table)
    else:
        typer.echo(f"nothing in {source}; `autotopk tune` fills it")


@app.command()
def explain(
    rows: Annotated[int, typer.Option()],
    cols: Annotated[int, typer.Option()],
    k: Annotated[int, typer.Option("-k", "--k")],
    dtype: Annotated[str, typer.Option()] = "float32",
    smallest: Annotated[bool, typer.Option("--smallest", help="The k smallest.")] = False,
    unsorted: Annotated[bool, typer.Option("--unsorted", help="In any order.")] = False,
    routing: Rule = None,
    device: OfDevice = None,
    as_json: AsJson = False,
) -> None:
    """Say what would run for a problem, and why.

    By which step of the order of choice, and why not something else.
    """
    from autotopk.cli import transfer
    from autotopk.problem import OPERATIONS, Problem
    from autotopk.routing import Routing

    place = arguments.device_named(device, transfer.known_devices())
    try:
        answer = OPERATIONS.get(routing or "", "pairs")
        rule = None if routing is None or routing in OPERATIONS else Routing.parse(routing)
        largest, order = not smallest, not unsorted
        problem = Problem.contiguous(
            rows, cols, k, dtype, place.type, largest=largest, sorted=order, routing=rule, answer=answer
        )
    except ValueError as error:
        raise arguments.SelectionError(str(error)) from error
    arguments.check_size(rows, cols, dtype)
    explanation = autotopk.explain_problem(problem, place)
    if as_json:
        print_json(explanation.to_dict())
        return
    for line in f"{explanation}\n  device {place.fingerprint}".splitlines():
        typer.echo(inert(line, LONGEST_LINE))
    if place not in arguments.devices_here():
        typer.echo("  which is not here: what can be built follows the compilers and the kernel cache of this machine")


@app.command()
def warmup(
    shapes: Annotated[
        Words, typer.Argument(metavar="[ROWSxCOLSxK[:DTYPE] | BUNDLE]...", help="64x8192x256:bfloat16, winners.bundle.")
    ] = None,
    tag: Tags = None,
    misses: Annotated[Path | None, typer.Option(metavar="FILE", help="Problems that AUTOTOPK_MISSES recorded.")] = None,
    device: RunsOn = None,
    as_json: AsJson = False,
) -> None:
    """Compile and load what would run for some problems.

    By default tag seeds on a GPU, ci on a CPU. Later processes find what was compiled in the cache.
    """
    starting()
    from autotopk.cli.tables import console, warmup_table

    report = serving.warm(shapes or (), tag or (), misses, device)
    if as_json:
        print_json(report.to_dict())
    else:
        console().print(warmup_table(report))


app.add_typer(deploy.app)
app.add_typer(fleet.app, name="fleet")


@app.command()
def bench(
    tag: Tags = None,
    rows: Rows = None,
    cols: Cols = None,
    k: Ks = None,
    dtype: Dtypes = None,
    routing: Rule = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the rows there; - prints them instead.")
    ] = None,
    device: RunsOn = None,
) -> None:
    """Time and check `autotopk.topk` beside torch.topk.

    Sorted, and in any order.
    """
    starting()
    from autotopk.cli.bench import STDOUT, document, save
    from autotopk.cli.bench import bench as measure
    from autotopk.cli.progress_bar import ProgressBar
    from autotopk.cli.tables import bench_parts, console

    workloads = arguments.workloads(tag or (), rows or (), cols or (), k or (), dtype or (), routing)
    json_path = arguments.writable("--json", json_path)
    place = arguments.torch_device(device)
    workloads = workloads or arguments.usual(place)
    serving.warmed(workloads, place, build=settings.build_mode() != "never")
    measured, failed = [], False
    with ProgressBar(console(stderr=True)) as bar:
        for index, workload in enumerate(workloads):
            bar.step(str(workload), index, len(workloads))
            try:
                measured.append(measure(workload, place))
            except MeasurementError as error:
                failed = True
                bar.line(f"{workload}: {inert(error)}", style="red")
    if json_path:
        save(document(measured, place, shlex.join(["autotopk", *sys.argv[1:]])), json_path)
    if json_path != STDOUT:
        for part in bench_parts(measured):
            console().print(part)
    if failed or not all(row.exact for row in measured):
        raise typer.Exit(1)


@app.command()
def doctor(
    as_json: AsJson = False,
    check: Annotated[bool, typer.Option("--check", help="Try the shipped kernels on the GPUs here first.")] = False,
) -> None:
    """Say what is installed, able, deployed and broken.

    Exit code 1 where something is broken.
    """
    from autotopk.cli.doctor import check_kernels, examine
    from autotopk.cli.progress_bar import ProgressBar
    from autotopk.cli.tables import console, finding_lines

    if check:
        with ProgressBar(console(stderr=True)) as bar:
            check_kernels(bar.step)
    findings = list(examine())
    if as_json:
        print_json(findings)
    else:
        out = console()
        for line in finding_lines(findings):
            out.print(line)
    if any(finding.level == "broken" for finding in findings):
        raise typer.Exit(1)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning of ours without the line of code that gave it."""
    typer.secho(f"warning: {inert(message, LONGEST_LINE)}", fg="yellow", err=True)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files hold any bytes
    warnings.showwarning = _show_warning
    app()
