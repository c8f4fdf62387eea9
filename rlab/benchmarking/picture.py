"""The picture of a report: accuracy against distance for every set, and the transfer matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from rlab.present.style import HUES, INK, STYLE, WIDE, flow, header_height, list_below, new_figure, plain, tidy
from rlab.present.style import write_header as write

if TYPE_CHECKING:
    from rlab.benchmarking.report import BenchmarkReport, GradedSet

_COLOURS = (INK, *HUES[:5])  # yellow lines are too pale on white
_DASHES = ("-", "--", ":", "-.")
_ACROSS = 3  # panels per row


def draw_report(report: BenchmarkReport) -> Figure:
    """One panel per set, then the transfer matrix; a dot in the matrix marks a model's own set."""
    with matplotlib.rc_context(STYLE):
        panels = len(report.sets) + 1
        across = min(_ACROSS, panels)
        lines, down = _title(report), -(-panels // across)
        heights = [header_height(lines), *(3.6,) * down]
        figure = new_figure(WIDE, sum(heights) + 0.7)
        cells = figure.add_gridspec(1 + down, 1, height_ratios=heights)
        write(figure, cells[0], lines)
        grids = [cells[1 + line].subgridspec(1, across, wspace=0.05) for line in range(down)]
        spots = [grid[0, column] for grid in grids for column in range(across)]
        for graded, spot in zip(report.sets, spots, strict=False):
            _curves(figure.add_subplot(spot), report, graded)
        _matrix(figure.add_subplot(spots[panels - 1]), report)
        list_below(figure, [Line2D([], [], label=plain(name, 40), **_look(i)) for i, name in enumerate(report.models)])
        return figure


def _look(number: int) -> dict[str, Any]:
    dashes = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": dashes, "linewidth": 1.8}


def _title(report: BenchmarkReport) -> list[str]:
    facts = [f"models: {len(report.models)}", f"sets: {len(report.sets)}"]
    axis = "a sample counts as lost from the smallest L2 that fools the model" if report.curves else "mean L2 of levels"
    facts += [axis, "ticks at the top: mean L2 of a level", "bands: 95% intervals"]
    return ["accuracy against distance, and transfer", *flow(facts, WIDE)]


def _curves(ax: Axes, report: BenchmarkReport, graded: GradedSet) -> None:
    for number, model in enumerate(report.models):
        rows = [row for row in report.curves or report.levels if row["set"] == graded.name and row["model"] == model]
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


def _matrix(ax: Axes, report: BenchmarkReport) -> None:
    sets, models, values = report.matrix()
    own = {(row["set"], row["model"]) for row in report.transfer if row["own"]}
    ax.imshow(np.ma.masked_invalid(values), cmap="viridis", vmin=0, vmax=1, aspect="auto")
    for i, name in enumerate(sets):
        for j, model in enumerate(models):
            value = values[i, j]
            text = "–" if np.isnan(value) else f"{value:.0%}{' •' if (name, model) in own else ''}"
            ax.text(j, i, text, ha="center", va="center", fontsize=9, color="white" if value < 0.6 else INK)
    ax.set_xticks(range(len(models)), [plain(model, 16) for model in models], rotation=25, ha="right", fontsize=8)
    several = len({name.split("/")[0] for name in sets}) > 1
    ax.set_yticks(range(len(sets)), [plain(name if several else name.split("/")[1], 20) for name in sets], fontsize=8)
    title = f"accuracy on files at {plain(report.shared_level, 12)} (• own set)"
    ax.set(title=title, xlabel="tested on", ylabel="made against")
    tidy(ax, keep=())
