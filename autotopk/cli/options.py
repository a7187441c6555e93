"""Options that commands of several modules take, and JSON as all of them print it."""

import json
import sys
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

import typer

from autotopk import database
from autotopk.cli import arguments

OfDevice = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        autocompletion=arguments.completes(arguments.known_devices),
        help="cpu, cuda, or a part of a stored device: H100.",
    ),
]
Database = Annotated[
    Any,  # database.Database or None: typer knows no unions
    typer.Option(
        "--db",
        metavar="FILE|URL",
        parser=database.named,
        help="Tuning database, a file with its winners beside it or postgresql://HOST/NAME; by default the user's.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def starting() -> None:
    """Say on a terminal that something happens: torch, imported next, takes seconds. A progress bar takes its place."""
    if sys.stderr.isatty():
        sys.stderr.write("starting\r")
        sys.stderr.flush()


def print_json(value: Any) -> None:
    """Print records, lists and plain values."""
    typer.echo(json.dumps(value, indent=2, default=plain))


def plain(value: Any) -> Any:
    """What JSON has no form of: records as objects, sets as sorted lists, paths and servers as texts."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return sorted(value) if isinstance(value, frozenset) else str(value)
