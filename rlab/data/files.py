"""Folders of files and their labels, for images and clips alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from rlab.data.labels import Classes, encode, look_up, read_table
from rlab.errors import InputError


def endings_below(folder: Path) -> set[str]:
    """The endings of all files in the folder and in its sub-folders, in lower case; hidden ones are passed over."""
    return {path.suffix.lower() for path in _files(folder)}


def files_below(folder: Path, endings: Sequence[str], what: str) -> list[str]:
    """Paths of the files with these endings, relative to the folder, sorted."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r}: check the path")
    found = sorted(path.relative_to(folder).as_posix() for path in _files(folder) if path.suffix.lower() in endings)
    if not found:
        raise InputError(f"the folder {str(folder)!r} holds no {what}: expected files ending in {', '.join(endings)}")
    return found


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]


def labels_of(
    folder: Path, found: Sequence[str], labels: str | None, column: str | None, classes: Classes
) -> tuple[Tensor, tuple[str, ...]]:
    """Labels of files: from the table, else from labels.csv in the folder, else from the names of their class folders.

    Class folders named by whole numbers are class indices; other names are sorted."""
    table = Path(labels) if labels is not None else folder / "labels.csv"
    if labels is not None or table.is_file():
        known = read_table(table, column)
        return encode(look_up(known, found, table.name), classes, known=tuple(known.values()))
    loose = [one for one in found if "/" not in one]
    if loose:
        raise InputError(
            f"{len(loose)} files in {str(folder)!r} have no label, first {loose[0]!r}: "
            f"pass labels, a CSV with the columns file and label, or sort them into one folder a class"
        )
    return encode([one.split("/")[0] for one in found], classes)
