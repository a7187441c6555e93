"""What a server, or a benchmark, does before its first call."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import autotopk
from autotopk.cli import arguments

if TYPE_CHECKING:
    import torch


def warm(
    shapes: Sequence[str], tags: Sequence[str], misses: Path | None, device: str | None
) -> "autotopk.WarmupReport":
    """`autotopk.warmup`, with progress and a conclusion on standard error. Raises SelectionError."""
    from autotopk.cli.tables import console

    what: list[Any] = [*map(arguments.shape_or_file, shapes), *arguments.workloads(tags, (), (), (), ())]
    if misses is not None:
        what.append(misses)
    place = arguments.torch_device(device)
    report = warmed(what or arguments.usual(place), place)
    console(stderr=True).print(report.conclusion)
    return report


def warmed(what: Any, device: "torch.device", *, build: bool = True) -> "autotopk.WarmupReport":
    """`autotopk.warmup` with progress."""
    from autotopk.cli.progress_bar import ProgressBar
    from autotopk.cli.tables import console

    with ProgressBar(console(stderr=True)) as bar:
        return autotopk.warmup(
            what,
            device=device,
            build=build,
            progress=lambda row, done, total: bar.step(f"warming up {row.problem}", done, total),
        )
