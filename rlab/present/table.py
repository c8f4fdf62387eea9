"""One table with three renderers: terminal and Markdown here, HTML in the page's template. Cells hold unrounded values."""

from __future__ import annotations

import io
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len

from rlab.redact import redact
from rlab.stats import Estimate

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table as RichTable

Tone = Literal["", "pass", "fail", "warn"]  # for the model's owner
TERMINAL: dict[Tone, str] = {"pass": "green", "fail": "red", "warn": "yellow"}  # pages define theirs in style.css
Value = str | int | float | Estimate | None
_SHORT, _NAME = 14, 24  # characters that stay in one line: of cells such as "12.5 + 3.5", of names in the first column
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")  # all but line breaks


@dataclass(frozen=True)
class Share:
    """A share in [0, 1], shown in percent."""

    value: float | Estimate
    digits: int = 1


@dataclass(frozen=True)
class Cell:
    """A cell with a colour, which its text must not depend on; `link` is an id on the page."""

    value: Value | Share
    tone: Tone = ""
    link: str = ""


Cells = Sequence[Value | Share | Cell]


@dataclass(frozen=True)
class Table:
    """The first `words` columns hold words, the others figures."""

    head: Sequence[str]
    rows: Sequence[Cells]
    title: str = ""
    words: int = 1

    @property
    def cells(self) -> list[list[Cell]]:
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]

    def first(self, limit: int) -> Table:
        """The first `limit` rows; the title says how many there are."""
        if len(self.rows) <= limit:
            return self
        title = ", ".join(filter(None, [self.title, f"the first {limit} of {len(self.rows)}"]))
        return Table(self.head, self.rows[:limit], title, self.words)


def number(value: float, digits: int = 3) -> str:
    """A rounded number, with a dash for NaN."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def text(value: Value | Share) -> str:
    """A cell as text, with intervals in brackets."""
    match value:
        case None:
            return "–"
        case str() | int():
            return f"{value:,}" if isinstance(value, int) else str(redact(value))
        case float():
            return number(value)
        case Estimate(low=low, high=high):
            return number(value.value) + (f" [{number(low)}, {number(high)}]" if low < math.inf else "")
        case Share(value=share, digits=digits):
            e = share if isinstance(share, Estimate) else Estimate(share)
            interval = "" if math.isnan(e.low) else f" [{100 * e.low:.{digits}f}, {100 * e.high:.{digits}f}]"
            return ("–" if math.isnan(e.value) else f"{e.value:.{digits}%}") + interval
    raise AssertionError(value)


def typed(path: Path) -> str:
    """A path in a command that people copy: quoted if a shell needs quotes, and escaped for rich."""
    return plain(shlex.quote(str(path)))


def plain(value: object) -> str:
    """Escape text for rich: brackets are not markup, control characters have no effect."""
    from rich.markup import escape

    text = str(value).encode("utf-8", "backslashreplace").decode()  # file names may hold bytes that are not text
    return escape(_CONTROL.sub("�", text))


@dataclass(frozen=True)
class TerminalTable:
    """For rich's console: no line is longer than the console is wide, no column is dropped, no figure is broken.

    Columns that find no room follow in a second table, which repeats the first columns that tell the rows apart. Headings and
    words fold, and an interval is below its value.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable]:
        table, width = _without_secrets(self.table), options.max_width
        columns = [_Column.of(table, at) for at in range(len(table.head))]
        first, rest, title = columns[:1], columns[1:], plain(table.title) or None
        while True:
            count = max(1, sum(_fits([*first, *rest[:count]], width) for count in range(1, len(rest) + 1)))
            yield _drawn([*first, *rest[:count]], width, title)
            rest, title = rest[count:], None
            if not rest:
                return
            keys = columns[: _keys(table)]
            first = keys if all(_fits([*keys, column], width) for column in rest) else columns[:1]


terminal = TerminalTable


