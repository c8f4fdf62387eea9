"""Pictures of a clip as a contact sheet: original, perturbed and patches of some frames, and a timeline."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from rlab.present.colours import to_colours
from rlab.present.style import WIDE, headed_figure, list_below, tidy
from rlab.results.plots.pixels import channel_note, outline, pale, show, to_unit
from rlab.results.plots.sample import Sample, draw_bars

COLUMNS = 8
STRIP, BARS = 2.1, 3.6  # inches


def draw_video(sample: Sample) -> Figure:
    """x: (c, t, h, w)."""
    height, width = sample.x0.shape[-2:]
    shown = pick_frames(sample)
    side = min((WIDE - 0.7) / len(shown), 2.4, 2.0 * width / height)
    tall = side * height / width
    wide = max(side * len(shown) + 0.7, 9.6)
    lines = sample.title(wide, clip_facts(sample)[1:])
    figure, (cells, below) = headed_figure(wide, lines, [3 * (tall + 0.08) + 0.3, STRIP], 0.5)
    filler = max(wide - 0.7 - side * len(shown), 0.01)
    sheet = cells.subgridspec(3, len(shown) + 1, hspace=0.02, wspace=0.02, width_ratios=[side] * len(shown) + [filler])
    x0, x = (to_colours(values) for values in to_unit(sample))
    for row, (name, colours) in enumerate((("original", x0), ("perturbed", x), ("patches", pale(x)))):
        for column, frame in enumerate(shown):
            ax = figure.add_subplot(sheet[row, column])
            show(ax, colours[frame])
            if column == 0:
                ax.set_ylabel(name + (channel_note(sample.x0).replace(" (", "\n(") if row == 0 else ""))
            if row == 0:
                ax.set_title(frame_name(sample, frame), loc="center", fontsize=8.5)
            if row == 2:
                outline(ax, sample, side, frame)
    foot = below.subgridspec(1, 2, width_ratios=[wide - BARS, BARS])
    _draw_timeline(figure.add_subplot(foot[0]), sample, shown, wide - BARS)
    draw_bars(figure.add_subplot(foot[1]), sample)
    list_below(figure, sample.swatches)
    return figure


def pick_frames(sample: Sample) -> list[int]:
    """Up to eight frames, one per part of the clip: the one with the most distorted patches, else the middle."""
    count = touched_by_frame(sample).sum(0)
    stretches = np.array_split(np.arange(len(count)), min(COLUMNS, len(count)))
    return [int(s[len(s) // 2] if (count[s] == count[s].max()).all() else s[count[s].argmax()]) for s in stretches]


def frame_name(sample: Sample, frame: int) -> str:
    return f"{frame / sample.setting.rate:.2f} s" if sample.setting.rate else f"frame {frame + 1}"


def touched_by_frame(sample: Sample) -> NDArray[np.int64]:
    """(f + 1, t): the number of patches by entry and frame."""
    grid = sample.setting.grid
    count = np.zeros((len(sample.setting.palette) + 1, grid.size[0]), dtype=np.int64)
    for patch, entry in sample.touched:
        count[entry, grid.box(patch)[0]] += 1
    return count


def clip_facts(sample: Sample) -> list[str]:
    """L2, MAP (of values in [0, 1]) where values have bounds, Linf, and how many frames are distorted."""
    far = [f"L2 {sample.final['l2']:.3g}"]
    far += [f"MAP {sample.final['map255'] / 255:.3g}"] if sample.setting.bounded else []
    counts = touched_by_frame(sample).sum(0)
    return [*far, f"Linf {sample.final['linf']:.3g}", f"{int((counts > 0).sum())} of {len(counts)} frames"]


def _draw_timeline(ax: Axes, sample: Sample, shown: list[int], inches: float) -> None:
    count = touched_by_frame(sample)
    below = np.zeros(count.shape[1], dtype=np.int64)
    for entry in range(1, len(count)):
        if count[entry].any():
            own = sample.looks[entry]
            look: dict[str, Any] = {"color": own.colour, "hatch": own.hatch, "edgecolor": "white", "linewidth": 0.4}
            ax.bar(np.arange(count.shape[1]), count[entry], 0.92, bottom=below, gid=f"entry-{entry}", **look)
            below = below + count[entry]
    step = max(1, round(0.55 * len(shown) / inches))  # every label needs about half an inch
    labels = [
        frame_name(sample, frame).removeprefix("frame ") if i % step == 0 else "" for i, frame in enumerate(shown)
    ]
    ax.set_xticks(shown, labels)
    ax.set(xlim=(-0.6, count.shape[1] - 0.4), ylim=(0, max(int(below.max()), 1) * 1.08))
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.set_title("distorted patches in each frame")
    ax.set_xlabel("time; ticks are the frames above" if sample.setting.rate else "frame; ticks are the frames above")
    tidy(ax)
