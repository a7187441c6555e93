"""The page: what `numbers` computes, laid out for the template beside this file."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import geometric_mean
from typing import Any

import autotopk
from autotopk.cli.report import figures, numbers
from autotopk.cli.report.chart import Pairs, Scatter
from autotopk.cli.report.figures import Timed
from autotopk.cli.report.source import Source, states
from autotopk.cli.report.templates import environment
from autotopk.device import Device
from autotopk.prediction import CELL, Model, band_of
from autotopk.tuning_db.records import Software, Tried, Winner

MOST = 15
"""Rows of a table of extremes."""

MAPS = 12
"""Of one dtype and order, each for one k."""

TITLES = 4
"""Workloads of a place that are named."""


@dataclass(frozen=True)
class Cell:
    """A workload on a map."""

    strategy: str
    speedup: float
    title: str


@dataclass(frozen=True)
class Map:
    """Who wins for one k, or several: a row of cells for every number of rows, None where nothing was measured."""

    k: str
    cols: list[str]
    lines: list[tuple[str, list[Cell | None]]]


@dataclass(frozen=True)
class OfDevice:
    """All that is told of one device."""

    device: Device
    anchor: str
    summary: numbers.Summary
    shares: list[numbers.Share]
    maps: list[tuple[str, str, list[Map]]]
    """By dtype and order."""
    times: Pairs | None
    against_torch: Scatter
    against_floor: Scatter | None
    floors: numbers.Spread | None
    """Times as multiples of the floor."""
    winners: list[Winner]
    losses: list[numbers.Losses]
    regrets: numbers.Spread | None
    predicted: list[numbers.Predicted]
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
    names = {numbers.name_of(one) for one in source.winners} | {one.candidate.strategy for one in source.tried}
    names |= {numbers.name_of(one) for one in (against.winners if against else ())}
    return (
        environment(names)
        .get_template("report.html")
        .render(
            source=source,
            against=against,
            changes=_changes(source, against) if against else None,
            devices=of_devices(source, here),
            floor_us=numbers.floor_us,
            most=MOST,
            version=autotopk.__version__,
            made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )


def of_devices(source: Source, here: Sequence[Device] = ()) -> list[OfDevice]:
    """What is told of each device that has winners, GPUs first."""
    tried: dict[str, list[Tried]] = {}
    for turn in source.tried:
        tried.setdefault(turn.fingerprint, []).append(turn)
    return [
        _of_device(
            its,
            tried.get(its[0].device.fingerprint, []),
            source.models.get(its[0].device.fingerprint, {}),
            source.software,
            here,
            f"device{at}",
        )
        for at, its in enumerate(by_device(source.winners), 1)
    ]


def by_device(winners: Iterable[Winner]) -> list[list[Winner]]:
    """Winners of each device, GPUs first."""
    found: dict[str, list[Winner]] = {}
    for one in winners:
        found.setdefault(one.device.fingerprint, []).append(one)
    return [found[name] for name in sorted(found, key=lambda name: (not name.startswith("cuda"), name))]


def _of_device(
    winners: list[Winner],
    tried: list[Tried],
    models: Mapping[str, Model],
    software: Iterable[Software],
    here: Sequence[Device],
    anchor: str,
) -> OfDevice:
    device = winners[0].device
    floors = [(one, floor) for one in winners if (floor := numbers.floor_us(one.key, device)) is not None]
    timed = [*map(Timed.of, winners)]
    moments = sorted(one.measured_at for one in winners)
    return OfDevice(
        device,
        anchor,
        numbers.summary(winners),
        numbers.shares(winners),
        [(dtype, order, maps_of(by_k)) for (dtype, order), by_k in numbers.grids(winners).items()],
        figures.line_by_line(timed),
        figures.against_torch(timed),
        figures.against_floor(timed, device),
        numbers.spread(one.time_us / floor for one, floor in floors),
        winners,
        numbers.losses(tried, winners),
        numbers.regrets(tried, winners),
        numbers.predicted(models),
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


def maps_of(by_k: Mapping[int, Sequence[Winner]]) -> list[Map]:
    """A map for every k; where those would be more than `MAPS`, for those between two powers of four, as all sizes."""
    several = len(by_k) > MAPS
    grouped: defaultdict[int, list[Winner]] = defaultdict(list)
    for k, its in by_k.items():
        grouped[_place(k, several)] += its
    return [_map(_label(k, several), its, several) for k, its in sorted(grouped.items())]


def _map(k: str, winners: Iterable[Winner], several: bool) -> Map:
    at: defaultdict[tuple[int, int], list[Winner]] = defaultdict(list)
    for one in winners:
        at[_place(one.key.rows, several), _place(one.key.cols, several)].append(one)
    cols = sorted({cols for _, cols in at})
    rows = sorted({rows for rows, _ in at})
    lines = [(_label(count, several), [_cell(at.get((count, wide), [])) for wide in cols]) for count in rows]
    return Map(k, [_label(wide, several) for wide in cols], lines)


def _place(size: int, several: bool) -> int:
    """Where it is on a map: by itself, or from where its region's edge begins."""
    return 1 << CELL * band_of(size) if several else size


def _label(place: int, several: bool) -> str:
    return f"{place}+" if several else str(place)


def _cell(winners: Sequence[Winner]) -> Cell | None:
    if not winners:
        return None
    names = Counter(sorted(map(numbers.name_of, winners)))
    titles = [Timed.of(one).title for one in winners]
    told = titles[:TITLES] + ([f"and {len(titles) - TITLES} more"] if len(titles) > TITLES else [])
    return Cell(names.most_common(1)[0][0], geometric_mean(map(numbers.speedup, winners)), "; ".join(told))


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
