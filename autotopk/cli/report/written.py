"""Writing the page to a file: `autotopk report`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotopk.cli.arguments import SelectionError
from autotopk.cli.report import page, source
from autotopk.device import Device
from autotopk.files import write_atomically

MARK = b"<title>Top-k tuning: "
"""What is in the head of every report and, most likely, of nothing else."""


@dataclass(frozen=True)
class Written:
    """A report."""

    path: Path
    source: str
    winners: int
    measurements: int
    size: int
    """Bytes."""


def write(path: Path | None, output: Path, against: Path | None, here: Sequence[Device], *, force: bool) -> Written:
    """Write the report of a file, by default `source.usual`, whole or not at all.

    Raises ArtifactError or DatabaseError where a file cannot be read, SelectionError where the page cannot be written
    or something that is no report is there.
    """
    if not force and not _may_replace(output):
        raise SelectionError(f"-o {output}: it is there and no report of autotopk; --force replaces it")
    found = source.usual() if path is None else source.read(path)
    html = page.render(found, None if against is None else source.read(against), here).encode()
    try:
        write_atomically(output, html)
    except OSError as error:
        raise SelectionError(f"-o {output}: {error.strerror}") from error
    return Written(output, found.name, len(found.winners), len(found.tried), len(html))


def _may_replace(output: Path) -> bool:
    try:
        if not os.path.lexists(output):
            return True
        with output.open("rb") as file:
            return MARK in file.read(4096)
    except OSError as error:
        raise SelectionError(f"-o {output}: {error.strerror}") from error
