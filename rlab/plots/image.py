"""An image before, after, what changed and where."""

from __future__ import annotations

from matplotlib.figure import Figure

from rlab.plots.bars import draw_bars
from rlab.plots.facts import Sample
from rlab.plots.pixels import channel_note, magnify, outline, pale, show, to_colours, to_unit
from rlab.plots.style import WIDE, header_height, new_figure, swatch, write_header

BARS = 2.9  # inches


def draw_image(sample: Sample) -> Figure:
    """x: (c, h, w)."""
    side, tall = _panel(sample.x0.shape[1], sample.x0.shape[2])
    width = max(4 * side + BARS + 0.6, 8.0)
    lines = sample.title(width)
    heights = [header_height(lines), tall + 0.3]
    figure = new_figure(width, sum(heights) + 0.45)
    cells = figure.add_gridspec(2, 1, height_ratios=heights)
    write_header(figure, cells[0], lines)
    row = cells[1].subgridspec(1, 5, width_ratios=[side] * 4 + [BARS])
    x0, x = to_unit(sample)
    change, factor = magnify(x - x0)
    note = f"difference × {factor}, grey is none" if (x != x0).any() else "no difference"
    pictures = (to_colours(x0), to_colours(x), change, pale(to_colours(x)))
    titles = (f"original{channel_note(x0)}", "perturbed", note, "distorted patches")
    for i, (picture, title) in enumerate(zip(pictures, titles, strict=True)):
        ax = figure.add_subplot(row[i])
        show(ax, picture)
        ax.set_title(title)
    outline(ax, sample, side)
    draw_bars(figure.add_subplot(row[4]), sample)
    handles = [swatch(entry, name) for entry, name in sample.used]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=4)
    return figure


def _panel(height: int, width: int) -> tuple[float, float]:
    """Inches of one picture: as wide as four side by side allow, but not too tall."""
    side = min((WIDE + 1 - BARS) / 4, 3.6 * width / height)
    return side, side * height / width
