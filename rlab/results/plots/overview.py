"""A run in one picture: flips, distances by queries, places, filters and classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rlab.core.status import Status
from rlab.core.trace import DISTANCE_NAMES
from rlab.present.style import BEFORE, STYLE, WIDE, flow, hatch, headed_figure, hue, plain, say, tidy
from rlab.results.breakdown import class_members
from rlab.results.data import ResultData
from rlab.results.plots.anytime import curve_of, draw_anytime
from rlab.results.plots.sample import class_name, entry_name
from rlab.results.tones import STATUS_COLOURS
from rlab.stats import Floats

MOST_BARS = 14


def draw_overview(result: ResultData) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure, rows = headed_figure(WIDE, _title(result), [0.45 if len(set(result.status)) < 4 else 0.62, 6.7], 0.6)
        _draw_status(figure.add_subplot(rows[0]), result)
        body = rows[1].subgridspec(1, 2, width_ratios=[8.8, 4.0], wspace=0.04)
        halves = body[0].subgridspec(2, 1, hspace=0.06)
        upper, lower = (
            halves[i].subgridspec(1, 2, wspace=0.04) for i in range(2)
        )  # each row has its own column widths
        _draw_anytime(figure.add_subplot(upper[0]), figure.add_subplot(upper[1]), result)
        _draw_places(figure, lower[0], result)
        _draw_entries(figure.add_subplot(lower[1]), result)
        _draw_classes(figure.add_subplot(body[1]), result)
        return figure


def _title(result: ResultData) -> list[str]:
    setting, s = result.setting, result.summary()
    named = f"{plain(setting.policy, 40)}  ·  {plain(setting.goal, 40)}  ·  budget {setting.budget}"
    facts = [f"{int(s['succeeded'])} of {int(s['attacked'])} attacked samples flipped"]
    if s["attacked"]:
        facts[0] += f" ({s['success']:.1%})"
    if s["succeeded"]:
        facts.append(f"median {s['median_queries']:g} queries (first flip at {s['median_queries_flip']:g})")
        unit, flip, end = " " * bool(setting.l2_unit) + plain(setting.l2_unit, 12), s["median_l2_flip"], s["median_l2"]
        facts.append(f"median L2 {flip:.3g}{unit} at the first flip, {end:.3g}{unit} in the end")
        facts.append(f"median {s['median_patches']:g} of {len(setting.grid)} patches")
    facts += [f"{int(s['queries'])} queries in total", f"inputs {' × '.join(map(str, setting.size))}"]
    return [named, *flow(facts, WIDE - 0.25)]  # drawn text is slightly wider than measured


def _draw_status(ax: Axes, result: ResultData) -> None:
    counts, left = Counter(result.status), 0
    for status, colour in STATUS_COLOURS.items():
        if counts[status]:
            ax.barh(0, counts[status], 0.8, left=left, color=colour, label=f"{status.label}: {counts[status]}")
            left += counts[status]
    ax.set(xlim=(0, left), ylim=(-0.45, 0.45), yticks=[], xticks=[])
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.02), ncols=3, handlelength=1.0, borderaxespad=0.2)
    ax.set_title(f"{len(result)} sample{'s' if len(result) != 1 else ''} by status")
    tidy(ax, ())


def _draw_anytime(share: Axes, distance: Axes, result: ResultData) -> None:
    setting = result.setting
    unit = " (values in [0, 1])" if setting.bounded else f", {plain(setting.unit, 12)}" if setting.unit else ""
    name = DISTANCE_NAMES[setting.distance] + ("" if setting.distance == "l0" else unit)
    draw_anytime(share, distance, [(curve_of(result), {"color": BEFORE})], name, quartiles=True)
    if distance.lines:
        distance.legend(loc="upper right", fontsize=8.5, labelspacing=0.25)


def _draw_classes(ax: Axes, result: ResultData) -> None:
    """Draw flips by true class; a sample with several labels counts in each."""
    held = [held for _, held in class_members(result)]
    attacked, won = ([int((rows & who).sum()) for rows in held] for who in (result.attacked, result.succeeded))
    order = sorted((k for k in range(len(attacked)) if attacked[k]), key=lambda k: (-attacked[k], k))
    shown = sorted(order[:MOST_BARS])
    more = f", {len(shown)} of {len(order)} classes" if len(order) > len(shown) else ""
    ax.set_title(f"flipped by true class{more}")
    tidy(ax, ())
    if not shown:
        return say(ax, "no sample was attacked")
    names = [class_name(result.setting, k) for k in shown]
    _draw_bars(ax, names, [1.0] * len(shown), [f"{won[k]} of {attacked[k]}" for k in shown], 9, color="#F1F1F1")
    shares = [won[k] / attacked[k] for k in shown]
    ax.barh(np.arange(len(shown)), shares, 0.62, color=STATUS_COLOURS[Status.SUCCEEDED])
    ax.set(xlim=(0, 1.22), xticks=[])


def _draw_bars(
    ax: Axes, names: Sequence[str], values: Sequence[float], texts: Sequence[str], room: int, **look: Any
) -> BarContainer:
    """Named bars from the top, each with a text; there is room for at least `room` bars."""
    bars = ax.barh(np.arange(len(names)), values, 0.62, **look)
    ax.bar_label(bars, texts, padding=3, fontsize=8.5)
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_ylim(max(len(names), room) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    return bars


def _counted(result: ResultData) -> tuple[torch.Tensor, str]:
    """The assignments (m, p) to count, and a word for their samples."""
    if result.succeeded.any():
        return result.assignment[result.succeeded], "flipped"
    return result.assignment[result.attacked], "attacked"


def _draw_places(figure: Figure, cell: SubplotSpec, result: ResultData) -> None:
    """How often each place is distorted: a line over time, a map, or both for clips."""
    assignment, who = _counted(result)
    grid = result.setting.grid
    if not (assignment != 0).any():
        ax = figure.add_subplot(cell)
        ax.set_title("where")
        tidy(ax)
        return say(ax, "no patch is distorted")
    share = grid.places(assignment != 0).double().mean(0).cpu().numpy()
    if grid.rank == 1:
        _draw_line(figure.add_subplot(cell), result, share, f"where, in {who} samples")
    elif grid.rank == 2:
        _draw_map(figure, figure.add_subplot(cell), result, share, f"where, in {who} samples", "of samples")
    else:
        parts = cell.subgridspec(2, 1, height_ratios=[3, 1])
        ax = figure.add_subplot(parts[0])
        _draw_map(figure, ax, result, share.sum(0), f"where, in {who} samples", "patches per sample")
        _draw_line(figure.add_subplot(parts[1]), result, share.sum((1, 2)), "")


def _percent(share: Floats) -> PercentFormatter:
    return PercentFormatter(1.0, decimals=0 if share.max() > 0.1 else 1)


def _draw_line(ax: Axes, result: ResultData, share: Floats, title: str) -> None:
    setting = result.setting
    edges = np.append(np.arange(len(share)) * setting.patch[0], setting.size[0]) / (setting.rate or 1.0)
    ax.stairs(share, edges, fill=True, color="#5B6B7B", gid="usage")
    ax.set(xlim=(0, edges[-1]), ylim=(0, float(share.max()) * 1.1))
    ax.set_xlabel("time, s" if setting.rate else ("frame" if setting.grid.rank == 3 else "sample"))
    if title:
        ax.set(title=title, ylabel="of samples")
        ax.yaxis.set_major_formatter(_percent(share))
    else:
        ax.locator_params(axis="y", nbins=3)
    tidy(ax)


def _draw_map(figure: Figure, ax: Axes, result: ResultData, share: Floats, title: str, what: str) -> None:
    setting = result.setting
    counts, sides, lengths = (part[-2:] for part in (setting.grid.cells, setting.patch, setting.size))
    rows, columns = (
        np.append(np.arange(count) * side, length) for count, side, length in zip(counts, sides, lengths, strict=True)
    )
    mesh = ax.pcolormesh(columns, rows, share, cmap="cividis", vmin=0, vmax=float(share.max()), gid="usage")
    ax.set(aspect="equal", xlim=(0, lengths[1]), ylim=(lengths[0], 0))
    ax.set_title(title)
    tidy(ax, ())
    ax.locator_params(nbins=5)
    shares = setting.grid.rank == 2
    bar = figure.colorbar(mesh, ax=ax, shrink=0.9, pad=0.02, format=_percent(share) if shares else None)
    bar.set_label(what)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.locator = MaxNLocator(4)


def _draw_entries(ax: Axes, result: ResultData) -> None:
    assignment, who = _counted(result)
    counts = torch.bincount(assignment.flatten().long(), minlength=len(result.setting.palette) + 1)[1:].tolist()
    order = sorted(range(1, len(counts) + 1), key=lambda entry: (-counts[entry - 1], entry))[:MOST_BARS]
    more = f", {len(order)} of {len(counts)}" if len(counts) > len(order) else ""
    ax.set_title(f"filters in {who} samples{more}")
    tidy(ax)
    values, names = [counts[entry - 1] for entry in order], [entry_name(result.setting, entry) for entry in order]
    looks: dict[str, Any] = {"color": [hue(entry) for entry in order], "edgecolor": "white", "linewidth": 0}
    for bar, entry in zip(_draw_bars(ax, names, values, [*map(str, values)], 4, **looks), order, strict=True):
        bar.set_hatch(hatch(entry))
    ax.set(xlim=(0, max([*values, 1]) * 1.15), xlabel="patches")
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
