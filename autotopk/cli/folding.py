"""Tables that are never wider than their terminal: one line a row where all rows fit, else long cells beneath."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from autotopk.errors import inert

GAP = "  "

UNFOLDED = 1_000_000
"""Columns that nothing is folded in."""


class FoldingTable:
    """Rows of texts under headings, whole however narrow the terminal: folded between words, and words never cut.

    A heading's last character says how its column is set, and is not shown: `>` to the right, `/` beneath its row,
    after the heading, where a terminal is too narrow for a line a row. The first column is what is folded there.
    """

    def __init__(
        self, title: str, headings: Sequence[str], rows: Iterable[Sequence[str | Text]], caption: str = ""
    ) -> None:
        self._title, self._caption = Text(inert(title), style="italic"), Text(caption, style="dim italic")
        self._names = [heading.rstrip(">/") for heading in headings]
        self._right = [heading.endswith(">") for heading in headings]
        self._beneath = [heading.endswith("/") for heading in headings]
        self._rows = [[Text(inert(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        unfolded = Measurement.get(console, options.update(max_width=UNFOLDED), table).maximum
        if unfolded <= options.max_width:
            yield table
        else:
            yield from self._lines(options.max_width)

    def _table(self) -> Table:
        table = Table(
            title=self._title,
            title_justify="left",
            caption=self._caption or None,
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
        )
        for name, right in zip(self._names, self._right, strict=True):
            table.add_column(name, justify="right" if right else "left")
        for row in self._rows:
            table.add_row(*row)
        return table

    def _lines(self, width: int) -> Iterator[Text]:
        """The same, at most so wide, unless a single word or the numbers of a row are wider."""
        kept = [at for at, beneath in enumerate(self._beneath) if not beneath]
        widths = [max(_longest(self._names[at]), *(row[at].cell_len for row in self._rows), 0) for at in kept]
        first = max(_longest(row[kept[0]].plain) for row in self._rows) if self._rows else 0
        widths[0] = max(first, min(widths[0], width - sum(widths[1:]) - len(GAP) * (len(widths) - 1)))
        yield from (Text(line, self._title.style) for line in _folded(self._title.plain, width))
        names = [_folded(self._names[at], wide) for at, wide in zip(kept, widths, strict=True)]
        depth = max(map(len, names))
        for line in zip(*([""] * (depth - len(name)) + name for name in names), strict=True):
            yield self._line([Text(part, "bold") for part in line], kept, widths)
        yield Text("─" * (sum(widths) + len(GAP) * (len(widths) - 1)))
        for row in self._rows:
            begin, *more = _folded(row[kept[0]].plain, widths[0])
            yield self._line([Text(begin, row[kept[0]].style), *(row[at] for at in kept[1:])], kept, widths)
            yield from (Text(line, row[kept[0]].style) for line in more)
            for at, cell in enumerate(row):
                if self._beneath[at] and cell.plain:
                    told = _folded(f"{self._names[at]}: {cell.plain}", width, GAP, GAP * 2)
                    yield from (Text(line, cell.style) for line in told)
        yield from (Text(line, self._caption.style) for line in _folded(self._caption.plain, width) if line)

    def _line(self, cells: Sequence[Text], kept: Sequence[int], widths: Sequence[int]) -> Text:
        line = Text()
        for at, cell, wide in zip(kept, cells, widths, strict=True):
            space = " " * (wide - cell.cell_len)
            line.append(GAP if at != kept[0] else "")
            line.append_text(Text.assemble(*((space, cell) if self._right[at] else (cell, space))))
        line.rstrip()
        return line


def _longest(text: str) -> int:
    """Of its words."""
    return max(map(len, text.split()), default=0)


def _folded(text: str, width: int, begin: str = "", then: str = "") -> list[str]:
    """At least one line."""
    lines = wrap(
        text, width, initial_indent=begin, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )
    return lines or [""]
