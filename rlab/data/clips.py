"""Clips on disk, decoded when they are asked for, a few at a time; the splits and groups of UCF-101 and HMDB-51."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import get_args

import torch
from torch import Tensor

from rlab.data.arrays import to_float
from rlab.data.batch import Batch
from rlab.data.decode import BadClip, Pixels, read_clip
from rlab.data.fields import UNIT, DataFields, Sampling, Size, check_room, reads
from rlab.data.images import same_size, sides
from rlab.data.labels import files_below, labels_of, look_up, read_cells, read_table
from rlab.data.source import Decoded, Source, decode
from rlab.errors import InputError
from rlab.storage.config import Bounds
from rlab.storage.outside import read_text

VIDEOS = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg")
FOLDERS = ("ucfTrainTestlist", "testTrainMulti_7030_splits")
HMDB_CODES = {"1": "train", "2": "test"}  # 0 is a clip that the fold does not use


@dataclass(frozen=True)
class Split:
    """The clips of a split as 'class/name' without endings, and the class names in order where a list gives it."""

    name: str
    clips: tuple[str, ...]
    classes: tuple[str, ...] = ()

    def keep(self, names: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """The files of the split in the order of `names`, and (clip, why) of the clips that have no file."""
        wanted = set(self.clips)
        kept = [name for name in names if _stem(name) in wanted]
        if not kept:
            raise InputError(f"none of the {len(wanted)} clips of split {self.name} are in the folder: check its lists")
        missing = sorted(wanted - {_stem(name) for name in kept})
        return kept, [(clip, "is listed but there is no file") for clip in missing]


def read_split(folder: Path, split: str, fold: int = 1, splits: str | None = None) -> Split:
    """The lists in `splits`, else in the clips' folder, in its sub-folders or beside it."""
    if split not in ("train", "test"):
        raise InputError(f"expected split train or test, got {split!r}")
    usual = [folder, *(top / name for top in (folder, folder.parent) for name in FOLDERS)]
    folders = [Path(splits)] if splits else usual
    for lists in folders:
        ucf, hmdb = lists / f"{split}list{fold:02d}.txt", sorted(lists.glob(f"*_test_split{fold}.txt"))
        if ucf.is_file():
            return Split(f"{split} {fold}", _ucf(ucf), _class_order(lists / "classInd.txt"))
        if hmdb:
            return Split(f"{split} {fold}", tuple(clip for file in hmdb for clip in _hmdb(file, split, fold)))
    expected = f"{split}list{fold:02d}.txt or CLASS_test_split{fold}.txt in {str(folders[0])!r}"
    raise InputError(f"found no lists of split {split} {fold}: expected {expected}, or pass splits, their folder")


def _stem(name: str) -> str:
    """'class/clip.avi' -> 'class/clip'; endings differ where clips were encoded anew."""
    path = PurePosixPath(name)
    return f"{path.parent.name}/{path.stem}"


def _ucf(path: Path) -> tuple[str, ...]:
    """Lines 'class/clip.avi', with a class number behind in the train lists."""
    return tuple(_stem(line.split()[0]) for line in read_text(path).splitlines() if line.strip())


def _class_order(path: Path) -> tuple[str, ...]:
    """Lines '1 ApplyEyeMakeup', counted from 1."""
    if not path.is_file():
        return ()
    pairs = [line.split(maxsplit=1) for line in read_text(path).splitlines() if line.strip()]
    try:
        return tuple(name.strip() for _, name in sorted((int(number), name) for number, name in pairs))
    except ValueError:
        raise InputError(f"expected lines like '1 ApplyEyeMakeup' in {str(path)!r}: mend the file") from None


def _hmdb(path: Path, split: str, fold: int) -> list[str]:
    """Lines 'clip.avi 1' of one class: 1 trains, 2 tests, 0 is left aside."""
    label = path.name.removesuffix(f"_test_split{fold}.txt")
    pairs = [line.rsplit(maxsplit=1) for line in read_text(path).splitlines() if line.strip()]
    return [f"{label}/{PurePosixPath(pair[0]).stem}" for pair in pairs if HMDB_CODES.get(pair[-1]) == split]


def keep_groups(source: DataFields, names: Sequence[str]) -> list[int]:
    """Rows of the clips in `groups`, by the table's column group, else by their names as v_Surfing_g07_c02 has them."""
    wanted = parse_groups(str(source.groups))
    kept = [row for row, group in enumerate(_groups(source, names)) if group in wanted]
    if not kept:
        raise InputError(f"none of {len(names)} clips is in the groups {source.groups}: check them")
    return kept


def parse_groups(text: str) -> frozenset[int]:
    """'4-7' or '4,6,8-25'."""
    parts = [re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part.strip()) for part in text.split(",")]
    pairs = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    if len(pairs) < len(parts) or any(first > last for first, last in pairs):
        raise InputError(f"expected groups like 4-7 or 4,6,8-25, got {text!r}")
    return frozenset(group for first, last in pairs for group in range(first, last + 1))


