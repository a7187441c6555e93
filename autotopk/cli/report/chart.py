"""Points on two logarithmic scales, as numbers that a template draws."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

WIDTH, HEIGHT = 640, 380
"""Of the drawing, in its own units."""

LEFT, RIGHT, TOP, BOTTOM = 76, 36, 14, 52
"""Margins, for labels."""


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
