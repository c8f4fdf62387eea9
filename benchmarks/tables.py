"""Markdown tables, cells and pages of benchmark results, and the tables read back."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.raw import RESULTS, Store
from rlab.stats import Estimate

SOURCES = re.compile(r"<!-- raw files (\w+): (.*) -->")  # below each section of a page


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


def sourced(text: str, digest: str, files: Sequence[str]) -> str:
    """A section with the raw files that it comes from."""
    return f"{text}\n\n<!-- raw files {digest}: {', '.join(files)} -->"


def page(title: str, rules: str, origins: str, sections: Iterable[str]) -> str:
    """A page of results: the rules its figures follow, how they were measured, then the tables."""
    return "\n\n".join([f"# {title}", " ".join(rules.split()), origins, *sections]) + "\n"


@dataclass(frozen=True)
class Section:
    """A part of a results page with its tables, and the raw files that they come from."""

    page: str
    title: str
    text: str
    store: Store

    @property
    def digest(self) -> str:
        """The digest of the raw files when the section was written; see `Store.digest`."""
        found = SOURCES.search(self.text)
        return found[1] if found else ""

    @property
    def files(self) -> list[str]:
        found = SOURCES.search(self.text)
        return found[2].split(", ") if found else []

    @property
    def current(self) -> bool:
        """Whether this version of rlab made all of its raw files, and they still exist."""
        return all(name in self.store and self.store.origin(name).current for name in self.files)

    @property
    def versions(self) -> list[str]:
        return sorted({self.store.origin(name).version for name in self.files if name in self.store})

    def rows(self) -> dict[str, dict[str, str]]:
        """Cells by row and column; the heading of the first column starts a column's name: 'L2 within 5'."""
        found: dict[str, dict[str, str]] = {}
        for heading, rows in tables_in(self.text):
            for cells in rows:
                row = found.setdefault(cells[0], {})
                for column, cell in zip(heading[1:], cells[1:], strict=True):
                    row.setdefault(f"{heading[0]} {column}".strip(), cell)
        return found


@dataclass(frozen=True)
class Results:
    """A page of benchmarks/results."""

    sections: tuple[Section, ...]

    @classmethod
    def read(cls, name: str, folder: Path = RESULTS) -> Results:
        text, store = (folder / f"{name}.md").read_text(encoding="utf-8"), Store(folder / "raw" / name)
        parts = text.split("\n\n## ")[1:]
        return cls(tuple(Section(name, part.partition("\n")[0], part, store) for part in parts))

    def rows(self, title: str) -> dict[str, dict[str, str]]:
        return next(section for section in self.sections if section.title == title).rows()


def tables_in(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """(heading, rows) of each markdown table."""
    for block in re.findall(r"(?:^\|.*\|\n?)+", text, re.M):
        lines = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in block.strip().split("\n")]
        yield lines[0], lines[2:]
