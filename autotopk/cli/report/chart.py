"""Points on two logarithmic scales, and pairs of them on one, as numbers that templates draw."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

WIDTH, HEIGHT = 640, 380
"""Of the drawing, in its own units."""

LEFT, RIGHT, TOP, BOTTOM = 76, 36, 14, 52
"""Margins, for labels."""

STEP, LETTER, GUTTER = 21, 7.4, 14
"""Between lines; of an average letter; between a label and what it belongs to."""

RATIO = 60
"""Of a ratio behind its pair."""

MOST_TICKS = 9
"""On a scale of pairs: beyond that it has powers of ten alone."""


@dataclass(frozen=True)
class Dot:
    """A point, in units of the drawing."""

    x: float
    y: float
    strategy: str
    title: str


@dataclass(frozen=True)
class Line:
    """From the lower left to the upper right: all points of one ratio."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str


@dataclass(frozen=True)
class Scatter:
    """What is drawn."""

    dots: list[Dot]
    lines: list[Line]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    x_label: str
    y_label: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM
    kind: str = "scatter"


def scatter(
    points: Sequence[tuple[float, float, str, str]], x_label: str, y_label: str, factors: Mapping[float, str]
) -> Scatter:
    """Lay points out.

    Args:
        points: at least one: x, y (both positive), strategy, title.
        x_label: of the axis, with its unit.
        y_label: likewise.
        factors: a line is drawn where x is that many times y, and called that.
    """
    x_low, x_high = _decades(x for x, *_ in points)
    y_low, y_high = _decades(y for _, y, *_ in points)

    def across(x: float) -> float:
        return round(LEFT + (log10(x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT), 1)

    def up(y: float) -> float:
        return round(HEIGHT - BOTTOM - (log10(y) - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM), 1)

    lines = []
    for factor, label in factors.items():
        low, high = max(10**x_low, 10**y_low * factor), min(10**x_high, 10**y_high * factor)
        if low < high:
            lines.append(Line(across(low), up(low / factor), across(high), up(high / factor), label))
    return Scatter(
        [Dot(across(x), up(y), strategy, title) for x, y, strategy, title in points],
        lines,
        [(across(10**n), _plain(n)) for n in range(x_low, x_high + 1)],
        [(up(10**n), _plain(n)) for n in range(y_low, y_high + 1)],
        x_label,
        y_label,
    )


def _decades(values: Iterable[float]) -> tuple[int, int]:
    """Powers of ten that values lie between, one apart at least."""
    known = list(values)
    low = floor(log10(min(known)))
    return low, max(low + 1, ceil(log10(max(known))))


def _plain(power: int) -> str:
    return f"{10.0**power:,.{max(0, -power)}f}"


@dataclass(frozen=True)
class Pair:
    """Two times of one workload, on one line."""

    y: int
    ours: float
    torchs: float
    label: str
    strategy: str
    ratio: str
    title: str


@dataclass(frozen=True)
class Pairs:
    """A line for each workload."""

    dots: list[Pair]
    ticks: list[tuple[float, str]]
    height: int
    left: float
    bottom: int
    top: int = TOP + STEP
    width: int = WIDTH
    right: int = WIDTH - RATIO
    kind: str = "pairs"


def pairs(timed: Sequence[tuple[str, float, float, str, str]]) -> Pairs:
    """Lay times out, on a scale of microseconds from the least to the greatest.

    Args:
        timed: at least one: label, torch.topk's and our time (both positive), strategy, title.
    """
    found = [us for _, theirs, ours, *_ in timed for us in (theirs, ours)]
    low, high = _decades(found)
    steps = [digit * 10.0**power for power in range(low, high + 1) for digit in (1, 2, 5)]
    begin = max(step for step in steps if step <= min(found))
    end = min(step for step in steps if step >= max(found) and step > begin)
    left = round(2 * GUTTER + LETTER * max(len(label) for label, *_ in timed), 1)
    bottom = TOP + STEP * (len(timed) + 1)

    def across(us: float) -> float:
        return round(left + log10(us / begin) / log10(end / begin) * (WIDTH - RATIO - left), 1)

    lines = [
        Pair(
            TOP + STEP * (at + 1) + STEP // 2,
            across(ours),
            across(theirs),
            label,
            strategy,
            f"{theirs / ours:.1f}×",
            title,
        )
        for at, (label, theirs, ours, strategy, title) in enumerate(timed)
    ]
    ticks = [step for step in steps if begin <= step <= end]
    if len(ticks) > MOST_TICKS:
        ticks = [10.0**power for power in range(low, high + 1) if begin <= 10.0**power <= end]
    return Pairs(lines, [(across(tick), f"{tick:,.10g}") for tick in ticks], bottom + GUTTER // 2, left, bottom)


def legend(names: Sequence[str], left: float, width: int) -> list[tuple[float, int, str]]:
    """Places of dots with names behind them, in as many lines as they need."""
    found, x, y = list[tuple[float, int, str]](), left, 0
    for name in names:
        wide = LETTER * len(name) + 3 * GUTTER
        if x > left and x + wide > width:
            x, y = left, y + STEP
        found.append((x, y, name))
        x += wide
    return found
