"""The page: what `numbers` computes, laid out for the template beside this file."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import autotopk
from autotopk.candidate import TORCH_TOPK
from autotopk.cli.report import numbers
from autotopk.cli.report.chart import Scatter, scatter
from autotopk.cli.report.source import Source, states
from autotopk.cli.tables import short
from autotopk.device import Device
from autotopk.errors import inert
from autotopk.tuning_db.records import Software, Tried, Winner

MOST = 15
"""Rows of a table of extremes."""

MOST_DOTS = 1500
"""Of a chart: beyond that the eye sees no more, and browsers take seconds."""

COLOURS = {
    "lane_merge": 1,
    "block_radix": 2,
    "cluster_radix": 3,
    "split_radix": 4,
    "wide_radix": 5,
    "masked_argmax": 6,
    "torch_fallback": 7,
    "lane_route": 8,
    "list_route": 9,
    "masked_route": 10,
    "torch.topk": 0,
}
"""Numbers of the template's colours: the same strategy has the same on every page."""

PALETTE = 12


@dataclass(frozen=True)
class Cell:
    """A workload on a map."""

    strategy: str
    speedup: float
    title: str


@dataclass(frozen=True)
class Map:
    """Who wins for one k: a row of cells for every number of rows, None where nothing was measured."""

    k: int
    cols: list[int]
    lines: list[tuple[int, list[Cell | None]]]


@dataclass(frozen=True)
class OfDevice:
    """All that is told of one device."""

    device: Device
    anchor: str
    summary: numbers.Summary
    shares: list[numbers.Share]
    maps: list[tuple[str, str, list[Map]]]
    """By dtype and order."""
    against_torch: Scatter
    against_floor: Scatter | None
    floors: numbers.Spread | None
    """Times as multiples of the floor."""
    winners: list[Winner]
    losses: list[numbers.Losses]
    tried: int
    failures: list[tuple[str, str, str, int]]
    margins: numbers.Spread | None
    noisiest: list[tuple[Winner, float]]
    noisy: int
    slowdowns: numbers.Spread | None
    slowest: list[tuple[Winner, float]]
    states: list[tuple[Winner, str]]
    borrowed_here: str | None
    """The GPU of this machine that would borrow these winners."""
    software: list[Software]
    baselines: list[str]
    first: str
    last: str


