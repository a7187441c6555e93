"""The `autotopk` command: tune, show, explain, export, import, bench, doctor."""

import io
import json
import shlex
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from autotopk.errors import AutotopkError, MeasurementError, inert


class Commands(TyperGroup):
    """Commands whose AutotopkError becomes one red line and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except AutotopkError as error:
            typer.secho(f"error: {error}", fg="red", err=True)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="torch.topk with the kernel that was measured fastest for this device, dtype, shape and k.",
)

Words = list[str] | None
Tags = Annotated[Words, typer.Option("--tag", help="Named workloads: ci, seeds, serving, ...; repeatable.")]
Rows = Annotated[Words, typer.Option("--rows", help="Rows: 1,64.")]
Cols = Annotated[Words, typer.Option("--cols", help="Columns: 4096,8192.")]
Ks = Annotated[Words, typer.Option("-k", "--k", help="How many of each row: 8,64.")]
Dtypes = Annotated[Words, typer.Option("--dtype", help="Dtypes: float32,bfloat16.")]
RunsOn = Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:1; by default a GPU if there is one.")]
OfDevice = Annotated[str | None, typer.Option("--device", help="cpu, cuda, or a part of a stored device: H100.")]
Database = Annotated[
    Path | None, typer.Option("--db", help="Tuning database, with its winners beside it; by default the user's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def tune(
    tag: Tags = None,
    rows: Rows = None,
    cols: Cols = None,
    k: Ks = None,
    dtype: Dtypes = None,
    effort: Annotated[Literal["quick", "full", "oracle"], typer.Option(help="How much to measure.")] = "quick",
    budget: Annotated[float | None, typer.Option(min=0, help="Seconds to stop after.")] = None,
    strategy: Annotated[Words, typer.Option("--strategy", help="Only these: lane_merge,block_radix.")] = None,
    device: RunsOn = None,
    db: Database = None,
    from_misses: Annotated[
        Path | None, typer.Option(help="Tune the problems that AUTOTOPK_MISSES=FILE recorded.")
    ] = None,
) -> None:
    """Measure what is fastest here and publish it to `autotopk.topk`; by default tag seeds (GPU) or ci (CPU)."""
    from autotopk import settings
    from autotopk.cli import arguments
    from autotopk.cli.progress_bar import ProgressBar
    from autotopk.cli.tables import console, tune_report
    from autotopk.device import device_of
    from autotopk.tuning.tuner import tune as run

    place = arguments.torch_device(device)
    workloads = arguments.workloads(tag or (), rows or (), cols or (), k or (), dtype or ())
    if from_misses:
        workloads = list(dict.fromkeys([*workloads, *arguments.missed(from_misses, device_of(place))]))
    workloads = workloads or arguments.usual(place)
    strategies = arguments.strategies(strategy or ())
    if place.type == "cpu":
        typer.echo("no GPU in use: tuning torch's CPU operators", err=True)
    with ProgressBar(console(stderr=True)) as bar:
        report = run(
            workloads,
            store_path=db or settings.database_path(),
            effort=effort,
            budget_s=budget,
            device=place,
            strategies=strategies,
            on_event=bar.tuner_event,
        )
    out = console()
    for part in tune_report(report):
        out.print(part, soft_wrap=isinstance(part, str))
    if report.outcome == "interrupted":
        raise typer.Exit(130)
    if any(result.outcome == "failed" for result in report.results):
        raise typer.Exit(1)


@app.command()
def show(
    db: Database = None,
    device: OfDevice = None,
    everything: Annotated[bool, typer.Option("--all", help="Every measurement with its status.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the winners, or with --all everything that was measured."""
    from autotopk.cli import transfer
    from autotopk.cli.tables import console, measurements_table, winners_tables

    if everything:
        measurements, source = transfer.measurements(db, device)
        found, tables = list(map(asdict, measurements)), [measurements_table(measurements, source)]
    else:
        winners, source = transfer.winners(db, device)
        found, tables = list(map(asdict, winners)), list(winners_tables(winners, source))
    if as_json:
        _print_json(found)
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
    device: OfDevice = None,
    as_json: AsJson = False,
) -> None:
    """Say what would run for a problem, by which step of the order of choice, and why not something else."""
    from autotopk import explain_problem
    from autotopk.cli import arguments, transfer
    from autotopk.problem import Problem

    place = arguments.device_named(device, transfer.known_devices())
    try:
        problem = Problem.contiguous(rows, cols, k, dtype, place.type, largest=not smallest, sorted=not unsorted)
    except ValueError as error:
        raise arguments.SelectionError(str(error)) from error
    explanation = explain_problem(problem, place)
    if as_json:
        _print_json(explanation.to_dict())
    else:
        typer.echo(f"{explanation}\n  device {place.fingerprint}")


