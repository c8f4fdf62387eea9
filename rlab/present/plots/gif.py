"""A clip before, after and where, moving, as a GIF: what is written where no H.264 encoder is at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from rlab.present.plots.clip import free_rate, sheets
from rlab.present.plots.facts import Sample

SHORTEST, LONGEST = 20, 500  # milliseconds; browsers slow down what is faster


def write_gif(sample: Sample, path: Path) -> None:
    """One GIF frame for each frame of the clip."""
    coming = (sheet.quantize(256, dither=Image.Dither.NONE) for sheet in sheets(sample))
    wait = int(np.clip(1000 / free_rate(sample), SHORTEST, LONGEST))
    next(coming).save(path, save_all=True, append_images=coming, duration=wait, loop=0, disposal=1)
