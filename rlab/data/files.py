"""Find files in a folder and below it, and refuse folders in which either of two levels may be the classes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from rlab.errors import DataError

SYSTEM = ("__MACOSX",)  # folders that an archiver of the system adds


def endings_below(folder: Path) -> set[str]:
    """Suffixes, in lower case, of all files in the folder and below it, except hidden ones."""
    return {path.suffix.lower() for path in _files(folder)}


def files_below(folder: Path, endings: Sequence[str], what: str) -> list[str]:
    """Sorted paths, relative to the folder, of the files with these suffixes, except hidden ones."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {str(folder)!r}: check the path")
    names = sorted(path.relative_to(folder).as_posix() for path in _files(folder) if path.suffix.lower() in endings)
    if not names:
        raise DataError(f"the folder {str(folder)!r} holds no {what}: expected files ending in {', '.join(endings)}")
    return names


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SYSTEM]  # where to go on
        for name in names:
            if not name.startswith(".") and os.path.isfile(os.path.join(parent, name)):
                yield Path(parent, name)


def refuse_two_levels(folder: Path, names: Sequence[str]) -> None:
    """Refuse folders such as train and test that hold only folders, several of the same names: either level may be the classes."""
    parts = [PurePosixPath(name).parts for name in names]
    below: dict[str, set[str]] = {}
    for first, second, *_ in parts:
        below.setdefault(first, set()).add(second)
    shared = sorted(set.intersection(*below.values()))
    if min(map(len, parts)) > 2 and len(below) > 1 and len(shared) > 1:
        tops, inner = (", ".join(every[:3]) + (", ..." if len(every) > 3 else "") for every in (sorted(below), shared))
        raise DataError(
            f"cannot tell which folders in {str(folder)!r} are the classes, {tops} or, in each of them, {inner}: name one of "
            f"the folders ({str(folder / min(below))!r}), or pass classes (-D classes=FILE, one name per line) or labels"
        )
