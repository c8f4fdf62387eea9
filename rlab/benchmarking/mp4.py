"""Encode clips as mp4."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

import numpy as np

from rlab.errors import MissingExtra


def encode(frames: np.ndarray[Any, np.dtype[np.uint8]], rate: float, lossless: bool = True) -> bytes:
    """(t, h, w, 3) -> H.264: lossless RGB, or the lossy kind that every player and browser shows."""
    try:
        import av
    except ImportError as error:
        raise MissingExtra("av", "video") from error
    out, preset = io.BytesIO(), {"preset": "ultrafast", "threads": "1"}
    codec, pixels, options = ("libx264rgb", "rgb24", {"qp": "0"}) if lossless else ("libx264", "yuv420p", {"crf": "18"})
    if not lossless:  # colours are stored for blocks of 2 x 2 pixels
        frames = np.pad(frames, ((0, 0), (0, frames.shape[1] % 2), (0, frames.shape[2] % 2), (0, 0)), mode="edge")
    with av.open(out, "w", format="mp4") as container:
        speed = Fraction(rate).limit_denominator(1000)
        stream: Any = container.add_stream(codec, rate=speed, options=options | preset)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixels
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return out.getvalue()
