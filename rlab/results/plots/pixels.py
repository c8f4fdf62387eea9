"""Pictures of images and of episodes: values as colours, outlines of distorted patches, and predicted boxes and maps."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from rlab.predictions.maps import decode_map
from rlab.present.colours import scaled, to_colours, value_range
from rlab.present.inline import SMOOTH_FROM
from rlab.present.style import BEFORE, STYLE, WIDE, headed_figure, list_below, new_figure, tidy
from rlab.results.plots.sample import Array, Sample, draw_bars
from rlab.results.predicted import BoxChange, box_changes

FATES = {"kept": "#1B9E77", "lost": "#E7298A", "new": "#7570B3"}  # colours of boxes
BARS = 2.9  # inches
FACTORS = tuple(step * 10**power for power in range(5) for step in (1, 2, 5))


def boxes_of(sample: Sample) -> list[BoxChange]:
    """The boxes that are kept, lost and new; empty for other predictions."""
    if sample.setting.target != "boxes":
        return []
    return box_changes(sample.setting, sample.before, sample.after)


def changed_points(sample: Sample) -> NDArray[np.bool_] | None:
    """(*size) bool: where the class of a map changes; None for other predictions."""
    size = sample.setting.size
    if sample.setting.target != "map":
        return None
    before, after = (decode_map(rows[None], size)[0] for rows in (sample.before, sample.after))
    changed = before != after
    for axis, length in enumerate(size):
        changed = changed.index_select(axis, torch.arange(length) * changed.shape[axis] // length)
    found: NDArray[np.bool_] = changed.numpy()
    return found


def draw_predictions(ax: Axes, sample: Sample, after: bool) -> None:
    """Draw the boxes of one side of the attack, or where a map changes, over a picture."""
    for box in boxes_of(sample):
        if box.fate != ("lost" if after else "new"):
            x1, y1, x2, y2 = box.xyxy
            colour = FATES[box.fate]
            ax.add_patch(Rectangle((x1 - 0.5, y1 - 0.5), x2 - x1, y2 - y1, fill=False, edgecolor=colour, linewidth=1.8))
            words = {"facecolor": colour, "edgecolor": "none", "pad": 1.0}
            ax.text(
                x1, y1, f"{box.words} ({box.fate})", color="white", fontsize=6.5, va="top", bbox=words, clip_on=True
            )
    changed = changed_points(sample)
    if changed is not None and after and changed.ndim == 2:
        layer = np.zeros((*changed.shape, 4), dtype=np.float32)
        layer[changed] = (0.91, 0.16, 0.54, 0.55)
        ax.imshow(layer, interpolation="nearest")


def to_unit(sample: Sample) -> tuple[Array, Array]:
    """Both inputs (c, *size) scaled to [0, 1] by the bounds, or by their common range."""
    ends = value_range(sample.setting.bounds, sample.x0, sample.x1)
    return scaled(sample.x0, ends), scaled(sample.x1, ends)


def channel_note(values: Array) -> str:
    return "" if len(values) in (1, 3) else f" (mean of {len(values)} channels)"


def magnification(peak: float) -> int:
    """The largest round factor that keeps a change of at most `peak` within 1."""
    return max((f for f in FACTORS if f * peak <= 1), default=1) if peak else 1


def magnify(change: Array) -> tuple[Array, int]:
    """A signed change (c, *size) as colours around mid-grey, and its magnification."""
    shown = to_colours(change)
    peak = float(np.abs(shown).max())
    factor = magnification(peak)
    return (0.5 + 0.5 * factor * shown).clip(0, 1), factor


def show(ax: Axes, colours: Array) -> None:
    """Show colours (h, w, 3) without ticks."""
    smooth = min(colours.shape[:2]) >= SMOOTH_FROM
    ax.imshow(colours, interpolation="antialiased" if smooth else "nearest")
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(color="#BBBBBB", linewidth=0.6)


def outline(ax: Axes, sample: Sample, inches: float, frame: int | None = None) -> None:
    """Draw the distorted patches, for a clip those of one frame; `inches` is the width of the picture."""
    grid = sample.setting.grid
    points_per_pixel = 72 * inches / grid.size[-1]
    line = min(1.6, 0.12 * points_per_pixel * min(grid.patch[-2:]) + 0.25)
    inset = min(0.5 * line / points_per_pixel, 0.2)  # neighbours' outlines must not cover each other
    for patch, entry in sample.touched:
        *when, rows, columns = grid.box(patch)
        if when and frame not in range(when[0].start, when[0].stop):
            continue
        corner = (columns.start - 0.5 + inset, rows.start - 0.5 + inset)
        sides = (columns.stop - columns.start - 2 * inset, rows.stop - rows.start - 2 * inset)
        look, strength = sample.looks[entry], sample.strengths[patch]
        box = Rectangle(
            corner, *sides, facecolor=(look.colour, 0.4 * strength), edgecolor=(look.colour, strength), hatch=look.hatch
        )
        box.set(linewidth=line, gid=f"patch-{patch}")
        ax.add_patch(box)


def pale(colours: Array) -> Array:
    """Paler colours, so that outlines stand out."""
    grey = colours.mean(-1, keepdims=True)
    return (0.35 + 0.65 * (0.25 * colours + 0.75 * grey)).astype(colours.dtype)


def draw_image(sample: Sample) -> Figure:
    """An image (c, h, w): original, perturbed, difference and patches."""
    columns, side, tall = _panels(sample.x0.shape[1] / sample.x0.shape[2])
    width = max(columns * side + BARS + 0.6, 8.0)
    figure, (cell,) = headed_figure(width, sample.title(width), [max(4 // columns * (tall + 0.3), 2.3)], 0.45)
    body = cell.subgridspec(1, 2, width_ratios=[width - BARS, BARS], wspace=0.03)
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
        if i < 2:
            draw_predictions(ax, sample, after=i == 1)
    outline(ax, sample, side)
    draw_bars(figure.add_subplot(body[1]), sample)
    list_below(figure, sample.swatches)
    return figure


def _panels(shape: float) -> tuple[int, float, float]:
    """Columns, and the width and height of a picture in inches; wide pictures get fewer columns."""
    columns = 4 if shape > 0.55 else 2 if shape > 0.2 else 1
    side = min((WIDE + 1 - BARS) / columns, 3.6 / shape)
    return columns, max(side, 1.55), side * shape


def render_episode(x0: Array, x: Array, bounds: tuple[float, float]) -> NDArray[np.uint8]:
    """An episode's input before and now: x0, x (c, *size) -> (height, width, 3); of a clip, the frame that changed most."""
    low, high = value_range(bounds, x0)
    with matplotlib.rc_context(STYLE):
        figure: Any = new_figure(6.4, 3.2)
        frame = int(np.abs(x - x0).sum((0, 2, 3)).argmax()) if x.ndim == 4 else 0
        for ax, values, name in zip(figure.subplots(1, 2), (x0, x), ("before", "now"), strict=True):
            _draw_values(ax, values if values.ndim < 4 else values[:, frame], low, high)
            ax.set_title(name)
        figure.canvas.draw()
        return np.array(figure.canvas.buffer_rgba())[..., :3]


def _draw_values(ax: Axes, values: Array, low: float, high: float) -> None:
    """Draw a signal as lines, anything else as colours."""
    if values.ndim > 2:
        show(ax, scaled(to_colours(values), (low, high)))
        return
    ax.plot(values.T, color=BEFORE, linewidth=0.8)
    ax.set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low) + 1e-6)
    tidy(ax)
