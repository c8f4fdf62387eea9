"""ECG paper at 25 mm/s and 10 mm/mV: the grid, where the R peaks are, and what a lead is called."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rlab.present.plots.facts import Sample
from rlab.present.plots.style import plain

BOX = (0.2, 0.5)  # seconds and millivolts of a large box, 5 mm each way; a fifth of it is a small one
SHAPE = 10 / 25  # millimetres of a millivolt over those of a second
LARGE, SMALL = "#EFC4BD", "#F8E6E3"
PEAK = "#8B1A1A"


def draw_paper(ax: Axes, duration: float, height: float, fine: bool) -> None:
    """Large boxes, and small ones where they can be told apart; `height` in inches decides how many are numbered."""
    low, high = ax.get_ylim()
    ax.set_aspect(SHAPE, anchor="NW")
    step = BOX[1] if height * BOX[1] / (high - low) > 0.3 else 2 * BOX[1]
    ax.set_yticks(np.arange(math.floor(low / step) + 1, math.ceil(high / step)) * step)  # none at the very ends
    for parts, colour, width in ((5, SMALL, 0.4), (1, LARGE, 0.6)):
        if parts == 1 or fine:
            across, along = BOX[0] / parts, BOX[1] / parts
            look: dict[str, Any] = {"colors": colour, "linewidth": width, "zorder": 1}
            ax.vlines(np.arange(0, duration + 1e-9, across), low, high, **look)
            ax.hlines(np.arange(math.ceil(low / along - 1e-6), high / along + 1e-6) * along, 0, duration, **look)


def draw_peaks(ax: Axes, sample: Sample) -> None:
    """A small triangle on the upper edge above each annotated R peak."""
    rate = sample.setting.rate or 1.0
    places = [at / rate for at in inside(sample)]
    if places:
        ax.plot(
            places, [1.0] * len(places), linestyle="", marker="v", markersize=5, color=PEAK, gid="r-peaks",
            transform=ax.get_xaxis_transform(), clip_on=False, zorder=5,
        )  # fmt: skip


def inside(sample: Sample) -> list[int]:
    """The r_peaks that lie in the window; those just outside are kept for masks."""
    return [at for at in sample.r_peaks if 0 <= at < sample.x0.shape[-1]]


def lead_name(sample: Sample, lead: int, ecg: bool) -> str:
    names = sample.setting.leads
    return plain(names[lead], 12) if lead < len(names) else f"{'lead' if ecg else 'channel'} {lead + 1}"


def paper_handles(sample: Sample, paper: bool) -> list[Line2D | Patch]:
    """What the legend says of peaks and paper."""
    peak = Line2D([], [], linestyle="", marker="v", markersize=5, color=PEAK, label="annotated R peak")
    text = f"large box {BOX[0]} s × {BOX[1]} mV (paper of 25 mm/s, 10 mm/mV)"
    box = Patch(facecolor="none", edgecolor="#E0938A", linewidth=0.9, label=text)
    return [*([peak] if inside(sample) else []), *([box] if paper else [])]
