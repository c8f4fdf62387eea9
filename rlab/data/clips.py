"""Video clips on disk, decoded on demand, with the splits and groups of UCF-101 and HMDB-51."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from torch import Tensor

from rlab.data.batch import Batch
from rlab.data.decode import BadClip, read_clip
from rlab.data.eight_bit import finite
from rlab.data.fields import UNIT, DataFields, Sampling, Size
from rlab.data.files import files_below
from rlab.data.fitting import sides
from rlab.data.labels import labels_of, look_up, read_cells, read_table, table_of
from rlab.data.source import Pixels, Source, own_files, read_all, reader, reads
from rlab.data.take import parse_ranges
from rlab.errors import DataError, OptionError
from rlab.storage.outside import read_lines

VIDEOS = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg")
FOLDERS = ("ucfTrainTestlist", "testTrainMulti_7030_splits")
HMDB_CODES = {"1": "train", "2": "test"}  # 0: the fold does not use the clip


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


def keep_groups(source: DataFields, names: Sequence[str]) -> list[int]:
    """Rows of the clips in `groups`, by the column group of the table or by names like v_Surfing_g07_c02."""
    wanted = parse_ranges(str(source.groups), "groups like 4-7 or 4,6,8-25")
    kept = [row for row, group in enumerate(_groups(source, names)) if group in wanted]
    if not kept:
        raise OptionError(f"none of {len(names)} clips is in the groups {source.groups}: check groups")
    return kept


def _groups(source: DataFields, names: Sequence[str]) -> list[int]:
    table = table_of(source)
    if table.is_file() and "group" in (cell.lower() for cell in read_cells(table)[0]):
        groups = look_up(read_table(table, "group"), names, table.name)
    else:
        groups = [match[1] if (match := re.search(r"_g(\d+)_c\d+", name)) else "" for name in names]
    unknown = [name for name, group in zip(names, groups, strict=True) if not re.fullmatch("[0-9]{1,6}", group)]
    if unknown:
        expected = "names like v_Surfing_g07_c02, or a column group with integers in the table of labels"
        raise DataError(f"{len(unknown)} clips have no group, first {unknown[0]!r}: expected {expected}")
    return [int(group) for group in groups]


@dataclass(frozen=True)
class ClipSource:
    """A list of clips; only `source`, `load` and `pixels` decode them."""

    options: DataFields
    ids: tuple[str, ...]  # paths relative to the folder
    y: Tensor  # (n,)
    classes: tuple[str, ...]
    missing: tuple[tuple[str, str], ...] = ()  # (clip, reason) of listed clips that the folder lacks

    @classmethod
    def of(cls, options: DataFields) -> ClipSource:
        """List the clips of a folder.

        `split` and `fold` use the UCF-101 or HMDB-51 lists in the folder `splits` (default: in or beside the path);
        `groups` such as '4-7' or '4,6,8-25' keeps the clips of these UCF-101 groups.
        """
        names = files_below(options.location, VIDEOS, "clips")
        missing: list[tuple[str, str]] = []
        if options.split is not None:
            clips, order = read_split(options.location, options.split, options.fold or 1, options.splits)
            names = [name for name in names if _stem(name) in clips]
            if not names:
                count = f"none of the {len(clips)} clips of split {options.split}"
                raise DataError(f"{count} are in the folder: check its lists")
            lost = sorted(clips - set(map(_stem, names)))
            missing = [(clip, "is listed but there is no file") for clip in lost]
            options = options.model_copy(update={"classes": options.classes or order or None})
        y, classes = labels_of(options, names)
        kept = range(len(names)) if options.groups is None else keep_groups(options, names)
        rows = [kept[i] for i in options.take.rows(y[list(kept)])]
        return cls(options, tuple(names[i] for i in rows), y[rows], classes, tuple(missing))

    def __len__(self) -> int:
        return len(self.ids)

    def _decoder(self, frames: int, size: Size | None, sampling: Sampling = "uniform") -> Callable[[str], Pixels | str]:
        """A function that decodes a clip by name, or returns the reason why it cannot."""
        if frames < 1:
            raise OptionError(f"expected at least 1 frame, got {frames}")

        def decode_one(name: str) -> Pixels | str:
            try:
                return read_clip(self.options.location / name, frames, size, sampling)
            except BadClip as error:
                return str(error)

        return decode_one

    def pixels(self, frames: int, size: Size | None = None) -> Iterator[tuple[int, Pixels | str]]:
        """Each row with its clip (3, frames, h, w), or with the reason why it cannot be decoded."""
        return enumerate(map(self._decoder(frames, size), self.ids))

    def source(self, frames: int = 16, size: Size | None = None) -> Source:
        """The clips (3, frames, h, w), each decoded on demand; the default size is that of the first clip."""
        options, bounds = self.options, self.options.bounds or UNIT
        decode_one = self._decoder(frames, size, options.sampling or "uniform")
        shape: tuple[int, ...] = (3, frames, *sides(size))
        if size is None:
            first = next((clip for clip in map(decode_one, self.ids) if not isinstance(clip, str)), None)
            if first is None:
                reason = decode_one(self.ids[0])
                raise DataError(f"none of {len(self)} clips can be decoded, first {self.ids[0]!r} ({reason})")
            shape = first.shape
        files = tuple(options.location / name for name in self.ids)
        facts = options.facts(self.classes) | {"bounds": bounds, "eight_bit": finite(bounds), "left_out": self.missing}
        return Source(
            reader(decode_one, self.ids, self.ids, bounds),
            shape,
            self.y,
            self.ids,
            files,
            own_files(len(files)),
            **facts,
        )

    def load(self, frames: int = 16, size: Size | None = None) -> Batch:
        """Load all clips as one batch (b, 3, frames, h, w); `left_out` names those that cannot be decoded."""
        return read_all(self.source(frames, size))


@reads("labels", "label_column", "classes", "size", "frames", "sampling", "split", "fold", "splits", "groups", "bounds")
def video_folder(source: DataFields) -> Source:
    """Load clips (b, 3, frames, h, w) from one folder per class, or from one folder with a table of labels.

    A clip that cannot be decoded is skipped and listed; a clip shorter than `frames` repeats frames (see `frame_indices`).
    """
    return ClipSource.of(source).source(source.frames or 16, source.size)