def as_text(table: Table, width: int = 80) -> str:
    """The table as a terminal of this width shows it, without colours."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as shown:
        console.print(TerminalTable(table))
    return shown.get()


def _keys(table: Table) -> int:
    """The number of first columns, all of words, that tell the rows apart; 1 if none do."""
    rows = [tuple(text(cell.value) for cell in row[: table.words]) for row in table.cells]
    return next((n for n in range(1, table.words + 1) if len({row[:n] for row in rows}) == len(rows)), 1)


@dataclass(frozen=True)
class _Column:
    """A column as the terminal shows it, at least `least` and at most `most` characters wide."""

    heading: str
    cells: Sequence[str]
    figures: bool
    least: int
    most: int

    @classmethod
    def of(cls, table: Table, at: int) -> _Column:
        heading, figures, limit = table.head[at], at >= table.words, _NAME if at == 0 else _SHORT
        cells = [row[at] for row in table.cells]
        # An interval or a mean has a line for itself.
        shown = [text(cell.value).replace(" [", "\n[").replace(" (mean ", "\n(mean ") for cell in cells]
        least = [1, *(min(cell_len(word), _SHORT) for word in heading.split())]
        for line in (line for words in shown for line in words.splitlines()):
            word = max(map(cell_len, line.split()), default=1)  # long words fold, but not in figures
            least.append(cell_len(line) if cell_len(line) <= limit else word if figures else min(word, limit))
        most = max([*least, *(cell_len(line) for words in (heading, *shown) for line in words.splitlines())])
        colours = [TERMINAL.get(cell.tone, "none") for cell in cells]
        coloured = [f"[{colour}]{plain(words)}[/]" for words, colour in zip(shown, colours, strict=True)]
        return cls(heading, coloured, figures, max(least), most)


def _room(columns: Sequence[_Column], width: int) -> int:
    """Characters for cells, without the frame: a line and two spaces for each column, and the last line."""
    return width - 3 * len(columns) - 1


def _fits(columns: Sequence[_Column], width: int) -> bool:
    return sum(column.least for column in columns) <= _room(columns, width)


def _drawn(columns: Sequence[_Column], width: int, title: str | None) -> RichTable:
    from rich.table import Table as RichTable

    widths = [column.most for column in columns]
    while sum(widths) > _room(columns, width):  # the column that can give most gives way
        slack, at = max((now - column.least, at) for at, (now, column) in enumerate(zip(widths, columns, strict=True)))
        if not slack:
            break
        widths[at] -= 1
    out = RichTable(title=title, title_justify="left", show_header=any(column.heading for column in columns))
    for column, wide in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.figures else "left"
        out.add_column(plain(column.heading), justify=justify, overflow="fold", width=wide)
    for row in zip(*(column.cells for column in columns), strict=True):
        out.add_row(*row)
    return out


def _without_secrets(table: Table) -> Table:
    """Redact title and headings; `text` redacts the cells."""
    return replace(table, head=[redact(heading) for heading in table.head], title=redact(table.title))


def markdown(table: Table) -> str:
    table = _without_secrets(table)
    lines = [table.head, ["---" if at < table.words else "---:" for at in range(len(table.head))]]
    lines += [[text(cell.value) for cell in row] for row in table.cells]
    cleaned = ([" ".join(cell.replace("|", "\\|").split()) for cell in line] for line in lines)
    body = "\n".join(f"| {' | '.join(line)} |" for line in cleaned)
    return f"**{table.title}**\n\n{body}\n" if table.title else body + "\n"


def records(table: Table) -> list[Mapping[str, Any]]:
    """Rows as mappings from heading to unrounded value."""
    rows: list[Mapping[str, Any]] = []
    for row in table.cells:
        record: dict[str, Any] = {}
        for heading, cell in zip(table.head, row, strict=True):
            name = " ".join(heading.split())
            value = cell.value.value if isinstance(cell.value, Share) else cell.value
            if isinstance(value, Estimate):
                record |= {name: value.value, f"{name} low": value.low, f"{name} high": value.high}
            else:
                record[name] = value
        rows.append(record)
    return rows
