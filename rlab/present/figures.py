"""Charts, bars and pictures of a page as one matplotlib figure, to save, print or show in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlab.present.chart import Chart, look
from rlab.present.inline import opened
from rlab.present.page import Bars, Beside, Block, Charts, Gallery, Page, Picture
from rlab.present.style import INK, STYLE, WIDE, flow, headed_figure, list_below, plain, tidy
from rlab.present.table import text

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
                    panel.draw(ax)
                    ax.set(xlabel=panel.x, ylabel=panel.y)
                elif isinstance(panel, Bars):
                    _draw_bars(ax, panel)
                else:
                    _draw_picture(ax, panel)
        list_below(figure, [Line2D([], [], label=plain(name, 40), **look(number)) for name, number in names.items()])
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
