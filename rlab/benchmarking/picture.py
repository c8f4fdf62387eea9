"""The picture of a report: accuracy against distance for every set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from rlab.present.style import HUES, INK, STYLE, WIDE, flow, headed_figure, list_below, plain, tidy

if TYPE_CHECKING:
    from rlab.benchmarking.report import BenchmarkReport, GradedSet

_COLOURS = (INK, *HUES[:5])  # yellow lines are too pale on white
_DASHES = ("-", "--", ":", "-.")
_ACROSS = 3  # panels per row


def draw_report(report: BenchmarkReport) -> Figure:
    """One panel per set, with a curve per model."""
    facts = [f"models: {len(report.models)}", f"sets: {len(report.sets)}"]
    facts += ["a sample counts as lost from the smallest L2 that fools the model"]
    facts += ["ticks at the top: mean L2 of a level", "bands: 95% intervals"]
    across = min(_ACROSS, len(report.sets))
    with matplotlib.rc_context(STYLE):
        rows = [3.6] * -(-len(report.sets) // across)
        figure, cells = headed_figure(WIDE, ["accuracy against distance", *flow(facts, WIDE)], rows, 0.7)
        grids = [cell.subgridspec(1, across, wspace=0.05) for cell in cells]
        spots = [grid[0, column] for grid in grids for column in range(across)]
        for graded, spot in zip(report.sets, spots, strict=False):
            _curves(figure.add_subplot(spot), report, graded)
        list_below(figure, [Line2D([], [], label=plain(name, 40), **_look(i)) for i, name in enumerate(report.models)])
        return figure


def _look(number: int) -> dict[str, Any]:
    dashes = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": dashes, "linewidth": 1.8}


def _curves(ax: Axes, report: BenchmarkReport, graded: GradedSet) -> None:
    for number, model in enumerate(report.models):
        rows = [row for row in report.curves if row["set"] == graded.name and row["model"] == model]
        look, l2 = _look(number), [row["l2"] for row in rows]
        ax.plot(l2, [row["accuracy"] for row in rows], **look)
        low, high = ([row[end] for row in rows] for end in ("low", "high"))
        ax.fill_between(l2, low, high, color=look["color"], alpha=0.1, linewidth=0)
    top = ax.secondary_xaxis("top")
    points = [plain(point, 12) for point in graded.points]
    top.set_xticks(list(graded.severity), points, rotation=35, ha="left", fontsize=7.5)
    top.tick_params(length=2, width=0.6, color="#777777")
    top.spines["top"].set_visible(False)
    ax.set(ylim=(-0.02, 1.03), xlabel="L2", ylabel="accuracy")
    ax.set_title(f"made against {plain(graded.name, 34)}", pad=12)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.grid(color="#EEEEEE", linewidth=0.6)
    ax.set_axisbelow(True)
    tidy(ax)
