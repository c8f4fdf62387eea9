"""Values of an image or a clip as colours, and the outlines of distorted patches over them."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from rlab.present.plots.facts import Array, Sample
from rlab.present.plots.style import hatch, hue

SMOOTH_FROM = 160  # pixels a side; smaller pictures show their pixels as squares
FACTORS = tuple(step * 10**power for power in range(5) for step in (1, 2, 5))


def to_unit(sample: Sample) -> tuple[Array, Array]:
    """Both inputs (c, *size) in [0, 1]: by the bounds, or where there are none by their common range."""
    low, high = sample.setting.bounds
    if not math.isfinite(high - low):
        low, high = (float(f([f(sample.x0), f(sample.x)])) for f in (np.min, np.max))
    span = (high - low) or 1.0
    return ((sample.x0 - low) / span).clip(0, 1), ((sample.x - low) / span).clip(0, 1)


def to_colours(values: Array) -> Array:
    """(c, *size) -> (*size, 3): three channels are red, green, blue; any other number shows their mean in grey."""
    shown = values if len(values) == 3 else values.mean(0, keepdims=True).repeat(3, 0)
    return np.moveaxis(shown, 0, -1)


def channel_note(values: Array) -> str:
    return "" if len(values) in (1, 3) else f" (mean of {len(values)} channels)"


def magnify(change: Array) -> tuple[Array, int]:
    """A signed change (c, *size) as colours about mid-grey, and the factor: the largest round one that fits."""
    shown = to_colours(change)
    peak = float(np.abs(shown).max())
    factor = max((f for f in FACTORS if f * peak <= 1), default=1) if peak else 1
    return (0.5 + 0.5 * factor * shown).clip(0, 1), factor


def show(ax: Axes, colours: Array) -> None:
    """(h, w, 3), without ticks."""
    smooth = min(colours.shape[:2]) >= SMOOTH_FROM
    ax.imshow(colours, interpolation="antialiased" if smooth else "nearest")
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(color="#BBBBBB", linewidth=0.6)


def outline(ax: Axes, sample: Sample, inches: float, frame: int | None = None) -> None:
    """Draws the distorted patches, of one frame where the input has frames; `inches` is how wide the picture is."""
    grid = sample.setting.grid
    points_a_pixel = 72 * inches / grid.size[-1]
    line = min(1.6, 0.12 * points_a_pixel * min(grid.patch[-2:]) + 0.25)
    inset = min(0.5 * line / points_a_pixel, 0.2)  # neighbours' outlines must not cover each other
    for patch, entry in sample.touched:
        *when, rows, columns = grid.box(patch)
        if when and frame not in range(when[0].start, when[0].stop):
            continue
        corner = (columns.start - 0.5 + inset, rows.start - 0.5 + inset)
        sides = (columns.stop - columns.start - 2 * inset, rows.stop - rows.start - 2 * inset)
        face = (hue(entry), 0.22)
        ax.add_patch(
            Rectangle(
                corner,
                *sides,
                facecolor=face,
                edgecolor=hue(entry),
                hatch=hatch(entry),
                linewidth=line,
                gid=f"patch-{patch}",
            )
        )


def pale(colours: Array) -> Array:
    """Greyed and lightened, so that outlines stand out."""
    grey = colours.mean(-1, keepdims=True)
    return (0.35 + 0.65 * (0.25 * colours + 0.75 * grey)).astype(colours.dtype)
