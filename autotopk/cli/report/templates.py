"""What the templates beside this file share: filters, and the colours of strategies."""

from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotopk.candidate import TORCH_TOPK
from autotopk.cli.report import numbers
from autotopk.cli.tables import short
from autotopk.errors import inert

STRATEGIES = {
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
"""Numbers of colours: the same strategy has the same on every page."""

COLOURS = (
    *(("#8b9199", "#9aa1a9"), ("#2f7de1", "#5b9df0"), ("#e07b1a", "#ec9a4a"), ("#2a9d6f", "#4cba8d")),
    *(("#c4428f", "#dd6db0"), ("#7a5cd0", "#9c83e6"), ("#b8960c", "#d0b23c"), ("#6f7f8f", "#8c9cac")),
    *(("#d24a43", "#e8736c"), ("#1695a5", "#3fb6c5"), ("#8a6d4b", "#b39571"), ("#5c8f2b", "#86b753")),
)
"""On paper and on a dark screen."""

INKS = {
    "paper": ("#fff", "#14171a"),
    "ink": ("#1c2024", "#e6e8ea"),
    "soft": ("#60666d", "#9aa2aa"),
    "line": ("#e2e5e9", "#2d3238"),
}
"""What is no strategy's, likewise."""


def environment(names: Iterable[str]) -> Environment:
    """The templates, with a colour for each of these strategies."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbered = colours(names)
    made.filters |= {
        "us": us,
        "times": times,
        "inert": inert,
        "short": short,
        "strategy": numbers.name_of,
        "speedup": numbers.speedup,
        "colour": lambda name: f"c{numbered[name]}",
    }
    made.globals |= {"COLOURS": COLOURS, "INKS": INKS}
    return made


def colours(names: Iterable[str]) -> dict[str, int]:
    """A colour for every strategy; those that are not built in share what is left."""
    free = [number for number in range(len(COLOURS)) if number not in STRATEGIES.values()]
    others = sorted({*names, TORCH_TOPK.strategy} - STRATEGIES.keys())
    return STRATEGIES | {name: free[at % len(free)] for at, name in enumerate(others)}


def us(value: float) -> str:
    """Microseconds with three digits or so."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(value: float) -> str:
    """A factor with three digits or so."""
    return f"{value:,.0f}×" if value >= 100 else f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"
