"""Read back the tables of a page of results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.raw import RESULTS


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
