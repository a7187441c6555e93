"""Many tuners on one database: one for every GPU of this host, and what all of them are at."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
    from autotopk.tuning_db import leases, specimens
    from autotopk.tuning_db.store import Store

    place = db or settings.database()
    with Store.open(place, read_only=True) as store:
        progress, held = leases.status(store, campaign)
        apart = specimens.differences(store)
    if as_json:
        print_json({"database": place, "progress": progress, "claimed": held, "specimens": apart})
    elif progress or apart:
        for table in fleet_tables(progress, held, apart, str(place)):
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

    What they print is told line by line, after the place; where one fails, the others go on. On a file, where tuners
    share nothing by themselves, they get a campaign of their own. Ctrl-C reaches them too, and SIGTERM is passed on.
    Raises SelectionError where there is no place.
    """
    if not places:
        raise SelectionError("--device all needs a GPU, and none is here")
    if "--json" in arguments:
        raise SelectionError("--json goes with one device; `autotopk fleet status --json` tells of all")
    command = [sys.executable, "-m", "autotopk", *_without_device(arguments)]
    if campaign is None and not isinstance(db or settings.database(), database.Server):
        command += ["--campaign", f"{socket.gethostname()}:{os.getpid()} {datetime.now(UTC):%Y-%m-%d %H:%M}"]
    tuners = [
        subprocess.Popen(
            [*command, "--device", place], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        for place in places
    ]

    def pass_on(*_: object) -> None:
        for tuner in tuners:
            tuner.terminate()

    before = signal.signal(signal.SIGTERM, pass_on)
    tellers = [Thread(target=_tell, args=(place, one.stdout)) for place, one in zip(places, tuners, strict=True)]
    for teller in tellers:
        teller.start()
    codes: list[int] = []
    for tuner in tuners:
        while tuner.returncode is None:
            with suppress(KeyboardInterrupt):  # the tuners got it too, and publish what they have
                tuner.wait()
        codes.append(abs(tuner.returncode or 0))
    for teller in tellers:
        teller.join()
    signal.signal(signal.SIGTERM, before)
    return max(codes)


@contextmanager
def ending_gently() -> Iterator[None]:
    """The first SIGTERM is Ctrl-C within: what schedulers send when a job has to go, and some of them twice."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
