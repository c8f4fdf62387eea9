"""Clips on disk, decoded when they are asked for: names and labels are known at once, frames come a few clips at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from rlab.data.arrays import Bounds, to_float
from rlab.data.batch import Batch
from rlab.data.decode import BadClip, Pixels, Sampling, read_clip
from rlab.data.files import files_below, labels_of
from rlab.data.images import Size, same_size, sides
from rlab.data.labels import Classes
from rlab.data.splits import keep_groups, read_split
from rlab.data.take import Take, check_room
from rlab.errors import InputError

VIDEOS = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg")


@dataclass(frozen=True)
class ClipSource:
    """Which clips there are. Nothing is decoded before `load`, `batches` or `pixels`."""

    folder: Path
    ids: tuple[str, ...]  # paths below the folder
    y: Tensor  # (n,)
    classes: tuple[str, ...]
    missing: tuple[tuple[str, str], ...] = ()  # (clip, why) of what a list names and the folder lacks

    @classmethod
    def of(
        cls,
        path: str | Path,
        *,
        labels: str | None = None,
        label_column: str | None = None,
        classes: Classes = None,
        split: str | None = None,
        fold: int = 1,
        splits: str | None = None,
        groups: int | str | None = None,
        take: Take | None = None,
    ) -> ClipSource:
        """`split` with its `fold` reads the UCF-101 or HMDB-51 lists in the folder `splits`, looked for in and beside
        `path` where not said; `groups` such as '4-7' or '4,6,8-25' keeps the clips of these groups of UCF-101."""
        folder = Path(path)
        found = files_below(folder, VIDEOS, "clips")
        missing: list[tuple[str, str]] = []
        if split is not None:
            chosen = read_split(folder, split, fold, splits)
            found, missing = chosen.keep(found)
            classes = classes if classes is not None else chosen.classes or None
        y, names = labels_of(folder, found, labels, label_column, classes)
        kept = range(len(found)) if groups is None else keep_groups(folder, found, str(groups), labels)
        rows = [kept[i] for i in (take or Take()).order(len(kept))]
        return cls(folder, tuple(found[i] for i in rows), y[rows], names, tuple(missing))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: slice) -> ClipSource:
        """Some of the clips; still nothing is decoded."""
        return replace(self, ids=self.ids[rows], y=self.y[rows], missing=())

    def pixels(
        self, frames: int, size: Size | None = None, sampling: Sampling = "uniform"
    ) -> Iterator[tuple[int, Pixels | str]]:
        """Each clip in turn: its row, and (3, frames, h, w) or why there is none."""
        sides(size)
        if frames < 1 or sampling not in get_args(Sampling):
            raise InputError(
                f"expected frames of at least 1 and sampling uniform or dense, got {frames} and {sampling!r}"
            )
        for row, name in enumerate(self.ids):
            try:
                yield row, read_clip(self.folder / name, frames, size, sampling)
            except BadClip as error:
                yield row, str(error)

    def load(
        self,
        frames: int = 16,
        size: Size | None = None,
        sampling: Sampling = "uniform",
        bounds: Bounds = (0.0, 1.0),
    ) -> Batch:
        """All clips as one batch (b, 3, frames, h, w); bad ones are left out and named."""
        batch, left_out = self._decoded(frames, size, sampling, bounds)
        if batch is None:
            raise InputError(f"none of {len(self)} clips can be decoded, first {left_out[0][0]!r} ({left_out[0][1]})")
        return replace(batch, left_out=(*self.missing, *left_out))

    def batches(
        self,
        chunk: int,
        frames: int = 16,
        size: Size | None = None,
        sampling: Sampling = "uniform",
        bounds: Bounds = (0.0, 1.0),
    ) -> Iterator[Batch]:
        """A few clips at a time, for folders that do not fit into memory; bad clips are named in their batch's `left_out`."""
        if chunk < 1:
            raise InputError(f"expected a chunk of at least 1 clip, got {chunk}")
        carried: tuple[tuple[str, str], ...] = self.missing
        for at in range(0, len(self), chunk):
            batch, left_out = self[at : at + chunk]._decoded(frames, size, sampling, bounds)
            carried = (*carried, *left_out)
            if batch is not None:
                yield replace(batch, left_out=carried)
                carried = ()

    def _decoded(
        self, frames: int, size: Size | None, sampling: Sampling, bounds: Bounds
    ) -> tuple[Batch | None, list[tuple[str, str]]]:
        """The clips that can be decoded, if any, and (id, why) of the rest."""
        x: Tensor | None = None
        kept: list[int] = []
        left_out: list[tuple[str, str]] = []
        for row, clip in self.pixels(frames, size, sampling):
            if isinstance(clip, str):
                left_out.append((self.ids[row], clip))
                continue
            one = to_float(clip, bounds)
            if x is None:
                check_room(len(self), one.shape)
                x = torch.empty(len(self), *one.shape)
            x[len(kept)] = same_size(one, x, self.ids[row])
            kept.append(row)
        if x is None:
            return None, left_out
        ids = tuple(self.ids[i] for i in kept)
        return Batch(x[: len(kept)], self.y[kept], ids, bounds=bounds, classes=self.classes), left_out
