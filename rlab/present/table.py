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
class _Column:
    """A column as the terminal shows it: at least `least` characters wide, at most `most`; `size` is all its text."""

    heading: str
    cells: Sequence[str]
    figures: bool
    least: int
    most: int
    size: int


@dataclass(frozen=True)
class TerminalTable:
    """For rich's console: no line is longer than the console is wide, no column is dropped, no figure is broken.

    Columns that find no room follow in a second table, which repeats the first columns that tell the rows apart. Headings and
    words fold, and an interval is below its value.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable]:
        table, title = _without_secrets(self.table), plain(redact(self.table.title)) or None
        columns = [_column(table, at) for at in range(len(table.head))]
        count = _fitting(columns[:1], columns[1:], options.max_width)
        yield _rich(columns[: 1 + count], options.max_width, title)
        others = columns[1 + count :]
        first = _repeated(table, columns[: 1 + count], others, options.max_width)
        while others:
            count = _fitting(first, others, options.max_width)
            yield _rich([*first, *others[:count]], options.max_width, None)
            others = others[count:]


terminal = TerminalTable


def as_text(table: Table, width: int = 80) -> str:
    """The table as a terminal of this width shows it, without colours."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as shown:
        console.print(TerminalTable(table))
    return shown.get()


def _column(table: Table, at: int) -> _Column:
    heading, values, figures = table.head[at], [row[at] for row in table.cells], at >= table.words
    shown = [_lines(cell.value) for cell in values]
    limit = _NAME if at == 0 else _SHORT
    whole = max((_unbroken(line, limit, figures) for text in shown for line in text.splitlines()), default=1)
    least = max([1, whole, *(min(cell_len(word), _SHORT) for word in heading.split())])
    most = max([least, *(cell_len(line) for text in (heading, *shown) for line in text.splitlines())])
    coloured = [
        f"[{TERMINAL[cell.tone]}]{plain(text)}[/]" if cell.tone else plain(text)
        for text, cell in zip(shown, values, strict=True)
    ]
    return _Column(heading, coloured, figures, least, most, 1 + sum(map(len, shown)))


def _lines(value: Value | Share) -> str:
    """A cell as the terminal shows it, with an interval or a mean in a line for itself."""
    return text(value).replace(" [", "\n[").replace(" (mean ", "\n(mean ")


def _unbroken(line: str, limit: int, figures: bool) -> int:
    """Characters that stay together: a short line, or else the longest word, which folds only outside figures."""
    if cell_len(line) <= limit:
        return cell_len(line)
    longest = max(map(cell_len, line.split()), default=1)
    return longest if figures else min(longest, limit)


def _repeated(table: Table, shown: Sequence[_Column], others: Sequence[_Column], width: int) -> Sequence[_Column]:
    """The fewest first columns of words that tell the rows apart as well as all of them; only the first without room."""
    most = min(table.words, len(shown))
    different = [
        len(set(zip(*(column.cells for column in shown[:count]), strict=True))) for count in range(1, most + 1)
    ]
    count = 1 + different.index(max(different)) if different else 1
    fits = others and _fits([*shown[:count], max(others, key=lambda column: column.least)], width)
    return shown[: count if fits else 1]


def _fitting(first: Sequence[_Column], others: Sequence[_Column], width: int) -> int:
    """How many of the other columns fit beside the first ones; at least one."""
    count = len(others)
    while count > 1 and not _fits([*first, *others[:count]], width):
        count -= 1
    return count


def _fits(columns: Sequence[_Column], width: int) -> bool:
    return sum(column.least for column in columns) <= _room(len(columns), width)


def _room(columns: int, width: int) -> int:
    """Characters for cells, without the frame: a line and two spaces for each column, and the last line."""
    return width - 3 * columns - 1


def _rich(columns: Sequence[_Column], width: int, title: str | None) -> RichTable:
    from rich.table import Table as RichTable

    widths, room = [column.most for column in columns], _room(len(columns), width)
    while sum(widths) > room:  # the column that is widest for the text in it gives way
        slack = [(now / columns[at].size, at) for at, now in enumerate(widths) if now > columns[at].least]
        if not slack:
            break
        widths[max(slack)[1]] -= 1
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
