"""Write what `autotopk bench --json FILE` measured into a page: `python scripts/figures.py FILE [PAGE]`.

The page, docs/figures/h200-seeds.md by default, holds the two comments that the table goes between.
"""

import json
import re
import sys
from collections.abc import Mapping
from itertools import groupby
from math import exp, fsum, log
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs/figures/h200-seeds.md"
BLOCK = re.compile(r"(?<=<!-- figures -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)
HEADER = """\
| shape, k | torch.topk | sorted | any order | strategy (sorted) | host: torch.topk | host: autotopk |
|---|--:|--:|--:|---|--:|--:|
"""

Row = Mapping[str, Any]


def section(document: Mapping[str, Any]) -> str:
    """The device, the command, a table of microseconds, and the ratios in short, as Markdown."""
    device, versions, rows = document["device"], document["versions"], document["rows"]
    shapes = [list(both) for _, both in groupby(rows, key=shape)]
    return (
        f"{device['name']}, torch {versions['torch']} (torch.topk: {versions['baseline']}), "
        f"Triton {versions['triton']}, {document['date'][:10]}, commit {document['commit'][:10]}, "
        f"`{document['command']}`, microseconds of one call:\n\n"
        f"{HEADER}{''.join(map(line, shapes))}\n{summary(rows, True)}\n{summary(rows, False)}\n"
    )


def shape(row: Row) -> str:
    """Rows, columns, k and dtype."""
    dtype = "" if row["dtype"] == "float32" else f" {row['dtype']}"
    return f"{row['rows']}x{row['cols']}, {row['k']}{dtype}"


def line(orders: list[Row]) -> str:
    """One shape; torch.topk, the strategy and host times are those of the sorted call."""
    in_order, any_order = sorted(orders, key=lambda row: not row["sorted"])
    cells = (
        shape(in_order),
        f"{in_order['torch_gpu_us']:.1f}",
        f"{in_order['gpu_us']:.1f}",
        f"{any_order['gpu_us']:.1f}",
        in_order["strategy"],
        f"{in_order['torch_host_us']:.1f}",
        f"{in_order['host_us']:.1f}",
    )
    return f"| {' | '.join(cells)} |\n"


def summary(rows: list[Row], order: bool) -> str:
    """How many times faster than torch.topk in the same order, on the GPU."""
    speedups = [row["torch_gpu_us"] / row["gpu_us"] for row in rows if row["sorted"] == order]
    mean = exp(fsum(map(log, speedups)) / len(speedups))
    exact = sum(row["exact"] for row in rows if row["sorted"] == order)
    return (
        f"{'Sorted' if order else 'Any order'}: {mean:.2f} times as fast as torch.topk in geometric mean, "
        f"{min(speedups):.2f} at worst; {exact} of {len(speedups)} exact."
    )


def main() -> None:
    """Replace the block between the page's two comments."""
    document = json.loads(Path(sys.argv[1]).read_text())
    page = Path(sys.argv[2]) if len(sys.argv) > 2 else PAGE
    text, found = BLOCK.subn(lambda _: section(document), page.read_text())
    if found != 1:
        sys.exit(f"{page} holds {found} blocks of figures, not one")
    page.write_text(text)


if __name__ == "__main__":
    main()
