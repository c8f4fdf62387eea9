"""A picture of an episode: the input before and now."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from rlab.present.colours import scaled, to_colours, value_range
from rlab.present.style import BEFORE, STYLE, new_figure, tidy
from rlab.results.plots.pixels import show

Array = NDArray[np.float32]


def render_episode(x0: Array, x: Array, bounds: tuple[float, float]) -> NDArray[np.uint8]:
    """x0, x (c, *size) -> (height, width, 3); of a clip, the frame that changed most."""
    low, high = value_range(bounds, x0)
    with matplotlib.rc_context(STYLE):
        figure: Any = new_figure(6.4, 3.2)
        frame = int(np.abs(x - x0).sum((0, 2, 3)).argmax()) if x.ndim == 4 else 0
        for ax, values, name in zip(figure.subplots(1, 2), (x0, x), ("before", "now"), strict=True):
            _draw(ax, values if values.ndim < 4 else values[:, frame], low, high)
            ax.set_title(name)
        figure.canvas.draw()
        return np.array(figure.canvas.buffer_rgba())[..., :3]


def _draw(ax: Axes, values: Array, low: float, high: float) -> None:
    """Draw a signal as lines, anything else as colours."""
    if values.ndim > 2:
        show(ax, scaled(to_colours(values), (low, high)))
        return
    ax.plot(values.T, color=BEFORE, linewidth=0.8)
    ax.set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low) + 1e-6)
    tidy(ax)
