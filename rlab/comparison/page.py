"""The page of a stored comparison."""

from __future__ import annotations

from pathlib import Path

from rlab.comparison.comparison import Comparison
from rlab.core.trace import DISTANCE_NAMES
from rlab.present.page import Number, Page, Section
from rlab.present.table import Share


def comparison_page(folder: Path) -> Page:
    """The page of a folder that `rlab compare` wrote."""
    comparison = Comparison.load(folder)
    return Page(f"Comparison {folder.name}", [Section("Attacks", comparison.blocks())], numbers=_numbers(comparison))


def _numbers(comparison: Comparison) -> list[Number]:
    """The first attack's success, and which attack has the nearest flips within each number of queries."""
    figures, distance = comparison.figures, DISTANCE_NAMES[comparison.distance]
    first = next(iter(figures))
    numbers = [Number(f"success of {first}", Share(figures[first].success))]
    for q in comparison.within:
        best = min(figures, key=lambda attack: figures[attack].within[q].value)
        numbers.append(Number(f"nearest {distance} within {q}: {best}", figures[best].within[q]))
    return numbers
