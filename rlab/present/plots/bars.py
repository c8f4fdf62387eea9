"""What the model said before and after: a pair of bars for each of the classes that matter."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from rlab.present.plots.facts import Sample, class_name
from rlab.present.plots.style import AFTER, BEFORE, tidy

TOP = 5


def draw_bars(ax: Axes, sample: Sample) -> None:
    """The classes with the highest probabilities, before or after; true ones are marked."""
    before, after = np.nan_to_num(sample.before), np.nan_to_num(sample.after)
    shown = np.argsort(-np.maximum(before, after), kind="stable")[:TOP]
    at = np.arange(len(shown))
    for offset, values, colour, name in ((-0.2, before, BEFORE, "before"), (0.2, after, AFTER, "after")):
        bars = ax.barh(at + offset, values[shown], 0.36, color=colour, label=name)
        ax.bar_label(bars, [f"{value:.2f}" for value in values[shown]], padding=3, fontsize=8)
    names = [class_name(sample.setting, int(k)) + (" ✓" if k in sample.true else "") for k in shown]
    ax.set_yticks(at, [_broken(name) for name in names])
    for label, k in zip(ax.get_yticklabels(), shown, strict=True):
        label.set_fontweight("bold" if k in sample.true else "normal")
    ax.set(xlim=(0, 1.16), xticks=[0, 0.5, 1], ylim=(max(len(shown), 3) - 0.4, -0.6))
    ax.set_xlabel("probability")
    above: dict[str, Any] = {
        "loc": "lower right",
        "bbox_to_anchor": (1.0, 0.985),
        "ncols": 2,
        "borderaxespad": 0.0,
        "borderpad": 0.2,
    }
    ax.legend(fontsize=8.5, handlelength=0.9, columnspacing=1.0, handletextpad=0.4, **above)
    tidy(ax)
    ax.tick_params(axis="y", length=0)


def _broken(name: str, width: int = 16) -> str:
    """Long names take two lines, so that the bars keep their room."""
    cut = name.rfind(" ", 0, width + 1)
    return name if len(name) <= width or cut <= 0 else f"{name[:cut]}\n{name[cut + 1 :]}"
