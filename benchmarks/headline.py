"""The tables of results in README.md and docs/results.md: our row of a page beside the best of its baselines.

python -m benchmarks --page        # writes them, and every page, from the raw files

README shows the first six rows that this version of rlab measured; docs/results.md shows all of them with their versions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.raw import HERE
from benchmarks.tables import Results, Section
from benchmarks.tables import table as markdown

README, RESULTS_PAGE = HERE.parent / "README.md", HERE.parent / "docs" / "results.md"
BEGIN, END, INFINITE = "<!-- python -m benchmarks --page: begin -->\n", "<!-- end -->\n", "∞"
GENERATED = r"<!-- python -m benchmarks[^>]*: begin -->.*?<!-- end -->"
QUERIES, SHOWN = ("20", "100"), 6


@dataclass(frozen=True)
class Headline:
    """Our row of a section beside the best of other rows (default: all that are not ours)."""

    case: str
    page: str
    section: str
    ours: str
    others: Sequence[str] = ()
    only: str = ""

    @property
    def found(self) -> Section | None:
        """The section, if it has our row and one to compare it with."""
        named = [each for each in Results.read(self.page).sections if each.title == self.section]
        return next((each for each in named if {self.ours, *self.others} <= each.rows().keys()), None)

    @property
    def command(self) -> str:
        return f"`python -m benchmarks.{self.page}{f' --only {self.only}' if self.only else ''}`"

    def cells(self, found: Section) -> list[str]:
        rows = {name: cells for name, cells in found.rows().items() if "÷" not in name}
        others = self.others or [name for name in rows if not name.startswith(OURS)]
        pairs = [(queries, names) for queries in QUERIES for names in ([self.ours], others)]
        figures = [_shown(min(_at(rows[name], queries) for name in names)) for queries, names in pairs]
        return [self.case, *figures]


OTHERS = ("square", "random")
OURS = ("pixels", "palette", "auto", "belief")  # how our rows beside peers begin
LEADS, OTHER_LEADS = (tuple(f"{net}, clinical, {policy}" for policy in OTHERS) for net in ("cnn3", "cnn7"))
HEADLINES = (  # in the order in which README prefers them
    Headline("CIFAR-10, VGG", "anytime", "vgg natural", "auto", OTHERS, "images"),
    Headline("Photos, EfficientNet-Lite1", "anytime", "lite1 natural", "belief", OTHERS, "photos"),
    Headline("ECG beats, CNN", "anytime", "beats cnn", "auto", OTHERS, "ecg"),
    Headline("Twelve-lead ECG, CNN", "ecg", "Twelve leads", "cnn3, clinical, auto", LEADS, "twelve"),
    Headline("UCF-101 clips, SlowFast", "video", "SLOWFAST", "auto", (*OTHERS, "two_agents"), "curves"),
    Headline(
        "CIFAR-10, VGG, free pixels, strongest peer", "peers", "VGG, free pixels", "pixels + surrogates", only="vgg"
    ),
    Headline(
        "Pets, YOLOX-nano detector", "beyond", "A pet vanishes from YOLOX-nano (416 pixels, patches of 32)", "auto",
        OTHERS, "detector",
    ),
    Headline(
        "Pets, U-Net segmenter", "beyond", "Half of a pet is lost, a U-Net of 64 pixels trained here (patches of 8)",
        "auto", OTHERS, "segmenter",
    ),
    Headline("CIFAR-10, vision transformer", "anytime", "vit natural", "auto", OTHERS, "transformer"),
    Headline("CIFAR-10, certified CNN", "anytime", "robust natural", "auto", OTHERS, "robust"),
    Headline("Twelve-lead ECG, deeper CNN", "ecg", "Twelve leads", "cnn7, clinical, auto", OTHER_LEADS, "twelve"),
    Headline("ECG beats, transformer", "anytime", "beats transformer", "auto", OTHERS, "ecg"),
)  # fmt: skip


def value_of(cell: str) -> float:
    """The figure of a table's cell, without its interval."""
    return math.inf if cell == "no flip" else float(cell.partition(" ")[0])


def _at(cells: dict[str, str], queries: str) -> float:
    """The distance within this number of queries."""
    return next(value_of(cells[name]) for name in cells if name.endswith(f" {queries}") and "flipped" not in name)


def _shown(value: float) -> str:
    return INFINITE if math.isinf(value) else f"{value:.3g}"


def head() -> list[str]:
    return ["model", *(f"{who}, {q}" for q in QUERIES for who in ("rlab", "baseline"))]


def readme_table() -> str:
    measured = [(each, found) for each in HEADLINES if (found := each.found) and found.current]
    return markdown([*head(), "command"], [[*each.cells(found), each.command] for each, found in measured[:SHOWN]])


def results_table() -> str:
    measured = [(each, found) for each in HEADLINES if (found := each.found)]
    rows = [[*each.cells(found), " and ".join(found.versions)] for each, found in measured]
    return markdown([*head(), "version"], rows)


TABLES = {README: readme_table, RESULTS_PAGE: results_table}


def written(path: Path, text: str) -> str:
    """The document's text with its table written again."""
    marks = f"{re.escape(BEGIN)}.*?{re.escape(END)}"
    if not re.search(marks, text, re.S):
        raise SystemExit(f"{path.name} needs the lines {BEGIN.strip()} and {END.strip()}")
    return re.sub(marks, lambda _: f"{BEGIN}{TABLES[path]()}\n{END}", text, count=1, flags=re.S)


def write_tables() -> None:
    for path in TABLES:
        path.write_text(written(path, path.read_text(encoding="utf-8")), encoding="utf-8")
