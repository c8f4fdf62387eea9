"""A run on one page: how many samples flipped, at what cost, how far, where and by what."""

from __future__ import annotations

from collections import Counter

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from rlab.core.result import AttackResult, Status
from rlab.present.plots.facts import class_name, entry_name, is_bounded
from rlab.present.plots.style import (
    AFTER,
    BEFORE,
    STYLE,
    WIDE,
    flow,
    hatch,
    header_height,
    hue,
    new_figure,
    plain,
    say,
    tidy,
    write_header,
)

MOST_BARS = 14
STATUS_COLOURS = {
    Status.SUCCEEDED: "#009E73",
    Status.SPENT: "#E69F00",
    Status.SKIPPED: "#CCCCCC",
    Status.FAILED: "#D55E00",
    Status.UNVERIFIED: "#CC79A7",
}
Floats = NDArray[np.float64]


def draw_overview(result: AttackResult) -> Figure:
    with matplotlib.rc_context(STYLE):
        lines = _title(result)
        heights = [header_height(lines), 0.45 if len(set(result.status)) < 4 else 0.62, 6.7]
        figure = new_figure(WIDE, sum(heights) + 0.6)
        cells = figure.add_gridspec(3, 1, height_ratios=heights)
        write_header(figure, cells[0], lines)
        _draw_status(figure.add_subplot(cells[1]), result)
        body = cells[2].subgridspec(1, 2, width_ratios=[8.8, 4.0], wspace=0.04)
        rows = body[0].subgridspec(2, 1, hspace=0.06)
        upper, lower = (rows[i].subgridspec(1, 2, wspace=0.04) for i in range(2))
        _draw_queries(figure.add_subplot(upper[0]), result)
        _draw_distance(figure.add_subplot(upper[1]), result)
        _draw_places(figure, lower[0], result)
        _draw_entries(figure.add_subplot(lower[1]), result)
        _draw_classes(figure.add_subplot(body[1]), result)
        return figure


def _title(result: AttackResult) -> list[str]:
    setting, s = result.setting, result.summary()
    named = f"{plain(setting.policy, 40)}  ·  {plain(setting.goal, 40)}  ·  budget {setting.budget}"
    facts = [f"{int(s['succeeded'])} of {int(s['attacked'])} attacked samples flipped"]
    if s["attacked"]:
        facts[0] += f" ({s['success']:.1%})"
    if s["succeeded"]:
        facts.append(f"median {s['median_queries']:g} queries")
        facts.append(f"median L2 {s['median_l2_flip']:.3g} → {s['median_l2']:.3g}{_unit(result, ' ')}")
        facts.append(f"median {s['median_patches']:g} of {len(setting.grid)} patches")
    facts += [f"{int(s['queries'])} queries in all", f"inputs {' × '.join(map(str, setting.size))}"]
    return [named, *flow(facts, WIDE)]


def _unit(result: AttackResult, before: str) -> str:
    """What stands behind an L2."""
    if is_bounded(result.setting):
        return " (values in [0, 1])"
    return f"{before}{plain(result.setting.unit, 12)}" if result.setting.unit else ""


def _draw_status(ax: Axes, result: AttackResult) -> None:
    counts, left = Counter(result.status), 0
    for status, colour in STATUS_COLOURS.items():
        if counts[status]:
            ax.barh(0, counts[status], 0.8, left=left, color=colour, label=f"{status.value}: {counts[status]}")
            left += counts[status]
    ax.set(xlim=(0, left), ylim=(-0.45, 0.45), yticks=[], xticks=[])
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.02), ncols=3, handlelength=1.0, borderaxespad=0.2)
    ax.set_title(f"{len(result)} sample{'s' if len(result) != 1 else ''} by how they ended")
    tidy(ax, ())


def _climb(ax: Axes, values: Floats, of: int, ends: tuple[float, float], colour: str, label: str) -> None:
    """The share of `of` samples at or below each value, as steps."""
    x = np.concatenate([[ends[0]], np.sort(values), [ends[1]]])
    y = np.concatenate([[0], np.arange(1, len(values) + 1), [len(values)]]) / of
    ax.step(x, y, where="post", color=colour, linewidth=1.8, label=label)


def _shares(ax: Axes) -> None:
    ax.set_ylim(0, 1.03)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.grid(axis="both", color="#EEEEEE", linewidth=0.6)
    ax.set_axisbelow(True)


def _legend_above(ax: Axes) -> None:
    """Where no curve can run under it; the title moves up."""
    ax.legend(
        loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.0, borderpad=0.3, fontsize=8.5, labelspacing=0.25
    )
    ax.set_title(ax.get_title("left"), pad=33)


def _draw_queries(ax: Axes, result: AttackResult) -> None:
    won = result.succeeded
    ax.set_title("flipped within so many queries")
    tidy(ax)
    if not won.any():
        return say(ax, "no sample was flipped")
    attacked, end = int(result.attacked.sum()), float(max(result.setting.budget, int(result.effort.max()), 2))
    s = result.summary()
    search, both = (values[won].double().clamp(min=1).cpu().numpy() for values in (result.queries[:, 0], result.effort))
    _climb(ax, search, attacked, (1, end), BEFORE, f"search, median {s['median_search']:g}")
    _climb(ax, both, attacked, (1, end), AFTER, f"search + cleanup, median {s['median_queries']:g}")
    ax.set(xscale="log", xlim=(1, end), xlabel="queries")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_ylabel("of attacked samples")
    _shares(ax)
    _legend_above(ax)


