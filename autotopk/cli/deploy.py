"""The commands around files: export, verify, diff, import, report."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from autotopk import database
from autotopk.cli import arguments
from autotopk.cli.options import AsJson, Database, OfDevice, print_json
from autotopk.cli.wording import counted

app = typer.Typer(rich_markup_mode=None)

Served = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, or a winners file.")]


@app.command()
def export(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="To write: winners.bundle.")],
    db: Database = None,
    device: OfDevice = None,
    arch: Annotated[
        list[str] | None,
        typer.Option(metavar="LIST", help="Kernels for these: 80,90 for 8.0 and 9.0; by default the winners' own."),
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Leave out kernels that cannot be compiled here.")] = False,
    sign: Annotated[Path | None, typer.Option(metavar="KEY.pem", help="Sign it with this Ed25519 private key.")] = None,
    winners_only: Annotated[
        bool, typer.Option("--winners-only", help="No kernels: a winners file, its JSON twin and checksums.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that autotopk did not write.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write winners and their kernels as one file to deploy.

    A bundle: the winners, the compiled kernels that they name, and a manifest of digests and versions. Missing kernels
    are compiled. AUTOTOPK_DB=FILE serves it; a machine without compilers needs nothing else.
    """
    from autotopk.cli import transfer
    from autotopk.cli.bundles import write_bundle

    if winners_only and (arch or partial or sign):
        raise arguments.SelectionError("--winners-only goes with none of --arch, --partial and --sign")
    archs = arguments.architectures("--arch", arch or ())
    winners, source = transfer.winners(db, device)
    fitted = transfer.fitted(db)
    kernels, missing = 0, list[str]()
    if winners_only:
        files = transfer.export(winners, path, fitted, force=force)
        told = f"{counted(len(winners), 'winner')} from {source}:"
    else:
        written = write_bundle(winners, path, archs, fitted, key=sign, partial=partial, force=force)
        files = [path]
        kernels, missing = written.kernels, list(map(str, written.missing))
        for one in missing:
            typer.secho(f"left out: {one}", fg="yellow", err=True)
        told = f"{counted(len(winners), 'winner')} and {counted(kernels, 'kernel')}"
        told += f", {'signed' if sign else 'unsigned'}, from {source}:"
    if as_json:
        about = {"source": source, "winners": len(winners), "kernels": kernels, "signed": sign is not None}
        print_json({"files": files, **about, "missing": missing})
        return
    typer.echo(told)
    for file in files:
        typer.echo(f"  {file}")
    typer.echo(f"deploy: copy {path.name} and set AUTOTOPK_DB={path.absolute()}")


@app.command()
def verify(
    path: Served,
    here: Annotated[
        bool, typer.Option("--device", help="Also load every kernel on this machine's GPU; without one, on its CPU.")
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(metavar="PUB.pem", help="The key that must have signed it; by default AUTOTOPK_DB_KEY."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether every winner of a file would be served.

    Whether it resolves to a strategy and a valid configuration, whether its kernels load, fit this GPU, and are those
    that were measured. Exit code 0 where all is good, 1 where something is not served as it was measured, 2 where the
    file is unreadable, damaged, or not signed as asked.
    """
    from autotopk.cli.tables import console, verified_table
    from autotopk.cli.verify import verify_file

    found = verify_file(path, key, arguments.torch_device(None) if here else None)
    if as_json:
        print_json(found)
    else:
        console().print(verified_table(found))
        for line in found.lines():
            typer.echo(line)
    if not found.good:
        raise typer.Exit(1)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A bundle, or a winners file.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A bundle, or a winners file.")],
    as_json: AsJson = False,
) -> None:
    """Say what differs between two files of winners.

    Winners that were added, removed and changed, and kernels. Exit code 0 where nothing differs, 1 where something
    does, 2 where a file cannot be read.
    """
    from autotopk.cli.diff import compare_files
    from autotopk.cli.tables import console, differences_table

    found = compare_files(old, new)
    if as_json:
        print_json(found)
    else:
        if found.winners:
            console().print(differences_table(found))
        for line in found.lines():
            typer.echo(line)
    if found.any:
        raise typer.Exit(1)


@app.command("import")
def import_(
    path: Annotated[Any, typer.Argument(metavar="OTHER.sqlite|URL", parser=database.named)],
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Add the measurements of another tuning database.

    And publish the winners of all measurements.
    """
    from autotopk.cli import transfer

    new, winners, published = transfer.import_measurements(path, db)
    if as_json:
        print_json({"new_measurements": new, "winners": winners, "published": published})
        return
    typer.echo(f"{counted(new, 'new measurement')}; {counted(len(winners), 'winner')} of all devices together")
    typer.echo(f"published to {published}")


@app.command()
def report(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A tuning database, winners file or bundle; by default the user's."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="To write; by default report.html, or FIGURE.svg."),
    ] = None,
    against: Annotated[Path | None, typer.Option(metavar="FILE", help="An older file to compare with.")] = None,
    figure: Annotated[
        Literal["times", "torch", "floor"] | None,
        typer.Option(help="One figure of the page alone, as SVG; also of what `bench --json` wrote."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is no report.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a page that shows what was measured.

    Who wins where, how fast, and why the others lost, as one HTML file that needs no network.
    """
    from autotopk.cli.report.written import write, write_figure

    if figure is None:
        written = write(path, output or Path("report.html"), against, arguments.devices_here(), force=force)
    elif against is not None:
        raise arguments.SelectionError("--figure goes without --against")
    else:
        written = write_figure(figure, path, output or Path(f"{figure}.svg"), force=force)
    if as_json:
        print_json(written)
    elif figure is not None:
        typer.echo(f"figure {figure} of {written.source}:\n  {written.path}")
    else:
        told = f"{counted(written.winners, 'winner')} and {counted(written.measurements, 'measurement')}"
        typer.echo(f"{told} from {written.source}:\n  {written.path}")
