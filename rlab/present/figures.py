"""Charts, bars and pictures of a page as one matplotlib figure, to save, print or show in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from rlab.present.chart import Chart
from rlab.present.inline import opened
from rlab.present.page import Bars, Beside, Block, Charts, Gallery, Page, Picture
from rlab.present.style import HUES, INK, STYLE, WIDE, flow, headed_figure, list_below, plain, tidy
from rlab.present.table import text

_COLOURS = (INK, *HUES[:5])  # yellow lines are too pale on white
_DASHES = ("-", "--", ":", "-.")
_ABOVE = 1e12  # drawn instead of infinity, far above the axis
LEAST_BARS = 5  # there is room for


def draw_panels(lines: Sequence[str], rows: Sequence[Sequence[Chart | Bars | Picture]], height: float = 3.4) -> Figure:
    """Rows of panels side by side, each `height` inches high, below a header; curves of several names get a legend."""
    with matplotlib.rc_context(STYLE):
        figure, cells = headed_figure(WIDE, lines, [height] * len(rows), 0.6)
        names: dict[str, int] = {}
        for cell, row in zip(cells, rows, strict=True):
            spots = cell.subgridspec(1, len(row), wspace=0.04)
            for at, panel in enumerate(row):
                ax = figure.add_subplot(spots[at])
                ax.set_title(plain(panel.title))
                if isinstance(panel, Chart):
                    names |= {curve.name: number for number, curve in enumerate(panel.curves) if curve.name}
                    _draw_chart(ax, panel)
                elif isinstance(panel, Bars):
                    _draw_bars(ax, panel)
                else:
                    _draw_picture(ax, panel)
        list_below(figure, [Line2D([], [], label=plain(name, 40), **_look(number)) for name, number in names.items()])
        return figure


def draw_page(page: Page) -> Figure:
    """The charts, bars and pictures of a page as one figure, below its title, lead and key figures."""
    key = [f"{each.name}: {text(each.value)}{each.unit}" for each in page.numbers]
    lines = [plain(page.title, 80), *flow([plain(each, 200) for each in (page.lead, *key) if each], WIDE - 0.25)]
    rows = [row for section in page.sections for block in section.blocks for row in _panels(block)]
    return draw_panels(lines, rows)


def _panels(block: Block) -> Iterator[Sequence[Chart | Bars | Picture]]:
    """The rows of panels in a block."""
    match block:
        case Charts(charts=charts):
            yield from (charts[at : at + 2] for at in range(0, len(charts), 2))
        case Bars():
            yield [block]
        case Gallery(pictures=pictures, columns=columns):
            yield from (pictures[at : at + columns] for at in range(0, len(pictures), columns))
        case Beside(blocks=blocks):
            yield from (row for each in blocks for row in _panels(each))


def _look(number: int) -> dict[str, Any]:
    dashes = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": dashes, "linewidth": 1.8}


def _draw_chart(ax: Axes, chart: Chart) -> None:
    for number, curve in enumerate(chart.curves):
        x, look = np.asarray(curve.x, float), _look(number)
        ax.plot(x, np.asarray(curve.y, float).clip(max=_ABOVE), drawstyle="steps-post" if chart.steps else None, **look)
        if curve.band is not None:
            low, high = (edge.clip(max=_ABOVE) for edge in curve.band)
            step: Any = "post" if chart.steps else None
            ax.fill_between(x, low, high, step=step, color=look["color"], alpha=0.15, linewidth=0)
    scales = {"xscale": "log" if chart.log_x else "linear", "yscale": "log" if chart.log_y else "linear"}
    ax.set(xlabel=chart.x, ylabel=chart.y, xlim=chart.x_range, ylim=chart.y_range, **scales)
    for axis, marks in ((ax.xaxis, chart.x_marks), (ax.yaxis, chart.y_marks)):
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
        axis.set_ticks([value for value, _ in marks], [label for _, label in marks])
    ax.grid(color="#EEEEEE", linewidth=0.6)
    ax.set_axisbelow(True)
    tidy(ax)


def _draw_bars(ax: Axes, bars: Bars) -> None:
    at = np.arange(len(bars.bars))
    drawn = ax.barh(at, [bar.share for bar in bars.bars], 0.62, color=[bar.colour or INK for bar in bars.bars])
    ax.bar_label(drawn, [bar.text for bar in bars.bars], padding=3, fontsize=8.5)
    ax.set_yticks(at, [plain(bar.name, 36) for bar in bars.bars])
    ax.set(xlim=(0, 1.25), xticks=[], ylim=(max(len(at), LEAST_BARS) - 0.4, -0.6))
    tidy(ax, ())
    ax.tick_params(axis="y", length=0)


def _draw_picture(ax: Axes, picture: Picture) -> None:
    ax.imshow(opened(picture.src))
    below = picture.caption if picture.ramp is None else f"{picture.ramp.low} to {picture.ramp.high}"
    ax.set(xticks=[], yticks=[], xlabel=plain(below))
    tidy(ax, ())
