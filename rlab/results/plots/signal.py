"""The leads of a signal before and after, on ECG paper (25 mm/s, 10 mm/mV) if unit and rate allow it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rlab.present.style import BEFORE, DPI, INK, WIDE, headed_figure, list_below, plain, tidy
from rlab.results.plots.sample import Sample, draw_bars

BARS = 2.9  # inches, like the next lines
TRACES = WIDE - BARS - 0.4
LOWEST, NARROWEST, HIGHEST, PAGE = 0.6, 1.6, 3.4, 8.6
MOST_LEADS = 16
BOX = (0.2, 0.5)  # seconds and millivolts of a large box (5 mm); small boxes are a fifth
SHAPE = 10 / 25  # mm per mV over mm per second
LARGE, SMALL = "#EFC4BD", "#F8E6E3"
PEAK = "#8B1A1A"


def lay_out(
    leads: int, duration: float, span: float, room: tuple[float, float], gap: float, tallest: float
) -> tuple[int, float]:
    """Columns, and the width of a second, that make leads on ECG paper largest while boxes stay square."""
    choices = []
    for columns in range(1, leads + 1):
        height = min(room[1] / -(-leads // columns), tallest)
        second = min((room[0] - gap * (columns - 1)) / columns / duration, height / (SHAPE * span))
        choices.append((second, columns))
    second, columns = max(choices)
    return columns, second


def draw_signal(sample: Sample) -> Figure:
    """x: (c, time)."""
    leads = _leads(sample)
    duration, span = sample.x0.shape[1] / (sample.setting.rate or 1.0), _span(sample, leads)
    columns, second = lay_out(len(leads), duration, span, (TRACES, PAGE), 0.95, HIGHEST)
    lead = (second * duration, SHAPE * second * span)  # inches
    paper = _is_ecg(sample) and lead[0] >= NARROWEST and lead[1] >= LOWEST
    if not paper:
        columns, lead = 1, (TRACES - 0.85, max(LOWEST, min(2.6, 7.5 / len(leads))))
    rows = -(-len(leads) // columns)
    width = max(columns * (lead[0] + 0.95) + BARS + 0.3, 8.6)
    lines = sample.title(width - 0.25)  # drawn text is slightly wider than measured
    if len(leads) < len(sample.x0):
        lines.append(f"the {len(leads)} of {len(sample.x0)} channels that changed most")
    body = max(rows * (lead[1] + 0.12) + 0.4, 2.5)
    figure, (cell,) = headed_figure(width, lines, [body], 0.45)
    left, right = cell.subgridspec(1, 2, width_ratios=[width - BARS, BARS], wspace=0.04)
    traces = left.subgridspec(rows, columns, hspace=0.02, wspace=0.02)
    for i, number in enumerate(leads):
        ax = figure.add_subplot(traces[i % rows, i // rows])
        _draw_lead(ax, sample, number, duration, span, lead if paper else None)
        bottom = i % rows == rows - 1 or i == len(leads) - 1
        ax.tick_params(labelbottom=bottom)
        ax.set_xlabel(("time, s" if sample.setting.rate else "sample") if bottom else "")
    side = right.subgridspec(2, 1, height_ratios=[2.8, max(body - 2.8, 0.01)])
    draw_bars(figure.add_subplot(side[0] if body > 3.6 else side[:]), sample)
    list_below(figure, _handles(sample, paper))
    return figure


def _is_ecg(sample: Sample) -> bool:
    return sample.setting.unit == "mV" and bool(sample.setting.rate)


def _leads(sample: Sample) -> list[int]:
    """All leads, or those that changed most."""
    change = np.abs(sample.x1 - sample.x0).sum(1)
    return sorted(np.argsort(-change, kind="stable")[:MOST_LEADS].tolist())


def _range(sample: Sample, lead: int) -> tuple[float, float]:
    both = np.concatenate([sample.x0[lead], sample.x1[lead]])
    return float(both.min()), float(both.max())


def _span(sample: Sample, leads: list[int]) -> float:
    """A common range of values, so that leads can be compared."""
    widest = max(high - low for low, high in (_range(sample, lead) for lead in leads))
    if not _is_ecg(sample):
        return (1.12 * widest) or 1.0
    return (math.ceil(widest / BOX[1]) + 1) * BOX[1]


def on_paper(middle: float, span: float) -> float:
    """The nearest middle for which `span` starts and ends at a large box; `_span` leaves room for the shift."""
    offset = span / 2 % BOX[1]
    return round((middle - offset) / BOX[1]) * BOX[1] + offset


def _draw_lead(
    ax: Axes, sample: Sample, lead: int, duration: float, span: float, paper: tuple[float, float] | None
) -> None:
    """`paper` is the size of the lead in inches, if it lies on ECG paper."""
    middle = sum(_range(sample, lead)) / 2
    if paper is not None:
        middle = on_paper(middle, span)
    ax.set(xlim=(0, duration), ylim=(middle - span / 2, middle + span / 2))
    if paper is not None:
        ax.set_aspect(SHAPE, anchor="NW")
        step = BOX[1] if paper[1] * BOX[1] / span > 0.3 else 2 * BOX[1]
        low, high = ax.get_ylim()
        ax.set_yticks(np.arange(math.floor(low / step) + 1, math.ceil(high / step)) * step)  # none at the edges
        draw_boxes(ax, (0, duration), (low, high), fine=paper[0] * DPI * BOX[0] / 5 / duration >= 3.5)
    else:
        ax.grid(color="#EEEEEE", linewidth=0.6)
    ax.set_axisbelow(True)
    time = np.arange(sample.x0.shape[1]) / (sample.setting.rate or 1.0)
    _shade(ax, sample, lead)
    thin = 1.0 if len(time) < 1500 else 0.7
    ax.plot(time, sample.x1[lead], color=INK, linewidth=thin, gid="after", zorder=3)
    changed = (
        np.convolve(sample.x0[lead] != sample.x1[lead], [1, 1, 1], "same") > 0
    )  # with neighbours, to connect the line
    before = np.where(changed, sample.x0[lead], np.nan)
    ax.plot(time, before, color=BEFORE, linewidth=1.5 * thin, gid="before", zorder=4)
    _draw_peaks(ax, sample)
    names, channel = sample.setting.leads, "lead" if _is_ecg(sample) else "channel"
    name = plain(names[lead], 12) if lead < len(names) else f"{channel} {lead + 1}"
    unit = f"\n{plain(sample.setting.unit, 12)}" if sample.setting.unit else ""
    ax.set_ylabel(name + unit, rotation=0, ha="right", va="center", labelpad=8)
    tidy(ax)


def _shade(ax: Axes, sample: Sample, lead: int) -> None:
    rate, grid = sample.setting.rate or 1.0, sample.setting.grid
    for patch, entry in ((patch, entry) for patch, entry in sample.touched if grid.holds(patch, lead)):
        (box,), look, strength = grid.box(patch), sample.looks[entry], sample.strengths[patch]
        ax.axvspan(
            box.start / rate, box.stop / rate, facecolor=(look.colour, 0.4 * strength), hatch=look.hatch, linewidth=0,
            edgecolor=(look.colour, 0.8 * strength), gid=f"patch-{patch}", zorder=2,
        )  # fmt: skip


def _handles(sample: Sample, paper: bool) -> list[Line2D | Patch]:
    """Legend entries for traces, filters, peaks and paper."""
    before = Line2D([], [], color=BEFORE, linewidth=1.5, label="before")
    after = Line2D([], [], color=INK, linewidth=1.0, label="after")
    peak = Line2D([], [], linestyle="", marker="v", markersize=5, color=PEAK, label="annotated R peak")
    text = f"large box {BOX[0]} s × {BOX[1]} mV (paper of 25 mm/s, 10 mm/mV)"
    box = Patch(facecolor="none", edgecolor="#E0938A", linewidth=0.9, label=text)
    return [before, after, *sample.swatches, *([peak] if _peaks_inside(sample) else []), *([box] if paper else [])]


def draw_boxes(ax: Axes, across: tuple[float, float], along: tuple[float, float], fine: bool = True) -> None:
    """Draw the large boxes of ECG paper over a range of seconds and of millivolts, and small ones if `fine`."""
    for parts, colour, width in ((5, SMALL, 0.4), (1, LARGE, 0.6)):
        if parts == 1 or fine:
            time, rise = BOX[0] / parts, BOX[1] / parts
            look: dict[str, Any] = {"colors": colour, "linewidth": width, "zorder": 1}
            ax.vlines(np.arange(across[0], across[1] + 1e-9, time), *along, **look)
            ax.hlines(np.arange(math.ceil(along[0] / rise - 1e-6), along[1] / rise + 1e-6) * rise, *across, **look)


def _draw_peaks(ax: Axes, sample: Sample) -> None:
    """Mark each annotated R peak with a triangle at the upper edge."""
    rate = sample.setting.rate or 1.0
    places = [at / rate for at in _peaks_inside(sample)]
    if places:
        ax.plot(
            places, [1.0] * len(places), linestyle="", marker="v", markersize=5, color=PEAK, gid="r-peaks",
            transform=ax.get_xaxis_transform(), clip_on=False, zorder=5,
        )  # fmt: skip


def _peaks_inside(sample: Sample) -> list[int]:
    return [at for at in sample.r_peaks if 0 <= at < sample.x0.shape[-1]]
