"""Decode a few frames of a video file, upright and in colour, keeping only these frames in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rlab.data.fields import Resizing, Size, check_room
from rlab.data.fitting import fit, sides
from rlab.data.images import to_pixels
from rlab.data.source import Pixels, Unreadable
from rlab.errors import InputError, MissingExtra, optional

Indices = NDArray[np.int64]
Sampling = Literal["uniform", "dense"]
UNEVEN = 1.5  # the frame rate counts as variable if a gap exceeds the median gap by this factor
MOST_PIXELS = 2**26  # per frame


def frame_indices(count: int, frames: int, sampling: Sampling) -> Indices:
    """Choose `frames` of `count` frames, in order.

    uniform: the centres of `frames` equal intervals; a shorter clip repeats frames evenly. dense: consecutive frames
    from the middle; a shorter clip repeats its last frame.
    """
    steps = np.arange(frames)
    if sampling == "uniform":
        return (2 * steps + 1) * count // (2 * frames)
    return np.minimum(max(0, (count - frames) // 2) + steps, count - 1)


def pick(times: Indices, frames: int, sampling: Sampling) -> Indices:
    """Like `frame_indices`, but for a variable frame rate uniform means uniform in time."""
    gaps = np.diff(times)
    if sampling == "dense" or not len(gaps) or gaps.max() <= UNEVEN * np.median(gaps):
        return frame_indices(len(times), frames, sampling)
    length = int(times[-1] - times[0] + np.median(gaps))
    instants = times[0] + frame_indices(length, frames, "uniform")
    return np.searchsorted(times, instants, side="right") - 1


def read_clip(
    path: Path, frames: int, size: Size | None = None, sampling: Sampling = "uniform", resizing: Resizing = "crop"
) -> Pixels:
    """Decode one file into (3, frames, h, w) uint8."""
    times, declared = _timeline(path)
    if declared[0] * declared[1] > MOST_PIXELS:  # a small file can declare frames that exceed the memory
        raise Unreadable(f"has frames of {declared[0]} × {declared[1]} pixels, more than the limit of {MOST_PIXELS:,}")
    check_room(1, (3, frames, *(declared if size is None else sides(size))))
    wanted = pick(times, frames, sampling)
    pictures, seen = _in_turn(path, wanted, size, resizing)
    if not seen:
        raise Unreadable("holds no frames")
    if not set(wanted.tolist()) <= set(pictures):  # the container declares more frames than it holds
        wanted = frame_indices(seen, frames, sampling)
        pictures, _ = _in_turn(path, wanted, size, resizing)
    if len({picture.shape for picture in pictures.values()}) > 1:
        raise Unreadable("its frames change size: pass a size")
    return np.stack([pictures[int(i)] for i in wanted], axis=1)


def _timeline(path: Path) -> tuple[Indices, tuple[int, int]]:
    """The time of each frame in ticks of the container, or else its number, and height and width, without decoding."""
    with opened(path) as container:
        stream = container.streams.video[0]
        size = (stream.codec_context.height, stream.codec_context.width)
        times = [packet.pts for packet in container.demux(stream) if packet.size and not packet.is_discard]
    if not times:
        raise Unreadable("holds no frames")
    if None in times or len(set(times)) < len(times):
        return np.arange(len(times)), size
    return np.sort(np.array(times, dtype=np.int64)), size


def _in_turn(path: Path, wanted: Indices, size: Size | None, resizing: Resizing) -> tuple[dict[int, Pixels], int]:
    """The wanted frames (3, h, w) by index, and the number of frames decoded to reach the last of them."""
    keep, last = set(wanted.tolist()), int(wanted[-1])
    pictures: dict[int, Pixels] = {}
    seen = 0
    with opened(path) as container:
        for frame in container.decode(video=0):
            if seen in keep:
                pictures[seen] = upright(frame, size, resizing)
            seen += 1
            if seen > last:
                break
    return pictures, seen


def upright(frame: Any, size: Size | None, resizing: Resizing) -> Pixels:
    """A PyAV frame as (3, h, w), rotated as its metadata demand; grey frames have three equal channels."""
    image = frame.to_image()
    turned = image.rotate(frame.rotation, expand=True) if frame.rotation % 360 else image
    return to_pixels(fit(turned, size, resizing))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a container and turn its errors into `Unreadable`."""
    av = optional("av", MissingExtra("av", "video"))
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise Unreadable("holds no video stream")
            yield container
    except (Unreadable, InputError):
        raise
    except Exception as error:  # FFmpeg and PyAV raise many kinds of errors on damaged files
        reason = getattr(error, "strerror", None) or error  # without the path, so that equal reasons count together
        raise Unreadable(f"cannot be decoded: {reason}") from error
