"""A clip before and after, moving side by side, with the distorted patches outlined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.Image import Resampling

from rlab.plots.facts import Array, Sample
from rlab.plots.pixels import SMOOTH_FROM, to_colours, to_unit
from rlab.plots.style import hue
from rlab.plots.video import frame_name

SIDE, GAP, HEAD, FOOT = 256, 8, 22, 6  # pixels
FREE_RATE = 8.0  # frames a second where the clip's own is not known
SHORTEST, LONGEST = 20, 500  # milliseconds; browsers slow down what is faster


def write_gif(sample: Sample, path: Path) -> None:
    """One GIF frame for each frame of the clip."""
    x0, x = (to_colours(values) for values in to_unit(sample))
    frames = [_frame(sample, x0[i], x[i], i) for i in range(len(x0))]
    wait = int(np.clip(1000 / (sample.setting.rate or FREE_RATE), SHORTEST, LONGEST))
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=wait, loop=0, disposal=1)


def _frame(sample: Sample, x0: Array, x: Array, frame: int) -> Image.Image:
    left, right = _enlarged(x0), _enlarged(x)
    _outline(right, sample, frame)
    sheet = Image.new("RGB", (2 * left.width + GAP, HEAD + left.height + FOOT), "white")
    sheet.paste(left, (0, HEAD))
    sheet.paste(right, (left.width + GAP, HEAD))
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    pen.text((3, HEAD // 2), "original", "black", font, anchor="lm")
    pen.text((left.width + GAP + 3, HEAD // 2), "perturbed", "black", font, anchor="lm")
    pen.text((sheet.width - 3, HEAD // 2), frame_name(sample, frame), "black", font, anchor="rm")
    # The bar makes every frame differ from the last: Pillow would merge frames that are alike.
    done = round(sheet.width * (frame + 1) / sample.setting.size[0])
    pen.rectangle((0, sheet.height - FOOT + 2, done - 1, sheet.height - 1), "#0072B2")
    return sheet.quantize(256, dither=Image.Dither.NONE)


def _enlarged(colours: Array) -> Image.Image:
    """(h, w, 3) in [0, 1], at a whole multiple of its size; only very large frames shrink."""
    picture = Image.fromarray((colours * 255).round().astype(np.uint8))
    longest = max(picture.size)
    times = 2 * SIDE / longest if longest > 2 * SIDE else max(1, round(SIDE / longest))
    way = Resampling.BICUBIC if min(picture.size) >= SMOOTH_FROM else Resampling.NEAREST
    return picture.resize((max(1, round(picture.width * times)), max(1, round(picture.height * times))), way)


def _outline(picture: Image.Image, sample: Sample, frame: int) -> None:
    grid, pen = sample.setting.grid, ImageDraw.Draw(picture)
    times = picture.width / grid.size[-1]
    for patch, entry in sample.touched:
        when, rows, columns = grid.box(patch)
        if frame in range(when.start, when.stop):
            left, upper = round(columns.start * times), round(rows.start * times)
            corners = (
                left,
                upper,
                max(left, round(columns.stop * times) - 1),
                max(upper, round(rows.stop * times) - 1),
            )
            pen.rectangle(corners, outline=hue(entry), width=2 if times * min(grid.patch[1:]) >= 12 else 1)
