"""Many tuners on one database: one for every GPU of this host, and what all of them are at."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from threading import Thread
from typing import IO, Annotated

import typer

from autotopk import database, settings
from autotopk.cli.arguments import SelectionError
from autotopk.cli.options import AsJson, Database, print_json

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def main() -> None:
    """See what the tuners of a shared database are at."""


@app.command()
def status(
    db: Database = None,
    campaign: Annotated[str | None, typer.Option(metavar="NAME", help="This one alone.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say how far campaigns are, and who measures what."""
    from autotopk.cli.tables import console, fleet_tables
    from autotopk.tuning_db import leases
    from autotopk.tuning_db.store import Store

    place = db or settings.database()
    with Store.open(place, read_only=True) as store:
        progress, held = leases.status(store, campaign)
    if as_json:
        print_json(
            {"database": str(place), "progress": list(map(asdict, progress)), "claimed": list(map(asdict, held))}
        )
    elif progress:
        for table in fleet_tables(progress, held, str(place)):
            console().print(table)
    else:
        typer.echo(f"no campaign in {place}; `autotopk tune --campaign NAME` begins one")


def gpus() -> list[str]:
    """The GPUs that this process sees, as `--device` names them."""
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def tune_everywhere(
    arguments: Sequence[str], campaign: str | None, db: database.Database | None, places: Sequence[str]
) -> int:
    """Run the same command once for every place, all in one campaign; returns the worst exit code.

    What they print is told line by line, after the place. On a file, where tuners share nothing by themselves, they
    get a campaign of their own. Ctrl-C reaches them too. Raises SelectionError where there is no place.
    """
    if not places:
        raise SelectionError("--device all needs a GPU, and none is here")
    if "--json" in arguments:
        raise SelectionError("--json goes with one device; `autotopk fleet status --json` tells of all")
    command = [sys.executable, "-m", "autotopk", *_without_device(arguments)]
    if campaign is None and not isinstance(db or settings.database(), database.Server):
        command += ["--campaign", f"{socket.gethostname()}:{os.getpid()} {datetime.now(UTC):%Y-%m-%d %H:%M}"]
    tuners = {
        place: subprocess.Popen(
            [*command, "--device", place], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        for place in places
    }
    tellers = [Thread(target=_tell, args=(place, tuner.stdout)) for place, tuner in tuners.items() if tuner.stdout]
    for teller in tellers:
        teller.start()
    codes: list[int] = []
    for tuner in tuners.values():
        while tuner.returncode is None:
            with suppress(KeyboardInterrupt):  # the tuners got it too, and publish what they have
                tuner.wait()
        codes.append(abs(tuner.returncode or 0))
    for teller in tellers:
        teller.join()
    return max(codes)


def _without_device(arguments: Sequence[str]) -> list[str]:
    left, skip = [], False
    for one in arguments:
        if not skip and one != "--device" and not one.startswith("--device="):
            left.append(one)
        skip = one == "--device"
    return left


def _tell(place: str, output: IO[str]) -> None:
    for line in output:
        typer.echo(f"{place}: {line.rstrip()}")
