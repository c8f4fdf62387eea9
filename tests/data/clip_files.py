"""Video files for the tests of loaders."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write(
    path: Path,
    levels: Sequence[int],
    times: list[int] | None = None,
    *,
    size: tuple[int, int] = (32, 48),
    format: str = "yuv420p",
    codec: str = "libx264",
    key_every: int = 250,
    ticks: int = 100,
) -> Path:
    """Frames of even grey, shown at `times` in `ticks` of a second, by default 25 a second."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        options = {"g": str(key_every), "sc_threshold": "0"} if codec == "libx264" else {}
        stream: Any = container.add_stream(codec, rate=25, options=options)
        stream.height, stream.width = size
        stream.pix_fmt = format
        stream.codec_context.time_base = Fraction(1, ticks)
        for at, level in enumerate(levels):
            frame = av.VideoFrame.from_ndarray(np.full((*size, 3), level, np.uint8), format="rgb24")
            frame.pts, frame.time_base = (ticks // 25 * at if times is None else times[at]), Fraction(1, ticks)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def encode(frames: NDArray[np.uint8], rate: int, path: Path, crf: int, preset: str) -> None:
    """Write frames (t, h, w, 3) of even sides as H.264; a lower `crf` is better quality."""
    import av

    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=rate, options={"crf": str(crf), "preset": preset})
        stream.pix_fmt, stream.height, stream.width = "yuv420p", *frames.shape[1:3]
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def write_counted(path: Path, frames: int = 20, height: int = 32) -> Path:
    """A clip whose frame i has the grey level 10 * i, so that the grey level gives the index."""
    codec = "mpeg4" if path.suffix == ".avi" else "libx264"
    return write(path, range(0, 10 * frames, 10), size=(height, 48), codec=codec, ticks=25)