@app.command()
def export(
    path: Annotated[Path, typer.Argument(metavar="WINNERS.sqlite")], db: Database = None, device: OfDevice = None
) -> None:
    """Write the winners as a file to deploy, with a readable twin and a checksum."""
    from autotopk.cli import transfer
    from autotopk.cli.tables import console

    winners, source = transfer.winners(db, device)
    files = transfer.export(winners, path)
    out = console()
    out.print(f"{len(winners)} winners from {source}:", soft_wrap=True, markup=False)
    for file in files:
        out.print(f"  {file}", soft_wrap=True, markup=False)
    out.print(f"deploy: copy {path.name} and set AUTOTOPK_DB={path.absolute()}", soft_wrap=True, markup=False)


@app.command("import")
def import_(path: Annotated[Path, typer.Argument(metavar="OTHER.sqlite")], db: Database = None) -> None:
    """Add the measurements of another machine's tuning database, and publish the winners again."""
    from autotopk.cli import transfer

    new, winners, published = transfer.import_measurements(path, db)
    typer.echo(f"{new} new measurements; {len(winners)} winners of all devices together")
    typer.echo(f"published to {published}")


@app.command()
def bench(
    tag: Tags = None,
    rows: Rows = None,
    cols: Cols = None,
    k: Ks = None,
    dtype: Dtypes = None,
    json_path: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the rows there.")] = None,
    device: RunsOn = None,
) -> None:
    """Time and check `autotopk.topk` beside torch.topk, sorted and in any order."""
    from rich.markup import escape

    from autotopk.cli import arguments
    from autotopk.cli.bench import bench as measure
    from autotopk.cli.bench import document
    from autotopk.cli.progress_bar import ProgressBar
    from autotopk.cli.tables import bench_summary, bench_table, console

    place = arguments.torch_device(device)
    workloads = arguments.workloads(tag or (), rows or (), cols or (), k or (), dtype or ())
    workloads = workloads or arguments.usual(place)
    if json_path and not json_path.parent.is_dir():
        raise arguments.SelectionError(f"--json {json_path}: there is no folder {json_path.parent}")
    measured, failed = [], False
    with ProgressBar(console(stderr=True)) as bar:
        for index, workload in enumerate(workloads):
            bar.step(str(workload), index, len(workloads))
            try:
                measured.append(measure(workload, place))
            except MeasurementError as error:
                failed = True
                bar.line(f"[red]{workload}: {escape(inert(error))}[/]")
    if json_path:
        told = document(measured, place, shlex.join(["autotopk", *sys.argv[1:]]))
        json_path.write_text(json.dumps(told, indent=2) + "\n")
    out = console()
    out.print(bench_table(measured))
    for line in bench_summary(measured):
        out.print(line)
    if failed or not all(row.exact for row in measured):
        raise typer.Exit(1)


@app.command()
def doctor() -> None:
    """Say what is installed, able, deployed and stale, and what is broken (exit code 1)."""
    from autotopk.cli.doctor import examine
    from autotopk.cli.tables import console, finding_lines

    findings = list(examine())
    out = console()
    for line in finding_lines(findings):
        out.print(line, soft_wrap=True)
    if any(finding.level == "broken" for finding in findings):
        raise typer.Exit(1)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning of ours without the line of code that gave it."""
    typer.secho(f"warning: {message}", fg="yellow", err=True)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files hold any bytes
    warnings.showwarning = _show_warning
    app()
