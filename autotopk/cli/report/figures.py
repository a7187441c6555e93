"""The figures of a report, on its page or alone: what each of them draws."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotopk.cli.arguments import SelectionError
from autotopk.cli.report import numbers
from autotopk.cli.report.chart import STEP, WIDTH, Pairs, Scatter, legend, pairs, scatter
from autotopk.cli.report.templates import environment, us
from autotopk.cli.tables import config_words, short
from autotopk.device import Device
from autotopk.key import TuningKey
from autotopk.tuning_db.records import Winner

TORCHS = "torch.topk"

MOST_DOTS = 1500
"""Of a chart: beyond that the eye sees no more, and browsers take seconds."""

MOST_LINES = 100
"""Of a chart with a line for every workload."""


@dataclass(frozen=True)
class Timed:
    """A workload, torch.topk's microseconds and those of what won or ran."""

    key: TuningKey
    strategy: str
    time_us: float
    baseline_us: float
    title: str

    @classmethod
    def of(cls, winner: Winner) -> "Timed":
        """A winner."""
        title = told(winner.key, short(winner.candidate), winner.time_us, winner.baseline_us)
        return cls(winner.key, numbers.name_of(winner), winner.time_us, winner.baseline_us, title)


def told(key: TuningKey, candidate: str, time_us: float, baseline_us: float) -> str:
    """A workload in one line."""
    return f"{key}: {candidate}, {us(time_us)} µs, torch.topk {us(baseline_us)} µs"


def benchmark(path: Path) -> tuple[Device, list[Timed]]:
    """What `autotopk bench --json` wrote. Raises SelectionError where the file is none of these."""
    try:
        document = json.loads(path.read_text())
        about = {name: document["device"][name] for name in Device.__dataclass_fields__}
        device = Device(**about | {"capability": tuple(about["capability"])})
        return device, [_row(row) for row in document["rows"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SelectionError(f"{path}: no measurements of `autotopk bench --json`: {error}") from error


def _row(row: dict[str, Any]) -> Timed:
    key = TuningKey(row["dtype"], row["rows"], row["cols"], row["k"], row["sorted"], row.get("routing", ""))
    clock = "host_us" if row["gpu_us"] is None else "gpu_us"
    ours, torchs = row[clock], row[f"torch_{clock}"]
    candidate = f"{row['strategy']} {config_words(row['config'])}"
    return Timed(key, row["strategy"], ours, torchs, told(key, candidate, ours, torchs))


def against_torch(timed: Sequence[Timed]) -> Scatter:
    """Time over torch.topk's, of at least one workload."""
    dots = [(one.baseline_us, one.time_us, one.strategy, one.title) for one in _thinned(timed)]
    return scatter(dots, "torch.topk, µs", "winner, µs", {1: "1×", 10: "10×"})


def against_floor(timed: Sequence[Timed], device: Device) -> Scatter | None:
    """Time over the floor; None for a device that none is known of."""
    floors = [(one, floor) for one in timed if (floor := numbers.floor_us(one.key, device)) is not None]
    dots = [(floor, one.time_us, one.strategy, one.title) for one, floor in _thinned(floors)]
    return scatter(dots, "floor, µs", "winner, µs", {1: "1×", 0.1: "10×"}) if dots else None


def line_by_line(timed: Sequence[Timed]) -> Pairs | None:
    """From torch.topk's time to ours for every workload, but for answers in any order; None of none or of too many."""
    shown = [one for one in timed if one.key.sorted]
    if not 0 < len(shown) <= MOST_LINES:
        return None
    return pairs([(_label(one.key), one.baseline_us, one.time_us, one.strategy, one.title) for one in shown])


def _label(key: TuningKey) -> str:
    kind = " ".join(filter(None, ("" if key.dtype == "float32" else key.dtype, key.routing)))
    return f"{key.rows}×{key.cols}, k {key.k}" + (kind and f" {kind}")


def _thinned(found: Sequence[Any]) -> Sequence[Any]:
    """Every n-th, at most MOST_DOTS of them."""
    return found[:: -(-len(found) // MOST_DOTS)] if len(found) > MOST_DOTS else found


@dataclass(frozen=True)
class Figure:
    """What may be drawn alone."""

    title: str
    """Behind the name of the device."""
    drawn: Callable[[Sequence[Timed], Device], Scatter | Pairs | None]
    missing: str
    """Why there may be nothing to draw."""


FIGURES = {
    "times": Figure(
        "microseconds of one call",
        lambda timed, _: line_by_line(timed),
        f"it draws a line for each of 1 to {MOST_LINES} workloads with sorted answers",
    ),
    "torch": Figure("time of winners over torch.topk's", lambda timed, _: against_torch(timed), "nothing was measured"),
    "floor": Figure("time of winners over the floor", against_floor, "no floor is known of this device"),
}


def drawn(name: str, timed: Sequence[Timed], device: Device) -> str:
    """A figure of `FIGURES` alone, as SVG. Raises SelectionError where there is nothing to draw."""
    figure = FIGURES[name]
    chart = figure.drawn(timed, device) if timed else None
    if chart is None:
        raise SelectionError(f"--figure {name}: {figure.missing}")
    names = sorted({dot.strategy for dot in chart.dots} - {TORCHS})
    shown = legend([*names, TORCHS] if chart.kind == "pairs" else names, 20.0, WIDTH)
    return (
        environment(names)
        .get_template("figure.svg")
        .render(chart=chart, title=f"{device.name}, {figure.title}", legend=shown, header=shown[-1][1] + 45 + STEP)
    )