def render(source: Source, against: Source | None = None, here: Sequence[Device] = ()) -> str:
    """The page as HTML that needs nothing beside it.

    Args:
        source: what it is about.
        against: an older file to compare it with.
        here: the devices of this machine.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "us": _us,
        "times": _times,
        "inert": inert,
        "short": short,
        "strategy": numbers.name_of,
        "speedup": numbers.speedup,
    }
    names = {numbers.name_of(one) for one in source.winners} | {one.candidate.strategy for one in source.tried}
    colours = _colours(names | {numbers.name_of(one) for one in (against.winners if against else ())})
    environment.filters["colour"] = lambda name: f"c{colours[name]}"
    return environment.get_template("report.html").render(
        source=source,
        against=against,
        changes=_changes(source, against) if against else None,
        devices=of_devices(source, here),
        floor_us=numbers.floor_us,
        most=MOST,
        version=autotopk.__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def of_devices(source: Source, here: Sequence[Device] = ()) -> list[OfDevice]:
    """What is told of each device that has winners, GPUs first."""
    by_device: dict[str, list[Winner]] = {}
    for one in source.winners:
        by_device.setdefault(one.device.fingerprint, []).append(one)
    tried: dict[str, list[Tried]] = {}
    for turn in source.tried:
        tried.setdefault(turn.fingerprint, []).append(turn)
    ordered = sorted(by_device, key=lambda name: (not name.startswith("cuda"), name))
    return [
        _of_device(by_device[name], tried.get(name, []), source.software, here, f"device{at}")
        for at, name in enumerate(ordered, 1)
    ]


def _of_device(
    winners: list[Winner], tried: list[Tried], software: Iterable[Software], here: Sequence[Device], anchor: str
) -> OfDevice:
    device = winners[0].device
    floors = [(one, floor) for one in winners if (floor := numbers.floor_us(one.key, device)) is not None]
    dots = [(one.baseline_us, one.time_us, numbers.name_of(one), _title(one)) for one in _thinned(winners)]
    bounded = [(floor, one.time_us, numbers.name_of(one), _title(one)) for one, floor in _thinned(floors)]
    moments = sorted(one.measured_at for one in winners)
    return OfDevice(
        device,
        anchor,
        numbers.summary(winners),
        numbers.shares(winners),
        [
            (dtype, order, [_map(k, its) for k, its in by_k.items()])
            for (dtype, order), by_k in numbers.grids(winners).items()
        ],
        scatter(dots, "torch.topk, µs", "winner, µs", {1: "1×", 10: "10×"}),
        scatter(bounded, "floor, µs", "winner, µs", {1: "1×", 0.1: "10×"}) if bounded else None,
        numbers.spread(one.time_us / floor for one, floor in floors),
        winners,
        numbers.losses(tried, winners),
        len(tried),
        numbers.failures(tried, MOST),
        numbers.spread(one.margin for one in winners),
        numbers.top(winners, lambda one: one.margin, MOST),
        sum(one.status == "noisy" for one in tried),
        numbers.spread(one.adversarial_slowdown for one in winners),
        numbers.top(winners, lambda one: one.adversarial_slowdown, MOST),
        states(winners),
        _borrower(device, here),
        [one for one in software if one.fingerprint == device.fingerprint],
        sorted({one.baseline for one in winners}),
        moments[0][:10],
        moments[-1][:10],
    )


def _map(k: int, winners: Iterable[Winner]) -> Map:
    at = {(one.key.rows, one.key.cols): one for one in winners}
    cols = sorted({cols for _, cols in at})
    rows = sorted({rows for rows, _ in at})
    lines = [(count, [_cell(at.get((count, wide))) for wide in cols]) for count in rows]
    return Map(k, cols, lines)


def _cell(winner: Winner | None) -> Cell | None:
    return None if winner is None else Cell(numbers.name_of(winner), numbers.speedup(winner), _title(winner))


def _title(winner: Winner) -> str:
    times = f"{_us(winner.time_us)} µs, torch.topk {_us(winner.baseline_us)} µs"
    return f"{winner.key}: {short(winner.candidate)}, {times}"


def _thinned(found: Sequence[Any]) -> Sequence[Any]:
    """Every n-th, at most MOST_DOTS of them."""
    return found[:: -(-len(found) // MOST_DOTS)] if len(found) > MOST_DOTS else found


def _borrower(lender: Device, here: Sequence[Device]) -> str | None:
    for one in here:
        if one.type == lender.type == "cuda" and one.capability == lender.capability and one != lender:
            return one.fingerprint
    return None


def _changes(source: Source, against: Source) -> dict[str, Any]:
    """How the winners of two files compare."""
    pairs = numbers.compared(against.winners, source.winners)
    faster = [pair.faster for pair in pairs]
    return {
        "pairs": pairs,
        "mean": geometric_mean(faster) if faster else None,
        "slower": sum(one < 0.97 for one in faster),
        "quicker": sum(one > 1.03 for one in faster),
        "other": sum(pair.old.candidate != pair.new.candidate for pair in pairs),
        "added": len(source.winners) - len(pairs),
        "removed": len(against.winners) - len(pairs),
    }


def _colours(names: Iterable[str]) -> dict[str, int]:
    """A colour for every strategy; those that are not built in share what is left."""
    free = [number for number in range(PALETTE) if number not in COLOURS.values()]
    others = sorted({*names, TORCH_TOPK.strategy} - COLOURS.keys())
    return COLOURS | {name: free[at % len(free)] for at, name in enumerate(others)}


def _us(value: float) -> str:
    """Microseconds with three digits or so."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _times(value: float) -> str:
    """A factor with three digits or so."""
    return f"{value:,.0f}×" if value >= 100 else f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"
