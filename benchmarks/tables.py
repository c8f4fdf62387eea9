"""Markdown tables, cells and pages of benchmark results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from rlab.stats import Estimate


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; the first column is text, the others are figures."""
    rule = ["---", *("---:" for _ in headings[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rule, *rows))


def interval(e: Estimate, digits: int = 4) -> str:
    """'12.5 [11, 14]', or a dash where there is no figure."""
    shown = [f"{value:.{digits}g}" for value in (e.value, e.low, e.high)]
    return "–" if math.isnan(e.value) else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def share(e: Estimate) -> str:
    return f"{e.value:.1%} [{e.low:.1%}, {e.high:.1%}]"


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
