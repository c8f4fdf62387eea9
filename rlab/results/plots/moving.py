"""Pictures of a clip: original, perturbed, patches and a timeline, as a contact sheet and as a film.

The film is an H.264 mp4, or a GIF without an encoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw

from rlab.present.colours import to_colours
from rlab.present.inline import to_image
from rlab.present.style import BEFORE, WIDE, headed_figure, list_below, tidy
from rlab.results.plots.pixels import channel_note, outline, pale, show, to_unit
from rlab.results.plots.sample import Sample, draw_bars

COLUMNS = 8
STRIP, BARS = 2.1, 3.6  # inches
CODEC = "libx264"
SHORTEST, LONGEST = 20, 500  # milliseconds per GIF frame; browsers slow down faster ones
SLOW = 8.0  # frames per second if the clip's rate is unknown
SIDE, GAP, FOOT = 256, 8, 34  # pixels of a film: the longer side of a picture, the gap, the timeline
FILL = 0.35  # opacity of a region


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


def can_encode() -> bool:
    """Whether PyAV is installed with an H.264 encoder."""
    try:
        import av
    except ImportError:
        return False
    return CODEC in av.codecs_available


def write_mp4(sample: Sample, path: Path) -> None:
    """Write the film; frames are drawn one at a time while encoding."""
    encode((np.asarray(sheet) for sheet in sheets(sample)), sample.setting.rate or SLOW, path, crf=14, preset="fast")


def encode(frames: Iterable[NDArray[np.uint8]], rate: float, path: Path, crf: int, preset: str) -> None:
    """Write frames (h, w, 3), of equal and even sides, as H.264 that browsers play; a lower `crf` is better quality."""
    import av

    coming = iter(frames)
    first = next(coming)
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        rational = Fraction(rate).limit_denominator(1001)
        stream: Any = container.add_stream(CODEC, rate=rational, options={"crf": str(crf), "preset": preset})
        stream.pix_fmt, stream.height, stream.width = "yuv420p", *first.shape[:2]
        for frame in chain([first], coming):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        container.mux(stream.encode())


def write_gif(sample: Sample, path: Path) -> None:
    coming = (sheet.quantize(256, dither=Image.Dither.NONE) for sheet in sheets(sample))
    wait = int(np.clip(1000 / (sample.setting.rate or SLOW), SHORTEST, LONGEST))
    next(coming).save(path, save_all=True, append_images=coming, duration=wait, loop=0, disposal=1)


def sheets(sample: Sample) -> Iterator[Image.Image]:
    """One picture per frame, all of the same size with even sides, as encoders need: the original, the perturbed frame with its
    patches outlined, and the patches in the colours of their filters, above a timeline."""
    x0, x = (to_colours(values) for values in to_unit(sample))
    counts = touched_by_frame(sample)
    for frame in range(len(x0)):
        colours = (x0[frame], x[frame], pale(x[frame]))
        original, *marked = (to_image(each, SIDE, 2 * SIDE) for each in colours)
        for picture, fill in zip(marked, (0.0, FILL), strict=True):
            _mark_patches(picture, sample, frame, fill)
        (wide, high), count = original.size, len(colours)
        width = count * wide + (count - 1) * GAP
        sheet = Image.new("RGB", (width + width % 2, high + FOOT + (high + FOOT) % 2), "white")
        for column, picture in enumerate((original, *marked)):
            sheet.paste(picture, (column * (wide + GAP), 0))
        _timeline(ImageDraw.Draw(sheet), sample, counts, frame, (0, high + 4, width, high + FOOT - 2))
        yield sheet


def _mark_patches(picture: Image.Image, sample: Sample, frame: int, fill: float) -> None:
    """Outline the distorted patches of a frame and fill them with this opacity."""
    grid, pen = sample.setting.grid, ImageDraw.Draw(picture, "RGBA")
    times = picture.width / grid.size[-1]
    thick = 2 if times * min(grid.patch[1:]) >= 12 else 1
    for patch, entry in sample.touched:
        when, rows, columns = grid.box(patch)
        if when.start <= frame < when.stop:
            left, upper = round(columns.start * times), round(rows.start * times)
            right, lower = round(columns.stop * times) - 1, round(rows.stop * times) - 1
            colour, strength = ImageColor.getrgb(sample.looks[entry].colour), sample.strengths[patch]
            inside, line = ((*colour, round(255 * strength * much)) for much in (fill, 1.0))
            box = (left, upper, max(left, right), max(upper, lower))
            pen.rectangle(box, fill=inside, outline=line, width=thick)


def _timeline(
    pen: ImageDraw.ImageDraw, sample: Sample, counts: NDArray[np.int64], now: int, box: tuple[int, int, int, int]
) -> None:
    """A bar of distorted patches per frame, with a mark below the current frame.

    The mark makes all sheets differ: Pillow would merge equal GIF frames."""
    left, top, right, bottom = box
    frames, most = counts.shape[1], max(int(counts.sum(0).max()), 1)
    foot = bottom - 6
    for frame in range(frames):
        a, b = (left + round((right - left) * at / frames) for at in (frame, frame + 1))
        at = float(foot)
        for entry in range(1, len(counts)):
            if counts[entry, frame]:
                high = (foot - top) * counts[entry, frame] / most
                pen.rectangle((a, round(at - high), max(a, b - 2), round(at)), fill=sample.looks[entry].colour)
                at -= high
        pen.rectangle((a, foot + 1, max(a, b - 2), bottom), fill=BEFORE if frame == now else "#DDDDDD")
