"""The train and test lists that come with UCF-101 (trainlist01.txt) and HMDB-51 (CLASS_test_split1.txt), and groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rlab.data.labels import look_up, read_table
from rlab.data.tables import read_cells
from rlab.errors import InputError

FOLDERS = ("ucfTrainTestlist", "testTrainMulti_7030_splits")
HMDB_CODES = {"1": "train", "2": "test"}  # 0 is a clip that the fold does not use


@dataclass(frozen=True)
class Split:
    """The clips of a split as 'class/name' without endings, and the class names in order where a list gives it."""

    name: str
    clips: tuple[str, ...]
    classes: tuple[str, ...] = ()

    def keep(self, found: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """The files of the split in the order of `found`, and (clip, why) of the clips that have no file."""
        wanted = set(self.clips)
        kept = [one for one in found if _stem(one) in wanted]
        if not kept:
            raise InputError(
                f"none of the {len(wanted)} clips of split {self.name} are in the folder: check the split's lists"
            )
        missing = sorted(wanted - {_stem(one) for one in kept})
        return kept, [(one, "is listed but there is no file") for one in missing]


def read_split(folder: Path, split: str, fold: int = 1, splits: str | None = None) -> Split:
    """The lists in `splits`, else in the clips' folder, in its sub-folders or beside it."""
    if split not in ("train", "test"):
        raise InputError(f"expected split train or test, got {split!r}")
    places = (
        [Path(splits)] if splits else [folder, *(top / name for top in (folder, folder.parent) for name in FOLDERS)]
    )
    for place in places:
        ucf, hmdb = place / f"{split}list{fold:02d}.txt", sorted(place.glob(f"*_test_split{fold}.txt"))
        if ucf.is_file():
            return Split(f"{split} {fold}", _ucf(ucf), _class_order(place / "classInd.txt"))
        if hmdb:
            return Split(f"{split} {fold}", tuple(one for file in hmdb for one in _hmdb(file, split, fold)))
    raise InputError(
        f"found no lists of split {split} {fold}: expected {split}list{fold:02d}.txt or CLASS_test_split{fold}.txt "
        f"in {str(places[0])!r}, or pass splits, the folder that holds them"
    )


def _stem(name: str) -> str:
    """'class/clip.avi' -> 'class/clip'; endings differ where clips were encoded anew."""
    path = PurePosixPath(name)
    return f"{path.parent.name}/{path.stem}"


def _ucf(path: Path) -> tuple[str, ...]:
    """Lines 'class/clip.avi', with a class number behind in the train lists."""
    return tuple(_stem(line.split()[0]) for line in path.read_text().splitlines() if line.strip())


def _class_order(path: Path) -> tuple[str, ...]:
    """Lines '1 ApplyEyeMakeup', counted from 1."""
    if not path.is_file():
        return ()
    pairs = [line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip()]
    try:
        return tuple(name.strip() for _, name in sorted((int(number), name) for number, name in pairs))
    except ValueError:
        raise InputError(f"expected lines like '1 ApplyEyeMakeup' in {str(path)!r}: mend the file") from None


def _hmdb(path: Path, split: str, fold: int) -> list[str]:
    """Lines 'clip.avi 1' of one class: 1 trains, 2 tests, 0 is left aside."""
    label = path.name.removesuffix(f"_test_split{fold}.txt")
    pairs = [line.rsplit(maxsplit=1) for line in path.read_text().splitlines() if line.strip()]
    return [f"{label}/{PurePosixPath(pair[0]).stem}" for pair in pairs if HMDB_CODES.get(pair[-1]) == split]


def keep_groups(folder: Path, found: Sequence[str], groups: str, labels: str | None = None) -> list[int]:
    """Rows of the clips in `groups`, by the table's column group, else by their names as v_Surfing_g07_c02 has them."""
    wanted = parse_groups(groups)
    kept = [row for row, group in enumerate(_groups(folder, found, labels)) if group in wanted]
    if not kept:
        raise InputError(f"none of {len(found)} clips is in the groups {groups}: check them")
    return kept


def parse_groups(text: str) -> frozenset[int]:
    """'4-7' or '4,6,8-25'."""
    parts = [re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip()) for part in text.split(",")]
    pairs = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    if len(pairs) < len(parts) or any(first > last for first, last in pairs):
        raise InputError(f"expected groups like 4-7 or 4,6,8-25, got {text!r}")
    return frozenset(group for first, last in pairs for group in range(first, last + 1))


def _groups(folder: Path, found: Sequence[str], labels: str | None) -> list[int]:
    table = Path(labels) if labels is not None else folder / "labels.csv"
    if table.is_file() and "group" in (cell.lower() for cell in read_cells(table)[0]):
        told = look_up(read_table(table, "group"), found, table.name)
    else:
        told = [match[1] if (match := re.search(r"_g(\d+)_c\d+", one)) else "" for one in found]
    unknown = [one for one, group in zip(found, told, strict=True) if not group.isdigit()]
    if unknown:
        raise InputError(
            f"{len(unknown)} clips have no group, first {unknown[0]!r}: expected names like v_Surfing_g07_c02 or a "
            f"column group of whole numbers in the table of labels"
        )
    return [int(group) for group in told]
