"""Video clips on disk, decoded on demand, with the splits and groups of UCF-101 and HMDB-51."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from pydantic import Field, PositiveInt

from rlab.data.decode import Sampling, read_clip
from rlab.data.eight_bit import finite
from rlab.data.fields import UNIT, Frames, Labelled, Sized, Split
from rlab.data.fitting import sides
from rlab.data.labels import Table, labels_of, look_up, read_table, table_of
from rlab.data.source import Loss, Pixels, Source, decoded
from rlab.data.take import parse_ranges
from rlab.errors import DataError, OptionError
from rlab.storage.outside import read_lines

VIDEOS = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg")
FOLDERS = ("ucfTrainTestlist", "testTrainMulti_7030_splits")
HMDB_CODES = {"1": "train", "2": "test"}  # 0: the fold does not use the clip


class ClipOptions(Labelled, Sized):
    frames: Frames = None
    sampling: Sampling | None = Field(None, description="video: sample frames uniformly or densely around the middle")
    split: Split = None
    fold: PositiveInt | None = Field(None, description="video: number of the official split (default: 1)")
    splits: str | None = Field(None, description="video: folder with the official split lists")
    groups: int | str | None = Field(None, description="video: groups of UCF-101, e.g. 4-7")


def read_split(
    folder: Path, split: str, fold: int = 1, splits: str | None = None
) -> tuple[frozenset[str], tuple[str, ...]]:
    """The clips of a split as 'class/name' without suffix, and the class names in order if a list gives them.

    The lists lie in `splits`, or else in the folder of the clips, below it or beside it.
    """
    if split not in ("train", "test"):
        raise OptionError(f"expected split train or test, got {split!r}")
    usual = [folder, *(top / name for top in (folder, folder.parent) for name in FOLDERS)]
    folders = [Path(splits)] if splits else usual
    for lists in folders:
        ucf, hmdb = lists / f"{split}list{fold:02d}.txt", sorted(lists.glob(f"*_test_split{fold}.txt"))
        if ucf.is_file():  # lines 'class/clip.avi', followed by a class number in train lists
            return frozenset(_stem(line.split()[0]) for line in read_lines(ucf)), _class_order(lists / "classInd.txt")
        if hmdb:  # lines 'clip.avi 1' of one class: 1 is train, 2 is test, 0 is unused
            named = {file.name.removesuffix(f"_test_split{fold}.txt"): read_lines(file) for file in hmdb}
            pairs = [(label, *line.rsplit(maxsplit=1)) for label, lines in named.items() for line in lines]
            wanted = [pair for pair in pairs if HMDB_CODES.get(pair[-1]) == split]
            return frozenset(f"{pair[0]}/{PurePosixPath(pair[1]).stem}" for pair in wanted), ()
    expected = f"{split}list{fold:02d}.txt or CLASS_test_split{fold}.txt in {str(folders[0])!r}"
    raise DataError(f"found no lists of split {split} {fold}: expected {expected}, or pass their folder as splits")


def _stem(name: str) -> str:
    """'class/clip.avi' -> 'class/clip'; re-encoded clips have other suffixes."""
    path = PurePosixPath(name)
    return f"{path.parent.name}/{path.stem}"


def _class_order(path: Path) -> tuple[str, ...]:
    """Read lines '1 ApplyEyeMakeup', counted from 1."""
    try:
        pairs = [line.split(maxsplit=1) for line in read_lines(path)] if path.is_file() else []
        return tuple(name for _, name in sorted((int(number), name) for number, name in pairs))
    except ValueError:
        raise DataError(f"expected lines like '1 ApplyEyeMakeup' in {str(path)!r}: correct the file") from None


def keep_groups(source: ClipOptions, names: Sequence[str]) -> list[int]:
    """Rows of the clips in `groups`, by the column group of the table or by names like v_Surfing_g07_c02."""
    wanted = parse_ranges(str(source.groups), "groups like 4-7 or 4,6,8-25")
    kept = [row for row, group in enumerate(_groups(source, names)) if group in wanted]
    if not kept:
        raise OptionError(f"none of {len(names)} clips is in the groups {source.groups}: check groups")
    return kept


def _groups(source: ClipOptions, names: Sequence[str]) -> list[int]:
    path = table_of(source)
    if path.is_file() and "group" in Table.read(path).names:
        groups = look_up(read_table(path, "group"), names, path.name)
    else:
        groups = [match[1] if (match := re.search(r"_g(\d+)_c\d+", name)) else "" for name in names]
    unknown = [name for name, group in zip(names, groups, strict=True) if not re.fullmatch("[0-9]{1,6}", group)]
    if unknown:
        expected = "names like v_Surfing_g07_c02, or a column group with integers in the table of labels"
        raise DataError(f"{len(unknown)} clips have no group, first {unknown[0]!r}: expected {expected}")
    return [int(group) for group in groups]


def video_folder(source: ClipOptions) -> Source:
    """Load clips (b, 3, frames, h, w) from one folder per class, or from one folder with a table of labels.

    `split` and `fold` use the UCF-101 or HMDB-51 lists in the folder `splits` (default: in or beside the path); `groups` such as
    '4-7' or '4,6,8-25' keeps the clips of these UCF-101 groups. A clip that cannot be decoded is skipped and listed; a clip
    shorter than `frames` repeats frames (see `frame_indices`). The default size is that of the first clip.
    """
    names, missing = source.place.files(VIDEOS, "clips"), list[Loss]()
    if source.split is not None:
        clips, order = read_split(source.location, source.split, source.fold or 1, source.splits)
        names = [name for name in names if _stem(name) in clips]
        if not names:
            count = f"none of the {len(clips)} clips of split {source.split}"
            raise DataError(f"{count} are in the folder: check its lists")
        missing = [(clip, "is listed but there is no file") for clip in sorted(clips - set(map(_stem, names)))]
        source = source.model_copy(update={"classes": source.classes or order or None})
    y, classes = labels_of(source, names)
    kept = range(len(names)) if source.groups is None else keep_groups(source, names)
    rows = [kept[i] for i in source.take.rows(y[list(kept)])]
    frames, bounds, how = source.frames or 16, source.bounds or UNIT, source.sampling or "uniform"
    files = {names[i]: source.location / names[i] for i in rows}

    def decode_one(file: Path) -> Pixels:
        return read_clip(file, frames, source.size, how, source.resize or "crop")

    shape = None if source.size is None else (3, frames, *sides(source.size))
    facts = source.facts(classes) | {"bounds": bounds, "eight_bit": finite(bounds), "left_out": tuple(missing)}
    return decoded(decode_one, files, y[rows], [(file,) for file in files.values()], shape, **facts)
