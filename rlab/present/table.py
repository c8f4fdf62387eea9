"""One table, four renderers: terminal, Markdown and CSV here, HTML in the page's template.

Cells are values, not text: what is shown is rounded, what is written to CSV is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlab.present.tones import TERMINAL
from rlab.present.tones import Tone as Tone
from rlab.redact import redact
from rlab.stats import Estimate
from rlab.storage.files import write_csv

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Value = str | int | float | Estimate | None
_SHORT = 14  # characters: such as "12.5 + 3.5" or "0.83 mV"
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")  # all but the end of a line


@dataclass(frozen=True)
class Share:
    """A part of one, shown in percent."""

    value: float | Estimate
    digits: int = 1


@dataclass(frozen=True)
class Cell:
    """A cell that is told apart by colour; its text says the same. `link`: the id of what it leads to on a page."""

    value: Value | Share
    tone: Tone = ""
    link: str = ""


Cells = Sequence[Value | Share | Cell]


@dataclass(frozen=True)
class Table:
    """`words`: so many columns from the left are words, the others figures."""

    head: Sequence[str]
    rows: Sequence[Cells]
    title: str = ""
    words: int = 1
    kind: str = "table"  # of block, where it stands on a page

    @property
    def cells(self) -> list[list[Cell]]:
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]

    def first(self, limit: int) -> Table:
        """The first rows; the title says so where there are more."""
        if len(self.rows) <= limit:
            return self
        return Table(self.head, self.rows[:limit], f"{self.title}, the first {limit} of {len(self.rows)}", self.words)


def number(value: float, digits: int = 3) -> str:
    """A figure as people read it; a dash where there is none."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def text(value: Value | Share) -> str:
    """A cell as it is shown; intervals in brackets."""
    match value:
        case None:
            return "–"
        case str() | int():
            return f"{value:,}" if isinstance(value, int) else str(redact(value))
        case float():
            return number(value)
        case Estimate(low=low, high=high) if not math.isnan(low) and low < math.inf:
            return f"{number(value.value)} [{number(low)}, {number(high)}]"
        case Estimate():
            return number(value.value)
        case Share(value=Estimate() as e, digits=digits) if not math.isnan(e.low):
            return f"{_percent(e.value, digits)} [{100 * e.low:.{digits}f}, {100 * e.high:.{digits}f}]"
        case Share(value=Estimate() as e, digits=digits):
            return _percent(e.value, digits)
        case Share(value=float() | int() as share, digits=digits):
            return _percent(share, digits)
    raise AssertionError(value)


def _percent(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}%}"


def plain(value: object) -> str:
    """Any text as rich's console shows it: its brackets are no markup, its control characters do nothing."""
    from rich.markup import escape

    text = str(value).encode("utf-8", "backslashreplace").decode()  # names of files may hold bytes that are no text
    return escape(_CONTROL.sub("�", text))


def terminal(table: Table) -> RichTable:
    """For rich's console: figures and other short cells are never broken, headings and words fold, an interval is below
    its value."""
    from rich.table import Table as RichTable

    table = _without_secrets(table)
    out = RichTable(title=plain(table.title) or None, title_justify="left")
    for heading in table.head[: table.words]:
        out.add_column(plain(heading), overflow="fold")
    for at, heading in enumerate(table.head[table.words :], table.words):
        values = [row[at].value for row in table.cells]
        least = max([1, *map(_unbroken, values), *(len(word) for word in heading.split() if len(word) <= _SHORT)])
        lines = [line for shown in (heading, *map(_lines, values)) for line in shown.splitlines()]
        fits = max(map(len, lines), default=0) <= least  # nothing to fold: rich must not take its room
        out.add_column(plain(heading), justify="right", overflow="fold", min_width=least, no_wrap=fits)
    for row in table.cells:
        out.add_row(*(_coloured(plain(_lines(cell.value)), cell.tone) for cell in row))
    return out


def _without_secrets(table: Table) -> Table:
    """Of its words; `text` looks after the cells."""
    return replace(table, head=[redact(heading) for heading in table.head], title=redact(table.title))


def _lines(value: Value | Share) -> str:
    """A cell as the terminal shows it."""
    return text(value).replace(" [", "\n[")


def _unbroken(value: Value | Share) -> int:
    """Characters of the widest part that stays in one line: a short text, or each figure of an interval."""
    shown = text(value)
    parts = [shown] if isinstance(value, str) and len(shown) <= _SHORT else shown.split()
    return max((len(line) for part in parts for line in part.splitlines()), default=1)


def _coloured(shown: str, tone: Tone) -> str:
    return f"[{TERMINAL[tone]}]{shown}[/]" if tone else shown


def markdown(table: Table) -> str:
    """A table as GitHub reads it."""
    table = _without_secrets(table)
    lines = [table.head, ["---" if at < table.words else "---:" for at in range(len(table.head))]]
    lines += [[text(cell.value) for cell in row] for row in table.cells]
    body = "\n".join("| " + " | ".join(_one_line(cell) for cell in line) + " |" for line in lines)
    return f"**{table.title}**\n\n{body}\n" if table.title else body + "\n"


def _one_line(cell: str) -> str:
    return " ".join(cell.replace("|", "\\|").split())


def save_csv(table: Table, path: Path) -> None:
    """Values as they are, not as they are shown; an interval is three columns."""
    write_csv(path, records(table))


def records(table: Table) -> list[Mapping[str, Any]]:
    """Its rows by their headings, values as they are."""
    return [_record(table.head, row) for row in table.cells]


def _record(head: Sequence[str], row: Sequence[Cell]) -> Mapping[str, Any]:
    record: dict[str, Any] = {}
    for heading, cell in zip(head, row, strict=True):
        name = " ".join(heading.split())
        value = cell.value.value if isinstance(cell.value, Share) else cell.value
        if isinstance(value, Estimate):
            record |= {name: value.value, f"{name} low": value.low, f"{name} high": value.high}
        else:
            record[name] = value
    return record
