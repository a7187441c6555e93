"""Draw what `autotopk bench --json FILE` measured: `python scripts/picture.py FILE PICTURE.svg`.

One line a shape, on a logarithmic scale of microseconds: from torch.topk's time to ours.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from math import log10
from pathlib import Path
from typing import Any

WIDTH, LEFT, RIGHT, TOP, STEP = 760, 150, 60, 64, 19
LOW, HIGH = 1.0, 200.0
"""Microseconds at the ends of the scale."""
TICKS = (1, 2, 5, 10, 20, 50, 100, 200)
STYLE = """\
<style>
  text { font: 12px system-ui, sans-serif; fill: #333 }
  .tick { stroke: #8884; stroke-width: 1 }
  .gap { stroke: #0a7d5588; stroke-width: 4 }
  .torch { fill: #999 }
  .ours { fill: #0a7d55 }
  .end { text-anchor: end } .middle { text-anchor: middle }
  @media (prefers-color-scheme: dark) { text { fill: #ccc } .ours { fill: #2fbf8a } .gap { stroke: #2fbf8a66 } }
</style>
"""


def place(us: float) -> float:
    """Where a time lies on the scale, in pixels."""
    return LEFT + (WIDTH - LEFT - RIGHT) * (log10(us) - log10(LOW)) / (log10(HIGH) - log10(LOW))


def drawn(document: Mapping[str, Any]) -> str:
    """The picture, as SVG: sorted calls in the order of the file."""
    rows = [row for row in document["rows"] if row["sorted"]]
    bottom = TOP + STEP * len(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 16}" role="img">\n'
        f"<title>Microseconds of torch.topk and autotopk.topk on {document['device']['name']}</title>\n"
        f"{STYLE}{''.join(legend(document['device']['name']))}{''.join(map(tick, TICKS, [bottom] * len(TICKS)))}"
        f"{''.join(line(row, TOP + STEP * number) for number, row in enumerate(rows))}</svg>\n"
    )


def legend(device: str) -> Iterable[str]:
    """What the two colours mean."""
    yield f'<text x="8" y="18">{device}, microseconds of one call</text>\n'
    for x, kind, name in ((360, "ours", "autotopk.topk"), (480, "torch", "torch.topk")):
        yield f'<circle class="{kind}" cx="{x}" cy="14" r="5"/><text x="{x + 10}" y="18">{name}</text>\n'
    yield f'<text class="end" x="{WIDTH - 8}" y="18">times as fast</text>\n'


def tick(us: int, bottom: int) -> str:
    """A line of the scale with its number."""
    x = place(us)
    return (
        f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 14}" y2="{bottom}"/>'
        f'<text class="middle" x="{x:.1f}" y="{TOP - 20}">{us}</text>\n'
    )


def line(row: Mapping[str, Any], y: int) -> str:
    """One shape: its name, both times, and the ratio."""
    ours, theirs = place(row["gpu_us"]), place(row["torch_gpu_us"])
    ratio = row["torch_gpu_us"] / row["gpu_us"]
    return (
        f'<text class="end" x="{LEFT - 14}" y="{y + 4}">{row["rows"]}x{row["cols"]}, k={row["k"]}</text>'
        f'<line class="gap" x1="{ours:.1f}" x2="{theirs:.1f}" y1="{y}" y2="{y}"/>'
        f'<circle class="torch" cx="{theirs:.1f}" cy="{y}" r="5"/>'
        f'<circle class="ours" cx="{ours:.1f}" cy="{y}" r="5"/>'
        f'<text class="end" x="{WIDTH - 8}" y="{y + 4}">{ratio:.1f}</text>\n'
    )


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(drawn(json.loads(Path(sys.argv[1]).read_text())))
