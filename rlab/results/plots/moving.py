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
from PIL import Image, ImageDraw, ImageFont
from PIL.Image import Resampling

from rlab.present.colours import to_colours
from rlab.present.style import BEFORE, INK, WIDE, font_file, hatch, headed_figure, hue, list_below, swatch, tidy
from rlab.results.plots.pixels import SMOOTH_FROM, channel_note, outline, pale, show, to_unit
from rlab.results.plots.sample import Array, Sample, draw_bars

COLUMNS = 8
STRIP, BARS = 2.1, 3.6  # inches
CODEC = "libx264"
SHORTEST, LONGEST = 20, 500  # milliseconds per GIF frame; browsers slow down faster ones
SLOW = 8.0  # frames per second if the clip's rate is unknown
# pixels: the longer side of a picture, the gap, a line of text, the timeline
SIDE, GAP, LINE, FOOT = 256, 8, 19, 34
LETTERS = 12  # font size in pixels
LEAST = 480  # minimum width of a sheet in pixels, for the text
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
    list_below(figure, [swatch(entry, name) for entry, name in sample.used])
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
            look: dict[str, Any] = {"color": hue(entry), "hatch": hatch(entry), "edgecolor": "white", "linewidth": 0.4}
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
    """One picture per frame, all of the same size with even sides, as encoders need."""
    x0, x = (to_colours(values) for values in to_unit(sample))
    counts = touched_by_frame(sample)
    for frame in range(len(x0)):
        yield _sheet(sample, x0[frame], x[frame], frame, counts)


def _sheet(sample: Sample, x0: Array, x: Array, frame: int, counts: NDArray[np.int64]) -> Image.Image:
    pictures = [_enlarged(x0), _outlined(_enlarged(x), sample, frame), _overlay(_enlarged(pale(x)), sample, frame)]
    wide, high = pictures[0].size
    width = max(len(pictures) * wide + (len(pictures) - 1) * GAP, LEAST)
    font = ImageFont.truetype(font_file("normal"), LETTERS)
    lines = _lines(sample.headline() + clip_facts(sample), width - 6, font)
    top = LINE * (len(lines) + 2)
    sheet = Image.new("RGB", (width + width % 2, top + high + FOOT + (top + high + FOOT) % 2), "white")
    pen = ImageDraw.Draw(sheet)
    for number, line in enumerate(lines):
        pen.text((3, LINE * number + LINE // 2), line, INK, font, anchor="lm")
    _legend(pen, sample, LINE * len(lines) + LINE // 2, font)
    for column, (picture, name) in enumerate(zip(pictures, ("original", "perturbed", "where"), strict=True)):
        left = column * (wide + GAP)
        sheet.paste(picture, (left, top))
        pen.text((left + 3, top - LINE // 2), name, "#777777", font, anchor="lm")
    pen.text((width - 3, top - LINE // 2), frame_name(sample, frame), INK, font, anchor="rm")
    _timeline(pen, counts, frame, (0, top + high + 4, width, top + high + FOOT - 2))
    return sheet


def _legend(pen: ImageDraw.ImageDraw, sample: Sample, middle: int, font: ImageFont.FreeTypeFont) -> None:
    """A line of the filters in use with their colours."""
    left = 3
    for entry, name in sample.used or [(0, "nothing distorted")]:
        pen.rectangle((left, middle - 5, left + 9, middle + 4), fill=hue(entry) if entry else "#DDDDDD")
        pen.text((left + 14, middle), name, INK, font, anchor="lm")
        left += 14 + round(font.getlength(name)) + 14


def _lines(facts: list[str], width: int, font: ImageFont.FreeTypeFont) -> list[str]:
    """Facts joined by dots into lines no wider than `width`."""
    lines = [facts[0]]
    for fact in facts[1:]:
        longer = f"{lines[-1]}  ·  {fact}"
        if font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(fact)
    return lines


def _enlarged(colours: Array) -> Image.Image:
    """(h, w, 3) in [0, 1], enlarged by a whole number; very large frames are reduced."""
    picture = Image.fromarray((colours * 255).round().astype(np.uint8))
    longest = max(picture.size)
    times = 2 * SIDE / longest if longest > 2 * SIDE else max(1, round(SIDE / longest))
    way = Resampling.BICUBIC if min(picture.size) >= SMOOTH_FROM else Resampling.NEAREST
    return picture.resize((max(1, round(picture.width * times)), max(1, round(picture.height * times))), way)


def _outlined(picture: Image.Image, sample: Sample, frame: int) -> Image.Image:
    pen, grid = ImageDraw.Draw(picture), sample.setting.grid
    thick = 2 if picture.width / grid.size[-1] * min(grid.patch[1:]) >= 12 else 1
    for corners, entry in _boxes(picture, sample, frame):
        pen.rectangle(corners, outline=hue(entry), width=thick)
    return picture


def _overlay(picture: Image.Image, sample: Sample, frame: int) -> Image.Image:
    """Regions in the colours of their filters over a pale picture."""
    coloured = picture.copy()
    pen = ImageDraw.Draw(coloured)
    for corners, entry in _boxes(picture, sample, frame):
        pen.rectangle(corners, fill=hue(entry))
    return _outlined(Image.blend(picture, coloured, FILL), sample, frame)


def _boxes(picture: Image.Image, sample: Sample, frame: int) -> Iterator[tuple[tuple[int, int, int, int], int]]:
    """(left, upper, right, lower) and entry of every distorted patch in the frame."""
    grid = sample.setting.grid
    times = picture.width / grid.size[-1]
    for patch, entry in sample.touched:
        when, rows, columns = grid.box(patch)
        if frame in range(when.start, when.stop):
            left, upper = round(columns.start * times), round(rows.start * times)
            right, lower = round(columns.stop * times) - 1, round(rows.stop * times) - 1
            yield (left, upper, max(left, right), max(upper, lower)), entry


def _timeline(pen: ImageDraw.ImageDraw, counts: NDArray[np.int64], now: int, box: tuple[int, int, int, int]) -> None:
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
                pen.rectangle((a, round(at - high), max(a, b - 2), round(at)), fill=hue(entry))
                at -= high
        pen.rectangle((a, foot + 1, max(a, b - 2), bottom), fill=BEFORE if frame == now else "#DDDDDD")
