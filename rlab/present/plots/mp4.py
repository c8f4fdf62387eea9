"""A clip before, after and where, moving, as H.264 in an mp4 that browsers play."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rlab.present.plots.clip import free_rate, sheets
from rlab.present.plots.facts import Sample

CODEC = "libx264"


def can_encode() -> bool:
    """Whether PyAV is installed with an H.264 encoder."""
    try:
        import av
    except ImportError:
        return False
    return CODEC in av.codecs_available


def write_mp4(sample: Sample, path: Path) -> None:
    """One frame of video for each frame of the clip; frames are drawn as they are encoded, one at a time."""
    import av

    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        rate = Fraction(free_rate(sample)).limit_denominator(1001)
        stream: Any = container.add_stream(CODEC, rate=rate, options={"crf": "14", "preset": "fast"})
        stream.pix_fmt = "yuv420p"
        coming = sheets(sample)
        first = next(coming)
        stream.width, stream.height = first.size
        for sheet in chain([first], coming):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(sheet), format="rgb24")))
        container.mux(stream.encode())
