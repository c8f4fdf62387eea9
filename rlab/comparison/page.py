"""A comparison as tables, curves, the rules its figures follow, and the page of a stored one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlab.comparison.comparison import Comparison
from rlab.comparison.outcome import Figures, query_ratio
from rlab.core.trace import DISTANCE_NAMES
from rlab.present.page import Block, Charts, Number, Page, Section, Text
from rlab.present.style import HUES, INK, STYLE, WIDE, flow, headed_figure, list_below, plain
from rlab.present.table import Share, Table, Value, number
from rlab.results.charts import anytime_charts
from rlab.results.plots.anytime import AnytimeCurve, draw_anytime
from rlab.results.result import WITHIN
from rlab.results.tables import QUERIES

RULES = (
    "Success is over samples the model had right. Within so many queries: the median distance of the best flip by then "
    "over all of them, ∞ where more than half have none. In 'all', a sample that was not flipped counts as the whole "
    f"budget. {QUERIES} For attacks of papers and libraries the clean prediction is not counted. L2 is over flipped samples, "
    "values in [0, 1] where they have bounds. Brackets: 95% bootstrap intervals."
)
_DASHES = ("-", "--", ":", "-.")
_COLOURS = (INK, *HUES[:5])  # yellow lines are too pale on white


def comparison_tables(comparison: Comparison) -> list[Table]:
    """One row an attack: the anytime curve in figures; success and cost, whose ratios are of median queries (all) over the
    first attack's, by the same draws of samples."""
    first, name = next(iter(comparison.outcomes)), DISTANCE_NAMES[comparison.distance]
    shown = [q for q in WITHIN if q < comparison.budget]
    anytime, cost, needs = (list[list[Value | Share]]() for _ in range(3))
    for attack, outcome in comparison.outcomes.items():
        f = Figures.of(outcome, comparison.seed)
        times = query_ratio(comparison.outcomes[first], outcome, comparison.seed)
        anytime.append([attack, *(f.within[q] for q in shown)])
        ratio = 1 if attack == first else times
        cost.append([attack, Share(f.success), f.queries, f.queries_won, f.l2, ratio, f.rows or None])
        needs.append([attack, ", ".join(comparison.needs.get(attack, ()))])
    heads = ["success", "queries,\nall", "queries,\nflipped", "L2", f"queries ÷\n{first}", "rows\nin all"]
    tables = [Table(["attack", *(f"{name} within\n{q} queries" for q in shown)], anytime)] if shown else []
    told = [Table(["attack", "needs"], needs, words=2)] if any(comparison.needs.values()) else []
    return [*tables, Table(["attack", *heads], cost), *told]


def equal_lines(comparison: Comparison) -> list[str]:
    """One sentence for each attack that was run at several strengths: its queries at the first attack's median L2."""
    first, lines = next(iter(comparison.outcomes)), []
    for base in comparison.settings():
        at = {key: number(value) for key, value in comparison.at_equal_l2(first, base).items()}
        if at["queries"] == number(math.nan):
            lines.append(f"{base}: its settings do not enclose the median L2 {at['l2']} of {first}; add strengths")
        else:
            times = f"{at['ratio']} times as many [{at['low']}, {at['high']}]"
            lines.append(f"{base} at the median L2 {at['l2']} of {first}: {at['queries']} queries, {times}")
    return lines


def draw_curves(comparison: Comparison) -> Figure:
    """The anytime curves of all attacks: shares flipped on the left, median distances of all attacked samples on the right."""
    with matplotlib.rc_context(STYLE):
        attacked = max(int(outcome.attacked.sum()) for outcome in comparison.outcomes.values())
        facts = [f"{attacked} samples the model had right", f"budget {comparison.budget}", f"seed {comparison.seed}"]
        facts += ["queries are rows that reached the model", "a median is infinite while fewer than half are flipped"]
        figure, (body,) = headed_figure(WIDE, ["attacks compared", *flow(facts, WIDE - 0.25)], [4.4], 0.9)
        panels = body.subgridspec(1, 2, wspace=0.04)
        curves, handles = [], []
        for i, (name, curve) in enumerate(_curves(comparison).items()):
            dash = _DASHES[i // len(_COLOURS) % len(_DASHES)]
            look: dict[str, Any] = {"color": _COLOURS[i % len(_COLOURS)], "linestyle": dash}
            curves.append((curve, look))
            handles.append(Line2D([], [], linewidth=1.8, label=plain(name, 40), **look))
        name = f"median {DISTANCE_NAMES[comparison.distance]} of all attacked samples"
        draw_anytime(figure.add_subplot(panels[0]), figure.add_subplot(panels[1]), curves, name)
        list_below(figure, handles)
        return figure


def comparison_page(folder: Path) -> Page:
    """The page of a folder that `rlab compare` wrote."""
    comparison = Comparison.load(folder)
    sections = [Section("Attacks", comparison_blocks(comparison))]
    return Page(f"Comparison {folder.name}", sections, numbers=_numbers(comparison))


def comparison_blocks(comparison: Comparison) -> list[Block]:
    """The anytime curves, the tables, and the rules their figures follow."""
    lines = [Text(f"{line}.") for line in equal_lines(comparison)]
    charts = anytime_charts(_curves(comparison), DISTANCE_NAMES[comparison.distance])
    return [Charts(charts), *comparison_tables(comparison), *lines, Text(RULES, quiet=True)]


def _curves(comparison: Comparison) -> dict[str, AnytimeCurve]:
    return {
        name: AnytimeCurve.of(o.improvements, o.attacked, o.succeeded, comparison.budget)
        for name, o in comparison.outcomes.items()
    }


def _numbers(comparison: Comparison) -> list[Number]:
    """Whose flips are nearest within the queries that are told, and the first attack's success."""
    shown = [q for q in WITHIN if q < comparison.budget]
    figures = {name: Figures.of(outcome, comparison.seed) for name, outcome in comparison.outcomes.items()}
    first, name = next(iter(figures)), DISTANCE_NAMES[comparison.distance]
    numbers = [Number(f"success of {first}", Share(figures[first].success))]
    for q in shown:
        best = min(figures, key=lambda attack: figures[attack].within[q].value)
        numbers.append(Number(f"nearest {name} within {q}: {best}", figures[best].within[q]))
    return numbers
