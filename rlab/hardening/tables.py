"""The figures of hardened models as tables, as a page and as a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rlab.present.page import Page, Section, Text
from rlab.present.style import HUES, INK, STYLE, WIDE, headed_figure, plain, tidy
from rlab.present.table import Share, Table
from rlab.stats import NOTHING, Estimate

COLUMNS = {
    "clean": "clean",
    "agent_l2": "L2 to flip",
    "l2_ratio": "times unchanged",
    "agent": "agent",
    "transfer": "agent, transferred",
    "square": "Square",
    "pgd": "PGD",
    "corruptions": "corruptions",
    "held_out": "held-out",
}
RULES = (
    "Shares of samples on which the model stays right. L2 to flip is the median distance that the policy needs on this model, "
    "∞ if its budget was too small for half of the samples. Brackets are 95% bootstrap intervals over seeds and samples."
)
_PLAIN = ("agent_l2", "l2_ratio")  # the other figures are shares


def methods_table(estimates: Mapping[str, Mapping[str, Estimate]]) -> Table:
    """One row per method, one column per figure that any method has."""
    names = [name for name in COLUMNS if any(name in each for each in estimates.values())]
    rows = [[method, *_cells(each, names)] for method, each in estimates.items()]
    return Table(["method", *(COLUMNS[name] for name in names)], rows)


def before_after_table(estimates: Mapping[str, Mapping[str, Estimate]]) -> Table:
    """One row per figure, with 'before' and 'after' side by side."""
    names = [name for name in COLUMNS if name in estimates["before"]]
    columns = [_cells(estimates[when], names) for when in ("before", "after")]
    rows = [[COLUMNS[name], *cells] for name, *cells in zip(names, *columns, strict=True)]
    return Table(["", "before", "after"], rows, "Before and after")


def _cells(estimates: Mapping[str, Estimate], names: Sequence[str]) -> list[Estimate | Share]:
    each = [(name, estimates.get(name, NOTHING)) for name in names]
    return [estimate if name in _PLAIN else Share(estimate) for name, estimate in each]


def stored_estimate(stored: Mapping[str, Any]) -> Estimate:
    return Estimate(*(math.nan if stored[key] is None else float(stored[key]) for key in ("value", "low", "high")))


def methods_page(title: str, records: Sequence[Mapping[str, Any]]) -> Page:
    """The page of a comparison, from the records of `HardeningComparison`, perhaps read from JSON."""
    return Page(title, [Section("Methods", [methods_table(_by_method(records)), Text(RULES, quiet=True)])])


def _by_method(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Estimate]]:
    estimates: dict[str, dict[str, Estimate]] = {}
    for row in records:
        estimates.setdefault(row["method"], {})[row["figure"]] = stored_estimate(row)
    return estimates


def draw_methods(estimates: Mapping[str, Mapping[str, Estimate]]) -> Figure:
    """Every share of every method with its interval, one group of points per figure."""
    names = [name for name in COLUMNS if name not in _PLAIN and any(name in each for each in estimates.values())]
    with matplotlib.rc_context(STYLE):
        figure, (body,) = headed_figure(WIDE, ["hardening methods compared"], [3.6], 0.7)
        ax = figure.add_subplot(body)
        colours, places = (INK, *HUES), np.arange(len(names))
        for number, (method, own) in enumerate(estimates.items()):
            each = [own.get(name, NOTHING) for name in names]
            values, low, high = (np.array([getattr(e, end) for e in each]) for end in ("value", "low", "high"))
            at = places + 0.7 * ((number + 0.5) / len(estimates) - 0.5)
            spread = np.stack([values - low, high - values]).clip(min=0)
            ax.errorbar(
                at, values, spread, fmt="o", markersize=4, color=colours[number % len(colours)], label=plain(method, 30)
            )
        ax.set(xticks=places, ylim=(-0.02, 1.03), ylabel="share of samples that stay right")
        ax.set_xticklabels([COLUMNS[name] for name in names])
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        figure.legend(loc="outside lower left", ncols=len(estimates))
        tidy(ax)
        return figure