def _draw_distance(ax: Axes, result: AttackResult) -> None:
    won = result.succeeded
    ax.set_title("L2 of flipped samples")
    tidy(ax)
    if not won.any():
        return say(ax, "no sample was flipped")
    both = [column["l2"][won].double().cpu().numpy() for column in (result.flip, result.final)]
    end = max(float(np.nanmax(np.concatenate(both))) * 1.04, 1e-6)
    s = result.summary()
    _climb(ax, both[0], len(both[0]), (0, end), BEFORE, f"at the flip, median {s['median_l2_flip']:.3g}")
    _climb(ax, both[1], len(both[1]), (0, end), AFTER, f"after cleanup, median {s['median_l2']:.3g}")
    ax.set(xlim=(0, end), xlabel=f"L2{_unit(result, ', ')}", ylabel="of flipped samples")
    _shares(ax)
    _legend_above(ax)


def _draw_classes(ax: Axes, result: AttackResult) -> None:
    """A sample with several labels counts in each of them."""
    member = result.labels.bool() if result.labels.dim() == 2 else _one_hot(result)
    attacked, won = (member[rows].sum(0).tolist() for rows in (result.attacked, result.succeeded))
    order = sorted((k for k in range(len(attacked)) if attacked[k]), key=lambda k: (-attacked[k], k))
    shown = sorted(order[:MOST_BARS])
    more = f", {len(shown)} of {len(order)} classes" if len(order) > len(shown) else ""
    ax.set_title(f"flipped by true class{more}")
    tidy(ax, ())
    if not shown:
        return say(ax, "no sample was attacked")
    at = np.arange(len(shown))
    ax.barh(at, np.ones(len(shown)), 0.62, color="#F1F1F1")
    bars = ax.barh(at, [won[k] / attacked[k] for k in shown], 0.62, color=STATUS_COLOURS[Status.SUCCEEDED])
    for bar, k in zip(bars, shown, strict=True):
        ax.text(1.02, bar.get_y() + bar.get_height() / 2, f"{won[k]} of {attacked[k]}", va="center", fontsize=8.5)
    ax.set_yticks(at, [class_name(result.setting, k) for k in shown])
    ax.set(xlim=(0, 1.22), ylim=(max(len(shown), 9) - 0.4, -0.6), xticks=[])
    ax.tick_params(axis="y", length=0)


def _one_hot(result: AttackResult) -> torch.Tensor:
    return torch.nn.functional.one_hot(result.labels.long(), max(result.before.shape[1], int(result.labels.max()) + 1))


def _counted(result: AttackResult) -> tuple[torch.Tensor, str]:
    """The samples whose patches are counted, (m, p), and what to call them."""
    if result.succeeded.any():
        return result.assignment[result.succeeded], "flipped"
    return result.assignment[result.attacked], "attacked"


def _draw_places(figure: Figure, cell: SubplotSpec, result: AttackResult) -> None:
    """How often each place is distorted: a line over time, a map, or for clips a map over a line."""
    assignment, who = _counted(result)
    grid = result.setting.grid
    if not (assignment != 0).any():
        ax = figure.add_subplot(cell)
        ax.set_title("where")
        tidy(ax)
        return say(ax, "no patch is distorted")
    share = (assignment != 0).double().mean(0).reshape(grid.shape).cpu().numpy()
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


def _draw_line(ax: Axes, result: AttackResult, share: Floats, title: str) -> None:
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


def _draw_map(figure: Figure, ax: Axes, result: AttackResult, share: Floats, title: str, what: str) -> None:
    setting = result.setting
    counts, sides, lengths = (part[-2:] for part in (setting.grid.shape, setting.patch, setting.size))
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
    bar.locator = matplotlib.ticker.MaxNLocator(4)


def _draw_entries(ax: Axes, result: AttackResult) -> None:
    assignment, who = _counted(result)
    counts = torch.bincount(assignment.flatten().long(), minlength=len(result.setting.palette) + 1)[1:].tolist()
    order = sorted(range(1, len(counts) + 1), key=lambda entry: (-counts[entry - 1], entry))[:MOST_BARS]
    more = f", {len(order)} of {len(counts)}" if len(counts) > len(order) else ""
    ax.set_title(f"with what, in {who} samples{more}")
    at, values = np.arange(len(order)), [counts[entry - 1] for entry in order]
    bars = ax.barh(at, values, 0.62, color=[hue(entry) for entry in order], edgecolor="white", linewidth=0)
    for bar, entry in zip(bars, order, strict=True):
        bar.set_hatch(hatch(entry))
    ax.bar_label(bars, [str(value) for value in values], padding=3, fontsize=8.5)
    ax.set_yticks(at, [entry_name(result.setting, entry) for entry in order])
    ax.set(xlim=(0, max([*values, 1]) * 1.15), ylim=(max(len(order), 4) - 0.4, -0.6), xlabel="patches")
    tidy(ax)
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(4, integer=True))
