"""Markdown tables, cells and pages of benchmark results, and the tables read back."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.raw import RESULTS
from rlab.stats import Estimate


def table(headings: str | Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; the first column is text, the others are figures. Headings: 'attack | queries', or a sequence."""
    headings = headings.split(" | ") if isinstance(headings, str) else headings
    rule = ["---", *("---:" for _ in headings[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rule, *rows))


def interval(e: Estimate, digits: int = 4) -> str:
    """'12.5 [11, 14]', or a dash where there is no figure."""
    shown = [f"{value:.{digits}g}" for value in (e.value, e.low, e.high)]
    return "–" if math.isnan(e.value) else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def share(e: Estimate) -> str:
    return f"{e.value:.1%} [{e.low:.1%}, {e.high:.1%}]"


def section(title: str, *parts: str) -> str:
    return "\n\n".join([f"## {title}", *parts])


def page(title: str, rules: str, origins: str, sections: Iterable[str]) -> str:
    """A page of results: the rules its figures follow, how they were measured, then the tables."""
    return "\n\n".join([f"# {title}", " ".join(rules.split()), origins, *sections]) + "\n"


def replace_section(path: Path, section: str) -> None:
    """Write a section, which starts with its heading, over the section of that heading, or at the end of the page."""
    heading, sections = section.partition("\n")[0], path.read_text(encoding="utf-8").rstrip("\n").split("\n\n## ")
    others = [part for part in sections if f"## {part.partition(chr(10))[0]}" != heading]
    at = next((i for i, part in enumerate(sections) if f"## {part.partition(chr(10))[0]}" == heading), len(others))
    others.insert(at, section.removeprefix("## "))
    path.write_text("\n\n## ".join(others) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Results:
    """A page of benchmarks/results."""

    text: str

    @classmethod
    def read(cls, name: str) -> Results:
        return cls((RESULTS / name).read_text(encoding="utf-8"))

    def rows(self, section: str) -> dict[str, dict[str, str]]:
        """Cells by row and column of a section's tables; the heading of the first column starts a column's name: 'L2 within 5'."""
        found: dict[str, dict[str, str]] = {}
        for heading, rows in tables_in(self._section(section)):
            for cells in rows:
                row = found.setdefault(cells[0], {})
                for column, cell in zip(heading[1:], cells[1:], strict=True):
                    row.setdefault(f"{heading[0]} {column}".strip(), cell)
        return found

    def sections(self) -> list[str]:
        return re.findall(r"^## (.+)$", self.text, re.M)

    def match(self, pattern: str) -> str:
        """The first group of a pattern in the text."""
        found = re.search(pattern, self.text)
        if not found:
            raise ValueError(f"the results do not contain {pattern!r}")
        return found.group(1)

    def _section(self, name: str) -> str:
        _before, heading, after = self.text.partition(f"\n## {name}\n")
        if not heading:
            raise ValueError(f"the results have no section {name!r}")
        return after.partition("\n## ")[0]


def tables_in(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """(heading, rows) of each markdown table."""
    for block in re.findall(r"(?:^\|.*\|\n?)+", text, re.M):
        lines = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in block.strip().split("\n")]
        yield lines[0], lines[2:]
