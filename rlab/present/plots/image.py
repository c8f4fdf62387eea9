"""An image before, after, what changed and where."""

from __future__ import annotations

from matplotlib.figure import Figure

from rlab.present.plots.bars import draw_bars
from rlab.present.plots.facts import Sample
from rlab.present.plots.pixels import channel_note, magnify, outline, pale, show, to_colours, to_unit
from rlab.present.plots.style import WIDE, header_height, list_below, new_figure, swatch, write_header

BARS = 2.9  # inches


def draw_image(sample: Sample) -> Figure:
    """x: (c, h, w)."""
    columns, side, tall = _panels(sample.x0.shape[1] / sample.x0.shape[2])
    width = max(columns * side + BARS + 0.6, 8.0)
    lines = sample.title(width)
    heights = [header_height(lines), max(4 // columns * (tall + 0.3), 2.3)]
    figure = new_figure(width, sum(heights) + 0.45)
    cells = figure.add_gridspec(2, 1, height_ratios=heights)
    write_header(figure, cells[0], lines)
    body = cells[1].subgridspec(1, 2, width_ratios=[width - BARS, BARS], wspace=0.03)
    panels = body[0].subgridspec(4 // columns, columns)
    x0, x = to_unit(sample)
    change, factor = magnify(x - x0)
    note = f"difference × {factor}" if (x != x0).any() else "no difference"
    pictures = (to_colours(x0), to_colours(x), change, pale(to_colours(x)))
    titles = (f"original{channel_note(x0)}", "perturbed", note, "distorted patches")
    for i, (picture, title) in enumerate(zip(pictures, titles, strict=True)):
        ax = figure.add_subplot(panels[i // columns, i % columns])
        show(ax, picture)
        ax.set_title(title)
    outline(ax, sample, side)
    draw_bars(figure.add_subplot(body[1]), sample)
    list_below(figure, [swatch(entry, name) for entry, name in sample.used])
    return figure


def _panels(shape: float) -> tuple[int, float, float]:
    """Pictures in a row, and the inches of one: wide pictures (height over width is small) stand above each other."""
    columns = 4 if shape > 0.55 else 2 if shape > 0.2 else 1
    side = min((WIDE + 1 - BARS) / columns, 3.6 / shape)
    return columns, max(side, 1.55), side * shape
