"""What a server does before it accepts traffic."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import autotopk
from autotopk.cli import arguments
from autotopk.cli.progress_bar import ProgressBar
from autotopk.cli.tables import console


def warm(shapes: Sequence[str], tags: Sequence[str], misses: Path | None, device: str | None) -> autotopk.WarmupReport:
    """`autotopk.warmup` behind a progress bar. Raises SelectionError."""
    what: list[Any] = [*map(arguments.shape, shapes), *arguments.workloads(tags, (), (), (), ())]
    if misses is not None:
        what.append(misses)
    place = arguments.torch_device(device)
    with ProgressBar(console(stderr=True)) as bar:
        report = autotopk.warmup(
            what or arguments.usual(place),
            device=place,
            progress=lambda row, done, total: bar.step(str(row.problem), done, total),
        )
        bar.line(report.conclusion)
    return report
