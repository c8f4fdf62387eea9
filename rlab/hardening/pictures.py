"""Before and after in pictures: accuracy as things get worse, and how far a sample had to be pushed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from rlab.hardening.evaluation import RobustnessMeasurement
from rlab.present.plots.style import AFTER, BEFORE, HUES, INK, STYLE, WIDE, list_below, new_figure, say, tidy
from rlab.stats import Floats

GROUPS = {"corruptions": "filters of the palette", "held_out": "filters outside the palette"}
_LOOKS: tuple[tuple[str, Literal["-", "--"]], ...] = ((BEFORE, "-"), (AFTER, "-"), *((hue, "--") for hue in HUES[:5]))


def draw_robustness(measured: Mapping[str, RobustnessMeasurement]) -> Figure:
    """Accuracy against severity, within and outside the palette, and the share of samples that hold within a distance."""
    with matplotlib.rc_context(STYLE):
        figure = new_figure(WIDE, 4.6)
        axes = [figure.add_subplot(1, 3, at + 1) for at in range(3)]
        handles = []
        for (name, measurement), (colour, line) in zip(measured.items(), _LOOKS * 3, strict=False):
            for ax, group in zip(axes, GROUPS, strict=False):
                _severity(ax, measurement.curves.get(group), colour, line)
            _distance(axes[2], measurement.figures["agent_l2"], colour, line)
            handles.append(Line2D([], [], color=colour, linestyle=line, linewidth=1.8, label=name))
        _finish(axes)
        list_below(figure, handles)
        return figure


def _severity(ax: Axes, curve: Floats | None, colour: str, line: Literal["-", "--"]) -> None:
    if curve is None:
        return say(ax, "no filters in this group")
    accuracy = curve.mean(1)
    ax.plot(np.arange(1, len(accuracy) + 1), accuracy, color=colour, linestyle=line, marker="o", markersize=4)


def _distance(ax: Axes, l2: Floats, colour: str, line: Literal["-", "--"]) -> None:
    """The share of samples not flipped within a distance; those beyond the budget never fall."""
    attacked = l2[~np.isnan(l2)]
    reached = np.sort(attacked[np.isfinite(attacked)])
    if not len(attacked):
        return
    x = np.concatenate([[0.0], reached])
    y = 1 - np.arange(len(reached) + 1) / len(attacked)
    ax.step(x, y, where="post", color=colour, linestyle=line, linewidth=1.8)


def _finish(axes: list[Axes]) -> None:
    titles = [f"right under {text}" for text in GROUPS.values()]
    for ax, title in zip(axes, [*titles, "not flipped by the policy within this L2"], strict=True):
        ax.set(ylim=(0, 1.03), title=title)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.grid(axis="both", color="#EEEEEE", linewidth=0.6)
        ax.set_axisbelow(True)
        tidy(ax)
    for ax in axes[:2]:
        ax.set(xlabel="severity", xticks=range(1, 6))
    axes[2].set_xlabel("L2")
    axes[2].axhline(0.5, color=INK, linewidth=0.6, alpha=0.4)
