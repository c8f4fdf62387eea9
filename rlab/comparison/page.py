"""A comparison as a table, the rules its figures follow, and the page of a stored one."""

from __future__ import annotations

import math
from pathlib import Path

from rlab.comparison.comparison import CURVES, Comparison
from rlab.comparison.figures import query_ratio
from rlab.present.inline import file_address
from rlab.present.page import Block, Gallery, Page, Picture, Section, Text
from rlab.present.table import Share, Table, Value, number

RULES = (
    "Success is over samples the model had right. Queries are search + cleanup; a sample that was not flipped counts as "
    "the whole budget in 'all'. L2 is over flipped samples, values in [0, 1]. Brackets: 95% bootstrap intervals."
)


def comparison_table(comparison: Comparison) -> Table:
    """One row an attack; ratios are of median queries (all) over the first attack's, by the same draws of samples."""
    first = next(iter(comparison.outcomes))
    head = ["attack", "success", "queries,\nall", "queries,\nflipped", "L2", f"queries ÷\n{first}", "rows\nin all"]
    rows: list[list[Value | Share]] = []
    for name, f in comparison.figures().items():
        times = query_ratio(comparison.outcomes[first], comparison.outcomes[name], comparison.seed)
        times_first = 1 if name == first else times
        rows.append([name, Share(f.success), f.queries, f.queries_won, f.l2, times_first, f.rows or None])
    return Table(head, rows)


def equal_lines(comparison: Comparison) -> list[str]:
    """One sentence for each attack that was run at several strengths: its queries at the first attack's median L2."""
    first, lines = next(iter(comparison.outcomes)), []
    for base in comparison.settings():
        at = comparison.at_equal_l2(first, base)
        if math.isnan(at["queries"]):
            lines.append(
                f"{base}: its settings do not enclose the median L2 {number(at['l2'])} of {first}; add strengths"
            )
        else:
            lines.append(
                f"{base} at the median L2 {number(at['l2'])} of {first}: {number(at['queries'])} queries, "
                f"{number(at['ratio'])} times as many [{number(at['low'])}, {number(at['high'])}]"
            )
    return lines


def comparison_page(folder: Path) -> Page:
    """The page of a folder that `rlab compare` wrote."""
    comparison = Comparison.load(folder)
    curves = Picture(file_address(folder / CURVES), "Success and distortion against queries")
    lines = [Text(f"{line}.") for line in equal_lines(comparison)]
    blocks: list[Block] = [comparison_table(comparison), *lines, Text(RULES, quiet=True), Gallery([curves])]
    return Page(f"Comparison {folder.name}", [Section("Attacks", blocks)])
