"""Folders of clips: one folder a class, or flat with a table of labels; the UCF-101 and HMDB-51 splits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.arrays import Bounds, to_float
from rlab.data.batch import Batch
from rlab.data.files import files_below, labels_of
from rlab.data.images import Size, fit, same_size, sides, to_pixels
from rlab.data.labels import Classes
from rlab.data.splits import read_split
from rlab.data.take import Take, check_room
from rlab.errors import InputError, MissingExtra

VIDEOS = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg")
Sampling = Literal["uniform", "dense"]


class BadClip(Exception):
    """A clip that cannot be decoded; it is left out and counted."""


def video_folder(
    path: str | Path,
    *,
    labels: str | None = None,
    label_column: str | None = None,
    classes: Classes = None,
    size: Size | None = None,
    frames: int = 16,
    sampling: Sampling = "uniform",
    split: str | None = None,
    fold: int = 1,
    splits: str | None = None,
    bounds: Bounds = (0.0, 1.0),
    take: Take | None = None,
) -> Batch:
    """Clips (b, 3, frames, h, w). `split` train or test with its `fold` reads the UCF-101 or HMDB-51 lists in the
    folder `splits`, looked for in and beside `path` where not said. A clip that cannot be decoded is left out and
    counted; one shorter than `frames` repeats some of its frames (see `frame_indices`)."""
    folder = Path(path)
    found = files_below(folder, VIDEOS, "clips")
    missing: list[tuple[str, str]] = []
    if split is not None:
        chosen = read_split(folder, split, fold, splits)
        found, missing = chosen.keep(found)
        classes = classes if classes is not None else chosen.classes or None
    y, names = labels_of(folder, found, labels, label_column, classes)
    rows = (take or Take()).order(len(found))
    x, kept, broken = _read(folder, [found[i] for i in rows], frames, size, sampling, bounds)
    return Batch(
        x=x,
        y=y[[rows[i] for i in kept]],
        ids=tuple(found[rows[i]] for i in kept),
        bounds=bounds,
        classes=names,
        left_out=(*missing, *broken),
    )


def frame_indices(count: int, frames: int, sampling: Sampling) -> NDArray[np.int64]:
    """Which of `count` frames make the clip, in order.

    uniform: the middles of `frames` equal stretches, so a shorter clip repeats frames evenly. dense: consecutive frames
    from the middle, so a shorter clip repeats its last frame.
    """
    steps = np.arange(frames)
    if sampling == "uniform":
        return (2 * steps + 1) * count // (2 * frames)
    return np.minimum(max(0, (count - frames) // 2) + steps, count - 1)


def read_clip(path: Path, frames: int, size: Size | None = None, sampling: Sampling = "uniform") -> NDArray[np.uint8]:
    """One file -> (3, frames, h, w) uint8. Frames are decoded in turn; only the chosen ones are kept, scaled."""
    wanted = frame_indices(_count(path), frames, sampling)
    pictures, seen = _decode(path, wanted, size)
    if not seen:
        raise BadClip("holds no frames")
    if int(wanted[-1]) not in pictures:  # the container promised more frames than it holds
        wanted = frame_indices(seen, frames, sampling)
        pictures, _ = _decode(path, wanted, size)
    return np.stack([pictures[int(i)] for i in wanted], axis=1)


def _read(
    folder: Path, ids: list[str], frames: int, size: Size | None, sampling: Sampling, bounds: Bounds
) -> tuple[Tensor, list[int], list[tuple[str, str]]]:
    """Clips (b, 3, t, h, w), which of `ids` they are, and (id, why) of the rest."""
    sides(size)
    if frames < 1 or sampling not in ("uniform", "dense"):
        raise InputError(f"expected frames of at least 1 and sampling uniform or dense, got {frames} and {sampling!r}")
    x: Tensor | None = None
    kept: list[int] = []
    left_out: list[tuple[str, str]] = []
    for row, name in enumerate(ids):
        try:
            one = to_float(read_clip(folder / name, frames, size, sampling), bounds)
        except BadClip as error:
            left_out.append((name, str(error)))
            continue
        if x is None:
            check_room(len(ids), one.shape)
            x = torch.empty(len(ids), *one.shape)
        x[len(kept)] = same_size(one, x, name)
        kept.append(row)
    if x is None:
        raise InputError(f"none of {len(ids)} clips can be decoded, first {left_out[0][0]!r} ({left_out[0][1]})")
    return x[: len(kept)], kept, left_out


def _count(path: Path) -> int:
    """Frames as the container tells, by its packets where it does not tell."""
    with _opened(path) as container:
        stream = container.streams.video[0]
        return int(stream.frames) or max(1, sum(packet.size > 0 for packet in container.demux(stream)))


def _decode(path: Path, wanted: NDArray[np.int64], size: Size | None) -> tuple[dict[int, NDArray[np.uint8]], int]:
    """The wanted frames (3, h, w) by index, and how many were decoded: up to the last wanted, or all there are."""
    keep, last = set(wanted.tolist()), int(wanted[-1])
    pictures: dict[int, NDArray[np.uint8]] = {}
    seen = 0
    with _opened(path) as container:
        for frame in container.decode(video=0):
            if seen in keep:
                pictures[seen] = to_pixels(fit(frame.to_image(), size))
            seen += 1
            if seen > last:
                break
    return pictures, seen


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An open container; what is wrong with it comes out as `BadClip`."""
    try:
        import av
    except ImportError as error:
        raise MissingExtra("av", "video") from error
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise BadClip("holds no video stream")
            yield container
    except (av.error.FFmpegError, OSError) as error:
        raise BadClip(f"cannot be decoded: {error}") from error