def _groups(source: DataFields, names: Sequence[str]) -> list[int]:
    table = Path(source.labels) if source.labels is not None else source.location / "labels.csv"
    if table.is_file() and "group" in (cell.lower() for cell in read_cells(table)[0]):
        groups = look_up(read_table(table, "group"), names, table.name)
    else:
        groups = [match[1] if (match := re.search(r"_g(\d+)_c\d+", name)) else "" for name in names]
    unknown = [name for name, group in zip(names, groups, strict=True) if not re.fullmatch("[0-9]{1,6}", group)]
    if unknown:
        expected = "names like v_Surfing_g07_c02 or a column group of whole numbers in the table of labels"
        raise InputError(f"{len(unknown)} clips have no group, first {unknown[0]!r}: expected {expected}")
    return [int(group) for group in groups]


@dataclass(frozen=True)
class ClipSource:
    """Which clips there are. Nothing is decoded before `load`, `batches` or `pixels`."""

    folder: Path
    ids: tuple[str, ...]  # paths below the folder
    y: Tensor  # (n,)
    classes: tuple[str, ...]
    missing: tuple[tuple[str, str], ...] = ()  # (clip, why) of what a list names and the folder lacks

    @classmethod
    def of(cls, source: DataFields) -> ClipSource:
        """`split` with its `fold` reads the UCF-101 or HMDB-51 lists in the folder `splits`, looked for in and beside
        the path where not said; `groups` such as '4-7' or '4,6,8-25' keeps the clips of these groups of UCF-101."""
        names = files_below(source.location, VIDEOS, "clips")
        missing: list[tuple[str, str]] = []
        if source.split is not None:
            chosen = read_split(source.location, source.split, source.fold or 1, source.splits)
            names, missing = chosen.keep(names)
            source = source.model_copy(update={"classes": source.classes or chosen.classes or None})
        y, classes = labels_of(source, names)
        kept = range(len(names)) if source.groups is None else keep_groups(source, names)
        rows = [kept[i] for i in source.take.order(len(kept))]
        return cls(source.location, tuple(names[i] for i in rows), y[rows], classes, tuple(missing))

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
            raise InputError(f"expected at least 1 frame and sampling uniform or dense, got {frames} and {sampling!r}")
        for row, name in enumerate(self.ids):
            try:
                yield row, read_clip(self.folder / name, frames, size, sampling)
            except BadClip as error:
                yield row, str(error)

    def load(
        self, frames: int = 16, size: Size | None = None, sampling: Sampling = "uniform", bounds: Bounds = UNIT
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
        bounds: Bounds = UNIT,
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
            values = to_float(clip, bounds)
            if x is None:
                check_room(len(self), values.shape)
                x = torch.empty(len(self), *values.shape)
            x[len(kept)] = same_size(values, x, self.ids[row])
            kept.append(row)
        if x is None:
            return None, left_out
        ids = tuple(self.ids[i] for i in kept)
        return Batch(x[: len(kept)], self.y[kept], ids, bounds=bounds, classes=self.classes), left_out


def clip_source(source: DataFields) -> Source:
    """The clips of `video_folder`, each decoded when it is asked for."""
    clips, bounds, frames, size = ClipSource.of(source), source.bounds or UNIT, source.frames or 16, source.size

    def one(name: str) -> Tensor | str:
        try:
            return to_float(read_clip(clips.folder / name, frames, size, source.sampling or "uniform"), bounds)
        except BadClip as error:
            return str(error)

    def read(rows: Sequence[int]) -> Decoded:
        names = [clips.ids[i] for i in rows]
        return decode(one, names, names)

    shape: tuple[int, ...] = (3, frames, *sides(size))
    if size is None:
        first = next((clip for clip in map(one, clips.ids) if not isinstance(clip, str)), None)
        if first is None:
            raise InputError(f"none of {len(clips)} clips can be decoded, first {clips.ids[0]!r}")
        shape = tuple(first.shape)
    files = tuple(clips.folder / name for name in clips.ids)
    return Source(read, shape, clips.y, clips.ids, files, True, bounds, clips.classes, left_out=clips.missing)


@reads(
    *("labels", "label_column", "classes", "size", "frames", "sampling", "split", "fold", "splits", "groups", "bounds")
)
def video_folder(source: DataFields) -> Batch:
    """Clips (b, 3, frames, h, w) of one folder a class, or flat with a table of labels. A clip that cannot be decoded is
    left out and counted; one shorter than `frames` repeats some of its frames (see `frame_indices`)."""
    clips = ClipSource.of(source)
    return clips.load(source.frames or 16, source.size, source.sampling or "uniform", source.bounds or UNIT)
