"""Panels side by side as one matplotlib figure: charts, bars, pictures, samples in one version, and answers."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rlab.present.chart import Chart, look
from rlab.present.inline import opened
from rlab.present.layers import SMOOTH_FROM, Layers, Mark, Version
from rlab.present.page import Bars, Beside, Block, Charts, Gallery, Page, Picture
from rlab.present.sheet import Sheet, lay_out
from rlab.present.style import BEFORE, INK, LETTERS, STYLE, WIDE, flow, headed_figure, list_below, plain, tidy
from rlab.present.table import text
from rlab.present.viewer import Answer
from rlab.storage.files import replacing

HEIGHT, TALLEST = 3.4, 7.0  # inches of a panel
LEAST_BARS = 5  # there is room for


@dataclass(frozen=True)
class View:
    """One version of a sample, of a clip one frame; a signal is shown in both versions, on `sheet` if it is given."""

    title: str
    layers: Layers
    version: Version = "marked"
    frame: int = 0
    sheet: Sheet | None = None


@dataclass(frozen=True)
class Answers:
    """What a model answers before and after."""

    title: str
    answers: Sequence[Answer]


Panel = Chart | Bars | Picture | View | Answers


def draw_panels(lines: Sequence[str], rows: Sequence[Sequence[Panel]]) -> Figure:
    """Rows of panels below a header; curves of several names and marks get a legend."""
    with matplotlib.rc_context(STYLE):
        shares = [[_share(panel) for panel in row] for row in rows]
        widths = [[(WIDE - 0.3) * share / sum(own) for share in own] for own in shares]
        heights = [max(map(_height, row, own)) for row, own in zip(rows, widths, strict=True)]
        figure, cells = headed_figure(WIDE, lines, heights, 0.6)
        names: dict[str, int] = {}
        for cell, row, own in zip(cells, rows, widths, strict=True):
            spots = cell.subgridspec(1, len(row), wspace=0.04, width_ratios=own)
            for at, panel in enumerate(row):
                if isinstance(panel, Chart):
                    names |= {curve.name: number for number, curve in enumerate(panel.curves) if curve.name}
                ax = figure.add_subplot(spots[at])
                ax.set_title(textwrap.fill(plain(panel.title, 150), max(16, int(LETTERS * own[at]))))
                _draw(ax, panel)
        curves = [Line2D([], [], label=plain(name, 40), **look(number)) for name, number in names.items()]
        views = [panel.layers for row in rows for panel in row if isinstance(panel, View)]
        list_below(figure, [*curves, *legend(views)])
        return figure


def legend(views: Sequence[Layers]) -> list[Patch | Line2D]:
    """What the lines of signals, the marks and the colours of maps mean."""
    compared = any(layers.after is not None for layers in views)
    both = ((BEFORE, "before"), (INK, "after")) if compared else ()
    handles: list[Patch | Line2D] = [Line2D([], [], color=colour, label=name, linewidth=2.5) for colour, name in both]
    marks = dict.fromkeys((mark.colour, mark.hatch, mark.name) for layers in views for mark in layers.marks)
    for colour, hatch, name in marks:
        handles.append(
            Patch(facecolor=(colour, 0.35), edgecolor=colour, hatch=hatch, linewidth=1.2, label=plain(name, 60))
        )
    for ramp in [layers.ramp for layers in views if layers.ramp is not None][:1]:
        ends = ((ramp.colours[0], ramp.low), (ramp.colours[-1], ramp.high))
        handles += [Patch(facecolor=colour, edgecolor="#bbbbbb", label=name) for colour, name in ends]
    return handles


def save_drawings(drawings: Mapping[str, Callable[[], Figure]], folder: Path, *kinds: str) -> list[Path]:
    """Write figures given by name, as 'png', or as 'svg' and 'pdf' with text as text."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with matplotlib.rc_context({**STYLE, "svg.fonttype": "none", "pdf.fonttype": 42}):
        for name, draw in drawings.items():
            figure = draw()
            paths += [folder / f"{name}.{kind}" for kind in kinds]
            for path in paths[-len(kinds) :]:
                with replacing(path) as file:
                    figure.savefig(file, format=path.suffix[1:])
    return paths


def draw_page(page: Page) -> Figure:
    """The charts, bars and pictures of a page as one figure, below its title, lead and key figures."""
    key = [f"{each.name}: {text(each.value)}{each.unit}" for each in page.numbers]
    lines = [plain(page.title, 80), *flow([plain(each, 200) for each in (page.lead, *key) if each], WIDE)]
    rows = [row for section in page.sections for block in section.blocks for row in _rows(block)]
    return draw_panels(lines, rows)


