"""A clip as it moves: original, perturbed and where, side by side, above a timeline of how much of each frame is distorted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from PIL.Image import Resampling

from rlab.present.plots.facts import Array, Sample
from rlab.present.plots.pixels import SMOOTH_FROM, pale, to_colours, to_unit
from rlab.present.plots.style import BEFORE, INK, font_file, hue
from rlab.present.plots.video import clip_facts, frame_name, touched_by_frame

SIDE, GAP, LINE, FOOT = (
    256,
    8,
    19,
    34,
)  # pixels: a picture's longer side, between pictures, a line of text, the timeline
LETTERS = 12  # pixels high
LEAST = 480  # pixels of a sheet's width, for the words
FILL = 0.35  # how strongly a region is coloured


def sheets(sample: Sample) -> Iterator[Image.Image]:
    """One picture a frame, all of one size with even sides, as encoders want them."""
    x0, x = (to_colours(values) for values in to_unit(sample))
    counts = touched_by_frame(sample)
    for frame in range(len(x0)):
        yield _sheet(sample, x0[frame], x[frame], frame, counts)


def free_rate(sample: Sample) -> float:
    """Frames a second; 8 where the clip's own rate is not known."""
    return sample.setting.rate or 8.0


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
    for place, (picture, name) in enumerate(zip(pictures, ("original", "perturbed", "where"), strict=True)):
        left = place * (wide + GAP)
        sheet.paste(picture, (left, top))
        pen.text((left + 3, top - LINE // 2), name, "#777777", font, anchor="lm")
    pen.text((width - 3, top - LINE // 2), frame_name(sample, frame), INK, font, anchor="rm")
    _timeline(pen, counts, frame, (0, top + high + 4, width, top + high + FOOT - 2))
    return sheet


def _legend(pen: ImageDraw.ImageDraw, sample: Sample, middle: int, font: ImageFont.FreeTypeFont) -> None:
    """A line of the filters in use, each behind a square of its colour."""
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
    """(h, w, 3) in [0, 1], at a whole multiple of its size; only very large frames shrink."""
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
    """The regions in their filters' colours over a pale picture."""
    coloured = picture.copy()
    pen = ImageDraw.Draw(coloured)
    for corners, entry in _boxes(picture, sample, frame):
        pen.rectangle(corners, fill=hue(entry))
    return _outlined(Image.blend(picture, coloured, FILL), sample, frame)


def _boxes(picture: Image.Image, sample: Sample, frame: int) -> Iterator[tuple[tuple[int, int, int, int], int]]:
    """(left, upper, right, lower) and entry of every distorted patch of the frame."""
    grid = sample.setting.grid
    times = picture.width / grid.size[-1]
    for patch, entry in sample.touched:
        when, rows, columns = grid.box(patch)
        if frame in range(when.start, when.stop):
            left, upper = round(columns.start * times), round(rows.start * times)
            right, lower = round(columns.stop * times) - 1, round(rows.stop * times) - 1
            yield (left, upper, max(left, right), max(upper, lower)), entry


def _timeline(pen: ImageDraw.ImageDraw, counts: NDArray[np.int64], now: int, box: tuple[int, int, int, int]) -> None:
    """A bar for each frame, as high as many of its patches are distorted; the frame on show is marked below.

    The mark makes every sheet differ from the last: Pillow would merge GIF frames that are alike."""
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
