"""Writing the page, or a figure of it, to a file: `autotopk report`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotopk.cli.arguments import SelectionError
from autotopk.cli.report import figures, page, source
from autotopk.device import Device
from autotopk.files import write_atomically

MARK = b"<title>Top-k tuning: "
"""What is in the head of every report and figure and, most likely, of nothing else."""


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
    _check(output, force)
    found = source.usual() if path is None else source.read(path)
    size = _save(output, page.render(found, None if against is None else source.read(against), here))
    return Written(output, found.name, len(found.winners), len(found.tried), size)


def write_figure(name: str, path: Path | None, output: Path, *, force: bool) -> Written:
    """Write one figure of `figures.FIGURES` alone, as SVG; of the first device in a file that holds several.

    The file may also be what `autotopk bench --json` wrote. Raises as `write`, and SelectionError where the file has
    nothing to draw.
    """
    _check(output, force)
    if path is not None and path.suffix == ".json":
        device, timed = figures.benchmark(path)
        size = _save(output, figures.drawn(name, timed, device))
        return Written(output, path.name, len(timed), 0, size)
    found = source.usual() if path is None else source.read(path)
    if not found.winners:
        raise SelectionError(f"{found.name} holds no winners yet")
    winners = page.by_device(found.winners)[0]
    size = _save(output, figures.drawn(name, [*map(figures.Timed.of, winners)], winners[0].device))
    return Written(output, found.name, len(winners), 0, size)


def _check(output: Path, force: bool) -> None:
    if not force and not _may_replace(output):
        raise SelectionError(f"-o {output}: it is there and no report of autotopk; --force replaces it")


def _save(output: Path, text: str) -> int:
    """How many bytes were written."""
    try:
        write_atomically(output, text.encode())
    except OSError as error:
        raise SelectionError(f"-o {output}: {error.strerror}") from error
    return len(text.encode())


def _may_replace(output: Path) -> bool:
    try:
        if not os.path.lexists(output):
            return True
        with output.open("rb") as file:
            return MARK in file.read(4096)
    except OSError as error:
        raise SelectionError(f"-o {output}: {error.strerror}") from error
