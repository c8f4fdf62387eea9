"""The curves of a comparison: how many flips so many queries buy, and how far from the original they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from rlab.comparison.figures import Columns, Figures
from rlab.present.plots.style import HUES, INK, STYLE, WIDE, flow, header_height, list_below, new_figure, plain, tidy
from rlab.present.plots.style import write_header as write

if TYPE_CHECKING:
    from rlab.comparison.comparison import Comparison

Look = dict[str, Any]  # colour and line style
_DASHES = ("-", "--", ":", "-.")
_COLOURS = (INK, *HUES[:5])  # yellow lines are too pale on white


def draw_curves(comparison: Comparison) -> Figure:
    """Left: the share of attacked samples flipped within so many queries. Right: the median L2 of those flipped so far."""
    with matplotlib.rc_context(STYLE):
        lines = _title(comparison)
        heights = [header_height(lines), 4.4]
        figure = new_figure(WIDE, sum(heights) + 0.9)
        cells = figure.add_gridspec(2, 1, height_ratios=heights)
        write(figure, cells[0], lines)
        body = cells[1].subgridspec(1, 2, wspace=0.04)
        left, right = (figure.add_subplot(cell) for cell in (body[0], body[1]))
        handles = []
        for number, (name, outcome) in enumerate(comparison.outcomes.items()):
            look: Look = {"color": _COLOURS[number % len(_COLOURS)], "linestyle": _DASHES[number // len(_COLOURS) % 4]}
            columns, figures = Columns.of(outcome), Figures.of(outcome, comparison.seed)
            _climb(left, columns, comparison.budget, look)
            _distance(right, columns, figures, look)
            handles.append(Line2D([], [], linewidth=1.8, label=plain(name, 40), **look))
        _finish(left, right, comparison.budget)
        list_below(figure, handles)
        return figure


def _title(comparison: Comparison) -> list[str]:
    attacked = max(int(outcome.attacked.sum()) for outcome in comparison.outcomes.values())
    facts = [f"{attacked} samples the model had right", f"budget {comparison.budget}", f"seed {comparison.seed}"]
    facts += ["queries are rows that reached the model, search and cleanup", "L2 of values in [0, 1]"]
    return ["attacks compared", *flow(facts, WIDE)]


def _climb(ax: Axes, columns: Columns, budget: int, look: Look) -> None:
    won = np.sort(columns.won[np.isfinite(columns.won)]).clip(min=1)
    x = np.concatenate([[1], won, [budget]])
    y = np.concatenate([[0], np.arange(1, len(won) + 1), [len(won)]]) / max(1, len(columns.charged))
    ax.step(x, y, where="post", linewidth=1.8, **look)


def _distance(ax: Axes, columns: Columns, figures: Figures, look: Look) -> None:
    """The running median L2 in the order of queries, and a cross at both medians with their intervals."""
    done = np.isfinite(columns.won)
    order = columns.won[done].argsort(kind="stable")
    queries, l2 = columns.won[done][order].clip(min=1), columns.l2[done][order]
    if not len(l2):
        return
    running = [float(np.median(l2[: i + 1])) for i in range(len(l2))]
    ax.plot(queries, running, linewidth=1.4, alpha=0.8, **look)
    across, up = figures.queries_won, figures.l2
    reach = [[[max(0.0, e.value - e.low)], [max(0.0, e.high - e.value)]] for e in (across, up)]
    ax.errorbar(across.value, up.value, reach[1], reach[0], "o", color=look["color"], markersize=5, capsize=3)


def _finish(left: Axes, right: Axes, budget: int) -> None:
    for ax in (left, right):
        ax.set(xscale="log", xlim=(1, max(2, budget)), xlabel="queries")
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.grid(axis="both", color="#EEEEEE", linewidth=0.6)
        ax.set_axisbelow(True)
        tidy(ax)
    left.set(ylim=(0, 1.03), title="flipped within so many queries")
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    right.set_ylim(bottom=0)
    right.set_title("median L2 of those flipped so far; dots: medians over all flipped, with 95% intervals")