def _rows(block: Block) -> Iterator[Sequence[Panel]]:
    """The rows of panels in a block."""
    match block:
        case Charts(charts=charts):
            yield from (charts[at : at + 3] for at in range(0, len(charts), 3))
        case Bars():
            yield [block]
        case Gallery(pictures=pictures, columns=columns):
            yield from (pictures[at : at + columns] for at in range(0, len(pictures), columns))
        case Beside(blocks=blocks):
            yield [panel for each in blocks for row in _rows(each) for panel in row]


def _share(panel: Panel) -> float:
    """The width of a panel relative to others in its row."""
    return 3.4 if isinstance(panel, View) and panel.layers.signal else 1.0


def _height(panel: Panel, width: float) -> float:
    """Inches."""
    if isinstance(panel, Bars):
        return 0.6 + 0.27 * max(len(panel.bars), LEAST_BARS)
    if not isinstance(panel, View):
        return 2.5 if isinstance(panel, Answers) else HEIGHT
    across, down = lay_out(panel.layers).size if panel.layers.signal else panel.layers.x.shape[:-3:-1]
    return min(0.3 + width * down / across, TALLEST)


def _draw(ax: Axes, panel: Panel) -> None:
    match panel:
        case Chart():
            panel.draw(ax)
            ax.set(xlabel=panel.x, ylabel=panel.y)
        case Bars():
            values = [bar.share for bar in panel.bars], [bar.text for bar in panel.bars]
            _draw_rows(
                ax, [plain(bar.name, 36) for bar in panel.bars], [(*values, [bar.colour or INK for bar in panel.bars])]
            )
        case View():
            draw_view(ax, panel)
        case Answers():
            both = [one.before for one in panel.answers], [one.after for one in panel.answers]
            series = [
                (each, [f"{value:.2f}" for value in each], colour)
                for each, colour in zip(both, (BEFORE, INK), strict=True)
            ]
            _draw_rows(ax, [textwrap.fill(plain(one.name, 36) + " ✓" * one.true, 18) for one in panel.answers], series)
        case Picture():
            ax.imshow(opened(panel.src))
            below = panel.caption if panel.ramp is None else f"{panel.ramp.low} to {panel.ramp.high}"
            ax.set(xticks=[], yticks=[], xlabel=plain(below))
            tidy(ax, ())


def draw_view(ax: Axes, view: View) -> None:
    """Draw the layers of a sample that belong to a version."""
    layers = view.layers
    if layers.signal:
        sheet = view.sheet or lay_out(layers)
        sheet.draw(ax)
        draw_marks(ax, sheet.marks)
        ax.text(0, -0.01, sheet.note, transform=ax.transAxes, va="top", fontsize=8.5)
        return
    shown = layers.seen(view.version, view.frame)
    smooth = min(shown.shape[:2]) >= SMOOTH_FROM
    ends = (0, shown.shape[1], shown.shape[0], 0)
    how: dict[str, Any] = {"interpolation": "antialiased" if smooth else "nearest", "extent": ends}
    ax.imshow(shown, **how)
    ax.set(xticks=[], yticks=[])
    draw_marks(ax, [mark for mark in layers.marks if mark.at(view.frame) and view.version in mark.versions])
    ax.set(xlim=ends[:2], ylim=ends[2:])


def draw_marks(ax: Axes, marks: Sequence[Mark]) -> None:
    for mark in marks:
        corners = [[(x, y), (x + wide, y), (x + wide, y + high), (x, y + high)] for x, y, wide, high in mark.places]
        look: dict[str, Any] = {"facecolor": (mark.colour, 0.4 * mark.strength), "hatch": mark.hatch, "linewidth": 1.0}
        if mark.frame:
            look |= {"facecolor": "none", "linewidth": 1.6}
        ax.add_collection(
            PolyCollection(corners, edgecolor=(mark.colour, mark.strength), gid=mark.name, zorder=3, **look)
        )


def _draw_rows(ax: Axes, names: Sequence[str], series: Sequence[tuple[Sequence[float], Sequence[str], Any]]) -> None:
    """Rows of bars, one for each series of values, words and colours."""
    at, thick = np.arange(len(names)), 0.7 / len(series)
    for k, (values, words, colours) in enumerate(series):
        drawn = ax.barh(at + (k + 0.5) * 1.1 * thick - 0.4, values, thick, color=colours)
        ax.bar_label(drawn, words, padding=3, fontsize=8)
    ax.set_yticks(at, names)
    widest = max((value for values, *_ in series for value in values), default=1.0)
    ax.set(xlim=(None, 1.25 * widest), xticks=[], ylim=(max(len(names), LEAST_BARS) - 0.4, -0.6))
    tidy(ax, ())
    ax.tick_params(axis="y", length=0)
