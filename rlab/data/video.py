"""Folders of clips: one folder a class, or flat with a table of labels; the UCF-101 and HMDB-51 splits."""

from __future__ import annotations

from pathlib import Path

from rlab.data.arrays import Bounds
from rlab.data.batch import Batch
from rlab.data.clips import VIDEOS, ClipSource
from rlab.data.decode import Sampling, frame_indices, read_clip
from rlab.data.images import Size
from rlab.data.labels import Classes
from rlab.data.take import Take

__all__ = ["VIDEOS", "ClipSource", "Sampling", "frame_indices", "read_clip", "video_folder"]


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
    groups: int | str | None = None,
    bounds: Bounds = (0.0, 1.0),
    take: Take | None = None,
) -> Batch:
    """Clips (b, 3, frames, h, w); which ones is told as to `ClipSource.of`. A clip that cannot be decoded is left out
    and counted; one shorter than `frames` repeats some of its frames (see `frame_indices`)."""
    source = ClipSource.of(
        path,
        labels=labels,
        label_column=label_column,
        classes=classes,
        split=split,
        fold=fold,
        splits=splits,
        groups=groups,
        take=take,
    )
    return source.load(frames, size, sampling, bounds)
